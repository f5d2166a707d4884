"""Passages by their vectors: an index, saved beside its texts."""

from keras_bertfam.retrieval.index import Index
from keras_bertfam.retrieval.passages import Found

__all__ = ["Found", "Index"]
