"""Data of the published tasks, by name or from files."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.datasets.examples import Examples
    from keras_bertfam.datasets.loading import load_examples
    from keras_bertfam.datasets.text_to_text import as_text_pairs, score_texts

__all__ = [
    "Examples",
    "as_text_pairs",
    "load_examples",
    "score_texts",
]

lazy.attach(__name__)
