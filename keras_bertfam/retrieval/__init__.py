"""Passages by their vectors: an index, saved beside its texts."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.retrieval.index import Index
    from keras_bertfam.retrieval.mining import mine_negatives

__all__ = [
    "Index",
    "mine_negatives",
]

lazy.attach(__name__)
