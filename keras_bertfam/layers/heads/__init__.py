"""Heads: from states to predictions of tokens, spans, classes and vectors."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.heads.heads import MaskedLMHead

__all__ = [
    "MaskedLMHead",
]

lazy.attach(__name__)
