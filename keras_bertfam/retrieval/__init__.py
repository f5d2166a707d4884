"""Passages by their vectors: an index, saved beside its texts."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.retrieval.index import Index

__all__ = [
    "Index",
]

lazy.attach(__name__)
