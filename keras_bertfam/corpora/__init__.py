"""Prepared corpora: text made into shards of token ids once, to be read at random."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.corpora.manifest import Manifest, Shard, tokenizer_digest
    from keras_bertfam.corpora.preparing.duplicates import NearDuplicates
    from keras_bertfam.corpora.preparing.prepare import prepare
    from keras_bertfam.corpora.preparing.quality import QualityRules
    from keras_bertfam.corpora.preparing.word_counts import count_words
    from keras_bertfam.corpora.shards import ShardReader, check_shard, read_lengths

__all__ = [
    "Manifest",
    "NearDuplicates",
    "QualityRules",
    "Shard",
    "ShardReader",
    "check_shard",
    "count_words",
    "prepare",
    "read_lengths",
    "tokenizer_digest",
]

lazy.attach(__name__)
