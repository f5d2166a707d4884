"""Token ids of documents, batch by batch in a graph."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.documents import sentences_of
from keras_bertfam.text_files.reading import CONTINUES
from keras_bertfam.types import Tokenizer

# What is known of a document: its digest, and what it has.
DOCUMENT = np.dtype(
    [
        ("shard", "u4"),
        ("sentences", "i8"),
        ("tokens", "i8"),
        ("high", "u8"),
        ("low", "u8"),
    ]
)
_BATCH_BYTES = 1 << 20


def tokenize_documents(
    tokenizer: Tokenizer, texts: Iterable[bytes], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenise documents, as `tokenize_sentences` does.

    Args:
        tokenizer: a tokenizer layer.
        texts: of documents, in UTF-8.
        dtype: that of the ids.

    Returns:
        A tuple of the ids of all, the length of each sentence, uint32, and an int64
        array of shape `(documents, 2)`: how many sentences and tokens each has.
    """
    run = _graph(tokenizer, dtype.name)
    ids, lengths, documents = [], [], []
    count = 0
    for batch, numbers in _batches(texts):
        batch_ids, batch_lengths, piece = (x.numpy() for x in run(tf.constant(batch)))
        ids.append(batch_ids)
        lengths.append(batch_lengths)
        documents.append(np.array(numbers)[piece])
        count = numbers[-1] + 1
    all_lengths = np.concatenate([np.zeros(0, np.uint32), *lengths])
    document = np.concatenate([np.zeros(0, np.int64), *documents])
    sentences = np.bincount(document, minlength=count)
    tokens = np.bincount(document, weights=all_lengths, minlength=count)
    return (
        np.concatenate([np.zeros(0, dtype), *ids]),
        all_lengths,
        np.stack([sentences, tokens.astype(np.int64)], 1),
    )


@functools.lru_cache(maxsize=1)
def _graph(tokenizer: Any, dtype: str) -> Any:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def run(texts):
        tokens, document = sentences_of(tokenizer, texts)
        lengths = tf.cast(tokens.row_lengths(), tf.uint32)
        return tf.cast(tokens.flat_values, dtype), lengths, document

    return run


def _batches(texts):
    """Batch pieces of documents, beside the number of the document of each."""
    batch: list[bytes] = []
    numbers: list[int] = []
    size = 0
    for number, text in enumerate(texts):
        for piece in _pieces(text):
            if batch and size + len(piece) > _BATCH_BYTES:
                yield batch, numbers
                batch, numbers, size = [], [], 0
            batch.append(piece)
            numbers.append(number)
            size += len(piece)
    if batch:
        yield batch, numbers


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut a long document into pieces that end with lines."""
    start = 0
    while len(text) - start > _BATCH_BYTES:
        end = text.find(b"\n", start + _BATCH_BYTES // 2)
        if end < 0:
            break
        yield _mark(start) + text[start:end]
        start = end + 1
    yield _mark(start) + text[start:]


def _mark(start):
    return CONTINUES.encode() if start else b""
