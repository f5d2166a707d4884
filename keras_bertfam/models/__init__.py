"""Backbones."""

from keras_bertfam.models.bert import BertBackbone
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.models.roberta import RobertaBackbone

__all__ = ["BertBackbone", "EncoderBackbone", "RobertaBackbone"]
