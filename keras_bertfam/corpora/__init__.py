"""Prepared corpora: text is tokenized once into shards, which are read at random."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.corpora.preparing.duplicates import NearDuplicates
    from keras_bertfam.corpora.preparing.prepare import prepare
    from keras_bertfam.corpora.preparing.quality import QualityRules

__all__ = [
    "NearDuplicates",
    "QualityRules",
    "prepare",
]

lazy.attach(__name__)
