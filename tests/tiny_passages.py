"""A retriever and an index of passages, as small as can be."""

import functools

import keras
import numpy as np

from keras_bertfam.models import BertBackbone
from keras_bertfam.retrieval import Index
from keras_bertfam.tasks import DualEncoder, DualEncoderPreprocessor, PassageSearch
from tests.tasks.generation.text_to_text_tokenizers import WORDS, word_piece

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}


def bert(seed=1, vocabulary_size=None, **kwargs):
    keras.utils.set_random_seed(seed)
    size = vocabulary_size or word_piece().vocabulary_size()
    settings = {"max_sequence_length": 32, "initializer_range": 0.3, "dropout": 0.0}
    return BertBackbone(size, **SIZES, **{**settings, **kwargs})


def passages(count=12, seed=0):
    """Distinct texts of five words, each beginning with a word of its own."""
    rng = np.random.default_rng(seed)
    return [" ".join([WORDS[i], *rng.choice(WORDS, 4)]) for i in range(min(count, 15))]


def make_retriever(towers=2, **kwargs):
    preprocessor = DualEncoderPreprocessor(
        word_piece(), sequence_length=12, query_length=12
    )
    tower = bert(2) if towers == 2 else None
    settings = {"projection_dim": 6, "dropout": 0.0, **kwargs}
    return DualEncoder(bert(3), preprocessor, tower, **settings)


@functools.cache
def known():
    """A retriever that no test trains, and an index of its vectors."""
    retriever = make_retriever()
    return retriever, Index.build(passages(), retriever)


def make_search(sources=None, trained=False):
    """What finds passages; of a retriever of its own if that is to be trained."""
    retriever, index = known()
    if trained:
        other = make_retriever()
        for ours, theirs in zip(other.weights, retriever.weights, strict=True):
            ours.assign(keras.ops.copy(theirs))
        retriever = other
    return PassageSearch(retriever, index, sources)
