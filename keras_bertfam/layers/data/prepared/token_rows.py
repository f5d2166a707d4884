"""Rows of prepared corpora, in the same layout as rows of documents."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.corpora.row_reader import STARTS
from keras_bertfam.layers.data.pairs.segments import Sentences
from keras_bertfam.types import TFRagged, TFTensor

Read = dict[str, TFTensor]


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """How a kind of rows is made from a prepared corpus.

    Args:
        kind: `RowKind`. What is read.
        lay_out: function of what `BatchSource.read` gives and a seed, to rows. Works
            in a graph.
        partners, both_directions: see `BatchSource`.
        least_streams: int. How many streams of each direction rows are made of.
    """

    kind: RowKind
    lay_out: Callable[[Read, TFTensor], Read]
    partners: bool = False
    both_directions: bool = False
    least_streams: int = 1


def blocks(
    found: Read, start_token_id: int | None, end_token_id: int | None, pad_token_id: int
) -> Read:
    """Put blocks between special tokens, as `PackSentences` does.

    Args:
        found: what `BatchSource.read` gives.
        start_token_id: int or `None`.
        end_token_id: int or `None`.
        pad_token_id: int.

    Returns:
        A dict of `token_ids` and `sequence_ids`, int32 `(rows, length)`, and
        `padding_mask`, bool of that shape.
    """
    before, after = (int(x is not None) for x in (start_token_id, end_token_id))
    around = [[0, 0], [before, after]]
    ids = tf.pad(found["token_ids"], around, constant_values=pad_token_id)
    owners = tf.pad(found["sequence_ids"], around)
    place = tf.range(ids.shape[1])[None] - before
    lengths = found["lengths"][:, None]
    if start_token_id is not None:
        ids = tf.where(place < 0, start_token_id, ids)
        owners = tf.where(place < 0, 1, owners)
    if end_token_id is not None:
        last = tf.reduce_max(owners, 1, keepdims=True)
        ids = tf.where(place == lengths, end_token_id, ids)
        owners = tf.where(place == lengths, last, owners)
    inside = place < lengths + after
    return {"token_ids": ids, "padding_mask": inside, "sequence_ids": owners}


def texts_in(found: Read) -> TFRagged:
    """Take the tokens of rows, or of their sequences, as ragged `(batch, None)`.

    Args:
        found: what `BatchSource.read` gives.
    """
    return tf.RaggedTensor.from_tensor(found["token_ids"], found["lengths"])


def sentences_in(found: Read) -> tuple[TFTensor, TFTensor, Sentences]:
    """Take the sentences of rows of whole sentences, one row after the other.

    Args:
        found: what `BatchSource.read` gives, or the same of partners.

    Returns:
        Int32 tensors: all tokens, of rank 1, and their sentences' lengths; and the
        sentences, whose documents are the rows.
    """
    ids, lengths = found["token_ids"], found["lengths"]
    inside = tf.sequence_mask(lengths, ids.shape[1])
    tokens = ragged.keep(ids, inside)
    starts = tf.bitwise.bitwise_and(found["marks"], STARTS) > 0
    row, place = tf.unstack(tf.cast(tf.where(starts), tf.int32), axis=1)
    at = place + tf.gather(tf.cumsum(lengths, exclusive=True), row)
    sizes = tf.concat([at[1:], tf.shape(tokens)], 0) - at
    return tokens, sizes, Sentences(sizes, row)
