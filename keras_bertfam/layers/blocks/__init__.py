"""Transformer blocks, and what they are made of beside attention."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.blocks.character_encoder import CharacterEncoder, Highway
    from keras_bertfam.layers.blocks.dropout import Dropout
    from keras_bertfam.layers.blocks.embedding import EncoderEmbedding, TokenEmbedding
    from keras_bertfam.layers.blocks.sublayers import FeedForward, ResidualSublayer
    from keras_bertfam.layers.blocks.transformer import TransformerStack

__all__ = [
    "CharacterEncoder",
    "Dropout",
    "EncoderEmbedding",
    "FeedForward",
    "Highway",
    "ResidualSublayer",
    "TokenEmbedding",
    "TransformerStack",
]

lazy.attach(__name__)
