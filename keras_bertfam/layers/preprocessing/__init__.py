"""Layers and dataset transformations that run inside `tf.data`."""

from keras_bertfam.layers.preprocessing.batching import BatchByTokens
from keras_bertfam.layers.preprocessing.documents import (
    read_documents,
    split_sentences,
)
from keras_bertfam.layers.preprocessing.masking import MaskTokens
from keras_bertfam.layers.preprocessing.packing import PackSentences
from keras_bertfam.layers.preprocessing.pairing import PairSegments
from keras_bertfam.layers.preprocessing.pairing_electra import ElectraSegments
from keras_bertfam.layers.preprocessing.permutation import PermuteTokens
from keras_bertfam.layers.preprocessing.seeding import StreamPosition, seeded_passes
from keras_bertfam.layers.preprocessing.sentence_piece import (
    AlbertTokenizer,
    XLNetTokenizer,
)
from keras_bertfam.layers.preprocessing.streams import ParallelStreams
from keras_bertfam.layers.preprocessing.token_strategies import (
    IndependentTokens,
    SmoothedTokens,
)
from keras_bertfam.layers.preprocessing.tokenizers import BertTokenizer
from keras_bertfam.layers.preprocessing.vocabulary import (
    count_tokens,
    extend_vocabulary,
    train_word_piece,
)
from keras_bertfam.layers.preprocessing.word_strategies import (
    GeometricSpans,
    GivenSpans,
    NGrams,
    WholeWords,
)

__all__ = [
    "AlbertTokenizer",
    "BatchByTokens",
    "BertTokenizer",
    "ElectraSegments",
    "GeometricSpans",
    "GivenSpans",
    "IndependentTokens",
    "MaskTokens",
    "NGrams",
    "PackSentences",
    "ParallelStreams",
    "PermuteTokens",
    "PairSegments",
    "SmoothedTokens",
    "StreamPosition",
    "WholeWords",
    "XLNetTokenizer",
    "count_tokens",
    "extend_vocabulary",
    "read_documents",
    "seeded_passes",
    "split_sentences",
    "train_word_piece",
]
