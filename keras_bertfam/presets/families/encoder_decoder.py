"""The record of an encoder-decoder of no family: BART's without its choices."""

from keras_bertfam.presets.families.bart import BART

ENCODER_DECODER = BART.derived(
    "encoder_decoder", "EncoderDecoderBackbone", arguments={}, pretraining={}
)
