"""Prompts as rows with room for what is written, and what was written as text."""

from typing import Any

import tensorflow as tf

from keras_bertfam.layers.data.arrays import as_tf_tensors
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


def lay_out_prompts(
    tokens: TFRagged, first: list[int], length: int, pad_token_id: int
) -> tuple[TFTensor, TFTensor, TFTensor]:
    """Lay prompts out behind special tokens, padded where a model goes on writing.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        first: list of ints. What each row begins with.
        length: int.
        pad_token_id: int.

    Returns:
        Ids, int32 `(batch, length)`; the padding mask, bool of that shape; and the
        tokens of the longest row, for `check_prompts`.
    """
    special = tf.tile(tf.constant([first], tf.int32), [tokens.nrows(), 1])
    tokens = tf.concat([special, tokens], 1)
    longest = tf.reduce_max(tf.concat([tokens.row_lengths(), [0]], 0))
    ids = tokens.to_tensor(pad_token_id, shape=[None, length])
    inside = tf.sequence_mask(tokens.row_lengths(), length)
    return tf.ensure_shape(ids, [None, length]), inside, longest


def check_prompts(
    rows: dict[str, TFTensor], longest: TFTensor, length: int
) -> dict[str, TFTensor]:
    """Return `rows` if all prompts leave room for a token. Works in a graph.

    Args:
        rows: dict of tensors.
        longest: what `lay_out_prompts` gives.
        length: int. The length of the rows.

    Raises:
        ValueError: if one doesn't: in a graph that is a
            `tf.errors.InvalidArgumentError`.
    """
    message = (
        f"`x` must have prompts of less than {length} tokens, the length of a row. "
        "Received one of"
    )
    if tf.executing_eagerly():
        if longest >= length:
            raise ValueError(f"{message} {int(longest)}.")
        return rows
    check = tf.debugging.Assert(longest < length, [message, longest])
    with tf.control_dependencies([check]):
        return {name: tf.identity(x) for name, x in rows.items()}


def to_text(tokenizer: Tokenizer, token_ids: Any, padding_mask: Any) -> Any:
    """Convert rows to text, without padding and special tokens. Works in a graph.

    Args:
        tokenizer: a tokenizer layer.
        token_ids: int tensor or array `(batch, length)` or `(length,)`.
        padding_mask: bool or int tensor or array of that shape.

    Returns:
        What the tokenizer's `detokenize` gives: a list of strings, or in a graph a
        string tensor `(batch,)`; for a single row, a string.
    """
    ids = tf.cast(as_tf_tensors(token_ids), tf.int32)
    kept = tf.cast(as_tf_tensors(padding_mask), tf.bool)
    for name in ("start", "end", "pad"):
        if getattr(tokenizer, f"{name}_token", None) is not None:
            kept &= ids != getattr(tokenizer, f"{name}_token_id")
    return tokenizer.detokenize(tf.ragged.boolean_mask(ids, kept))
