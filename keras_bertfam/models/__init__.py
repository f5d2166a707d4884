"""Backbones."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.models.base import TokenBackbone as Backbone
    from keras_bertfam.models.decoder import DecoderBackbone
    from keras_bertfam.models.encoder import EncoderBackbone
    from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
    from keras_bertfam.models.families.albert import AlbertBackbone
    from keras_bertfam.models.families.bart import BartBackbone
    from keras_bertfam.models.families.bert import BertBackbone
    from keras_bertfam.models.families.camembert import CamembertBackbone
    from keras_bertfam.models.families.deberta import DebertaBackbone
    from keras_bertfam.models.families.deberta_v2 import DebertaV2Backbone
    from keras_bertfam.models.families.distilbert import DistilBertBackbone
    from keras_bertfam.models.families.electra import ElectraBackbone, make_generator
    from keras_bertfam.models.families.elmo import ElmoBackbone
    from keras_bertfam.models.families.ernie import ErnieBackbone
    from keras_bertfam.models.families.ettin import EttinBackbone
    from keras_bertfam.models.families.eurobert import EuroBertBackbone
    from keras_bertfam.models.families.gpt import GPTBackbone
    from keras_bertfam.models.families.gpt2 import GPT2Backbone
    from keras_bertfam.models.families.longformer import (
        LongformerBackbone,
        make_longformer,
    )
    from keras_bertfam.models.families.mmbert import MmBertBackbone
    from keras_bertfam.models.families.modernbert import ModernBertBackbone
    from keras_bertfam.models.families.modernbert_decoder import (
        ModernBertDecoderBackbone,
    )
    from keras_bertfam.models.families.mpnet import MPNetBackbone
    from keras_bertfam.models.families.neobert import NeoBertBackbone
    from keras_bertfam.models.families.roberta import RobertaBackbone
    from keras_bertfam.models.families.spanbert import SpanBertBackbone
    from keras_bertfam.models.families.t5 import T5Backbone
    from keras_bertfam.models.families.transformer_xl import TransformerXLBackbone
    from keras_bertfam.models.families.xlm import XlmBackbone
    from keras_bertfam.models.families.xlm_roberta import XLMRobertaBackbone
    from keras_bertfam.models.families.xlm_roberta_xl import XLMRobertaXLBackbone
    from keras_bertfam.models.families.xlnet import XLNetBackbone
    from keras_bertfam.models.features import FeatureBackbone
    from keras_bertfam.transformer_config import TransformerConfig

__all__ = [
    "AlbertBackbone",
    "Backbone",
    "BartBackbone",
    "BertBackbone",
    "CamembertBackbone",
    "DebertaBackbone",
    "DebertaV2Backbone",
    "DecoderBackbone",
    "DistilBertBackbone",
    "ElectraBackbone",
    "ElmoBackbone",
    "EncoderBackbone",
    "EncoderDecoderBackbone",
    "ErnieBackbone",
    "EttinBackbone",
    "EuroBertBackbone",
    "FeatureBackbone",
    "GPT2Backbone",
    "GPTBackbone",
    "LongformerBackbone",
    "MmBertBackbone",
    "ModernBertBackbone",
    "ModernBertDecoderBackbone",
    "MPNetBackbone",
    "NeoBertBackbone",
    "RobertaBackbone",
    "SpanBertBackbone",
    "T5Backbone",
    "TransformerConfig",
    "TransformerXLBackbone",
    "XLMRobertaBackbone",
    "XLMRobertaXLBackbone",
    "XlmBackbone",
    "XLNetBackbone",
    "make_generator",
    "make_longformer",
]

lazy.attach(__name__)
