"""A prepared corpus, small enough to compare row by row."""

import pathlib

import numpy as np
import tensorflow as tf

from keras_bertfam.corpora.manifest import Manifest, describe_tokenizer, ids_dtype
from keras_bertfam.corpora.shards import write_shard
from keras_bertfam.layers.data.documents.reading import tokenize_sentences
from tests.tiny_masked_lm import WORDS


def texts(count=40, seed=0):
    """Documents of 1 to 8 lines, each of 1 to 9 words, some of forty."""
    rng = np.random.default_rng(seed)
    sizes = (*range(1, 10), 40)
    return [
        "\n".join(
            " ".join(rng.choice(WORDS, rng.choice(sizes)))
            for _ in range(rng.integers(1, 9))
        )
        for _ in range(count)
    ]


def shares(documents, shards=3):
    """The documents of each shard."""
    return [documents[number::shards] for number in range(shards)]


def prepare(folder, tokenizer, documents=None, shards=3):
    """Writes the documents to a folder.

    Returns:
        The folder, a string.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    dtype = ids_dtype(tokenizer.vocabulary_size())
    parts = shares(texts() if documents is None else documents, shards)
    written = [
        write_shard(folder, number, shards, _tokenized(part, tokenizer, dtype))
        for number, part in enumerate(parts)
    ]
    Manifest(describe_tokenizer(tokenizer), str(dtype), written).write(folder)
    return str(folder)


def _in_graph(tokenizer):
    # KerasHub's tokenizers return Python lists in eager mode.
    return tf.function(lambda texts: tokenize_sentences(tokenizer, texts, False))


def _tokenized(documents, tokenizer, dtype):
    if not documents:
        return
    tokens, owner = _in_graph(tokenizer)(tf.constant(documents))
    lengths, owner = tokens.row_lengths().numpy(), owner.numpy()
    values = np.split(tokens.flat_values.numpy().astype(dtype), np.cumsum(lengths)[:-1])
    for document in range(len(documents)):
        mine = np.flatnonzero(owner == document)
        yield np.concatenate([values[i] for i in mine]), lengths[mine]
