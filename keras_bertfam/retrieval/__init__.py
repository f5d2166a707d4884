"""Passages by their vectors: an index, and how well it finds them."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.retrieval.evaluation import SearchData, evaluate_search
    from keras_bertfam.retrieval.index import Index
    from keras_bertfam.retrieval.mining import mine_negatives

__all__ = [
    "Index",
    "SearchData",
    "evaluate_search",
    "mine_negatives",
]

lazy.attach(__name__)
