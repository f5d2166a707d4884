"""Layers and dataset transformations that run inside `tf.data`."""

from keras_bertfam.layers.preprocessing.documents import (
    read_documents,
    split_sentences,
)
from keras_bertfam.layers.preprocessing.masking import MaskTokens
from keras_bertfam.layers.preprocessing.packing import PackSentences
from keras_bertfam.layers.preprocessing.seeding import StreamPosition, seeded_passes
from keras_bertfam.layers.preprocessing.tokenizers import (
    BertTokenizer,
    train_word_piece,
)

__all__ = [
    "BertTokenizer",
    "MaskTokens",
    "PackSentences",
    "StreamPosition",
    "read_documents",
    "seeded_passes",
    "split_sentences",
    "train_word_piece",
]
