"""Transformer blocks and their parts, except attention."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.blocks.embedding import EncoderEmbedding
    from keras_bertfam.layers.blocks.sublayers import FeedForward
    from keras_bertfam.layers.blocks.transformer import TransformerStack

__all__ = [
    "EncoderEmbedding",
    "FeedForward",
    "TransformerStack",
]

lazy.attach(__name__)
