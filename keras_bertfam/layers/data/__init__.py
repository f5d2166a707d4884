"""From documents to rows and batches: transformations of `tf.data` datasets."""

from keras_bertfam.layers.data.batching import BatchByTokens
from keras_bertfam.layers.data.best_fit import PackSequences
from keras_bertfam.layers.data.documents import read_documents, split_sentences
from keras_bertfam.layers.data.lexicon import Lexicon
from keras_bertfam.layers.data.packing import PackSentences
from keras_bertfam.layers.data.pairing import PairSegments
from keras_bertfam.layers.data.pairing_electra import ElectraSegments
from keras_bertfam.layers.data.parallel_streams import ParallelStreams
from keras_bertfam.layers.data.seeding import StreamPosition, seeded_passes
from keras_bertfam.layers.data.token_stream import PackStream

__all__ = [
    "BatchByTokens",
    "ElectraSegments",
    "Lexicon",
    "PackSentences",
    "PackSequences",
    "PackStream",
    "PairSegments",
    "ParallelStreams",
    "StreamPosition",
    "read_documents",
    "seeded_passes",
    "split_sentences",
]
