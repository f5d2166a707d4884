"""Prepared corpora: text made into shards of token ids once, to be read at random."""

from keras_bertfam.corpora.manifest import Manifest, Shard, tokenizer_digest
from keras_bertfam.corpora.shard_reader import ShardReader
from keras_bertfam.corpora.shards import check_shard, read_lengths

__all__ = [
    "Manifest",
    "Shard",
    "ShardReader",
    "check_shard",
    "read_lengths",
    "tokenizer_digest",
]
