"""Passages by their vectors: an index, saved beside its texts."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.retrieval.index import Index
    from keras_bertfam.retrieval.passages import Found

__all__ = ["Found", "Index"]

lazy.attach(__name__)
