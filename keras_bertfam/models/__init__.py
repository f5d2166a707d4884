"""Backbones."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.models.albert import AlbertBackbone
    from keras_bertfam.models.bart import BartBackbone
    from keras_bertfam.models.base import TokenBackbone as Backbone
    from keras_bertfam.models.bert import BertBackbone
    from keras_bertfam.models.camembert import CamembertBackbone
    from keras_bertfam.models.decoder import DecoderBackbone
    from keras_bertfam.models.distilbert import (
        DistilBertBackbone,
        copy_layers,
        teacher_layers,
    )
    from keras_bertfam.models.electra import ElectraBackbone
    from keras_bertfam.models.elmo import ElmoBackbone
    from keras_bertfam.models.encoder import EncoderBackbone
    from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
    from keras_bertfam.models.ernie import ErnieBackbone
    from keras_bertfam.models.features import FeatureBackbone
    from keras_bertfam.models.generator import make_generator
    from keras_bertfam.models.gpt import GPTBackbone
    from keras_bertfam.models.gpt2 import GPT2Backbone
    from keras_bertfam.models.longformer import LongformerBackbone, make_longformer
    from keras_bertfam.models.modernbert import ModernBertBackbone
    from keras_bertfam.models.roberta import RobertaBackbone
    from keras_bertfam.models.spanbert import SpanBertBackbone
    from keras_bertfam.models.t5 import T5Backbone
    from keras_bertfam.models.transformer_xl import TransformerXLBackbone
    from keras_bertfam.models.xlm_roberta import XLMRobertaBackbone
    from keras_bertfam.models.xlnet import XLNetBackbone
    from keras_bertfam.transformer_config import TransformerConfig

__all__ = [
    "AlbertBackbone",
    "Backbone",
    "BartBackbone",
    "BertBackbone",
    "CamembertBackbone",
    "DecoderBackbone",
    "DistilBertBackbone",
    "ElectraBackbone",
    "ElmoBackbone",
    "EncoderBackbone",
    "EncoderDecoderBackbone",
    "ErnieBackbone",
    "FeatureBackbone",
    "GPT2Backbone",
    "GPTBackbone",
    "LongformerBackbone",
    "ModernBertBackbone",
    "RobertaBackbone",
    "SpanBertBackbone",
    "T5Backbone",
    "TransformerConfig",
    "TransformerXLBackbone",
    "XLMRobertaBackbone",
    "XLNetBackbone",
    "copy_layers",
    "make_generator",
    "make_longformer",
    "teacher_layers",
]

lazy.attach(__name__)
