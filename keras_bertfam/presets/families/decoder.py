"""The record of a decoder of no family: GPT-2's without its arguments and recipes."""

from keras_bertfam.presets.families.gpt2 import GPT2

DECODER = GPT2.derived(
    "decoder",
    "DecoderBackbone",
    arguments={"causal": True, "embedding_norm": False},
    pretraining={},
)
