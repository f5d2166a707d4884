"""Load data of published tasks, by name or from files."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.datasets.choosing import choose, zero_shot
    from keras_bertfam.datasets.examples import Examples
    from keras_bertfam.datasets.loading import load_examples
    from keras_bertfam.datasets.mixtures import mixture
    from keras_bertfam.datasets.templates import Template, write_examples
    from keras_bertfam.datasets.text_to_text import as_text_pairs, score_texts

__all__ = [
    "Examples",
    "Template",
    "as_text_pairs",
    "choose",
    "load_examples",
    "mixture",
    "score_texts",
    "write_examples",
    "zero_shot",
]

lazy.attach(__name__)
