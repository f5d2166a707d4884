"""Layers that remember earlier text: XLNet's, Transformer-XL's and ELMo's."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.recurrent.memory import SegmentMemory, StateMemory
    from keras_bertfam.layers.recurrent.projected_lstm import (
        BidirectionalLSTM,
        ProjectedLSTMCell,
    )
    from keras_bertfam.layers.recurrent.relative_attention import (
        RelativeAttention,
        relative_sinusoids,
    )
    from keras_bertfam.layers.recurrent.relative_transformer import (
        RelativeTransformerBlock,
        RelativeTransformerStack,
    )

__all__ = [
    "BidirectionalLSTM",
    "ProjectedLSTMCell",
    "RelativeAttention",
    "RelativeTransformerBlock",
    "RelativeTransformerStack",
    "SegmentMemory",
    "StateMemory",
    "relative_sinusoids",
]

lazy.attach(__name__)
