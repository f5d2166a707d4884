"""Passages by their vectors: an index, saved beside its texts."""

from keras_bertfam.retrieval.index import Found, Index

__all__ = ["Found", "Index"]
