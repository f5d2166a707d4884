"""From documents to rows and batches: transformations of `tf.data` datasets."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.layers.data.documents.lexicon import Lexicon
    from keras_bertfam.layers.data.documents.marked_spans import mark_dates
    from keras_bertfam.layers.data.documents.reading import (
        read_documents,
        split_sentences,
    )
    from keras_bertfam.layers.data.documents.translations import (
        mark_languages,
        read_translations,
    )
    from keras_bertfam.layers.data.pairs.electra_segments import ElectraSegments
    from keras_bertfam.layers.data.pairs.sentence_pairs import PairSegments
    from keras_bertfam.layers.data.prepared.token_corpus import data_worker, read_tokens
    from keras_bertfam.layers.data.rows.batches import BatchByTokens
    from keras_bertfam.layers.data.rows.sentence_packing import PackSentences
    from keras_bertfam.layers.data.sampling import sample_corpora

__all__ = [
    "BatchByTokens",
    "ElectraSegments",
    "Lexicon",
    "PackSentences",
    "PairSegments",
    "data_worker",
    "mark_dates",
    "mark_languages",
    "read_documents",
    "read_tokens",
    "read_translations",
    "sample_corpora",
    "split_sentences",
]

lazy.attach(__name__)
