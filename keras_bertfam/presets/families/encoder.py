"""The record of an encoder that is of no family: BERT's, without its choices."""

from keras_bertfam.presets.families.bart import BART
from keras_bertfam.presets.families.bert import BERT
from keras_bertfam.presets.families.gpt2 import GPT2

ENCODER = BERT.derived("encoder", "EncoderBackbone", arguments={}, pretraining={})


DECODER = GPT2.derived(
    "decoder",
    "DecoderBackbone",
    arguments={"causal": True, "embedding_norm": False},
    pretraining={},
)


ENCODER_DECODER = BART.derived(
    "encoder_decoder", "EncoderDecoderBackbone", arguments={}, pretraining={}
)
