"""The record of an encoder that is of no family: BERT's, without its choices."""

from keras_bertfam.presets.families.bert import BERT

ENCODER = BERT.derived("encoder", "EncoderBackbone", arguments={}, pretraining={})
