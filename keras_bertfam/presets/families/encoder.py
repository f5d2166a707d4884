"""The record of an encoder of no family: BERT's without its arguments and recipes."""

from keras_bertfam.presets.families.bert import BERT

ENCODER = BERT.derived("encoder", "EncoderBackbone", arguments={}, pretraining={})
