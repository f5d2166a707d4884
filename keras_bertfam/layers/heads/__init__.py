"""From states to what an objective predicts: tokens, spans, classes, vectors."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.heads.heads import MaskedLMHead

__all__ = [
    "MaskedLMHead",
]

lazy.attach(__name__)
