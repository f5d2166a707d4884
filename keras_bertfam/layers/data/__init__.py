"""From documents to rows and batches: transformations of `tf.data` datasets."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.data.batching import BatchByTokens, full_batches
    from keras_bertfam.layers.data.best_fit import PackSequences
    from keras_bertfam.layers.data.data_service import data_worker
    from keras_bertfam.layers.data.dates import mark_dates
    from keras_bertfam.layers.data.documents import read_documents, split_sentences
    from keras_bertfam.layers.data.lexicon import Lexicon
    from keras_bertfam.layers.data.packing import PackSentences
    from keras_bertfam.layers.data.pairing import PairSegments
    from keras_bertfam.layers.data.pairing_electra import ElectraSegments
    from keras_bertfam.layers.data.parallel_streams import ParallelStreams
    from keras_bertfam.layers.data.seeding import StreamPosition, seeded_passes
    from keras_bertfam.layers.data.token_corpus import TokenCorpus, read_tokens
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
    "TokenCorpus",
    "data_worker",
    "full_batches",
    "mark_dates",
    "read_documents",
    "read_tokens",
    "seeded_passes",
    "split_sentences",
]

lazy.attach(__name__)
