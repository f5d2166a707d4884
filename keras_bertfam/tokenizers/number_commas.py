"""Commas behind numbers, split off as in ALBERT's and XLNet's code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.types import TFRagged, TFTensor


def comma_splits(
    pieces: list[str], encode: Callable[[str], list[str]]
) -> dict[int, list[str]]:
    """Split each piece of a vocabulary that is a number with a comma behind it.

    Args:
        pieces: list of str, the vocabulary of a SentencePiece model.
        encode: function from a str to the list of its pieces.

    Returns:
        Dict from numbers of pieces to lists of str: those of the text without the
        comma, and the comma.
    """
    splits = {}
    for number, piece in enumerate(pieces):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            continue
        parts = encode(piece[:-1].replace("▁", ""))
        if piece[0] != "▁" and parts[0].startswith("▁"):  # within a word
            parts = [parts[0][1:], *parts[1:]]
        splits[number] = [*filter(None, parts), ","]
    return splits


class NumberCommas(tf.Module):
    """A SentencePiece model of `tf_text` whose numbers lose the comma behind them.

    Args:
        model: `tf_text.SentencepieceTokenizer`.
        size: int. Pieces of its vocabulary.
        splits: what `comma_splits` returns, not empty.
        to_token: function from a piece to an id or, if the model gives strings,
            to a str.
    """

    def __init__(
        self,
        model: Any,
        size: int,
        splits: dict[int, list[str]],
        to_token: Callable[[str], int | str],
    ) -> None:
        super().__init__()
        self.model, self.splits = model, tuple(splits)
        counts, starts = [1] * size, [0] * size
        tokens: list[int | str] = []
        after: list[int] = []
        for number, parts in splits.items():
            counts[number], starts[number] = len(parts), len(tokens)
            tokens += map(to_token, parts)
            sizes = [len(part.replace("▁", "").encode()) for part in parts]
            after += [sum(sizes[k + 1 :]) for k in range(len(sizes))]
        # NumPy arrays, of which each graph makes constants of its own.
        self._counts, self._starts, self._after = (
            np.array(values, "int32") for values in (counts, starts, after)
        )
        self._tokens = np.array(
            tokens, object if isinstance(tokens[0], str) else "int32"
        )

    def _split(self, tokens):
        """Split tokens, a ragged tensor.

        Returns:
            A tuple of the new tokens, and of tensors with an element for each: the
            number of the token that it comes from, its place in that, and how many
            of that token's bytes come after it.
        """
        # "▁in", "▁2019,", "▁a" -> "▁in", "▁2019", ",", "▁a", which come from the tokens
        # 0, 1, 1, 2, at the places 0, 0, 1, 0 of these, with 0, 1, 0, 0 bytes after.
        numbers = old = tokens.flat_values
        if old.dtype == tf.string:
            numbers = self.model.string_to_id(old)
        counts = tf.gather(self._counts, numbers)
        source = tf.repeat(tf.range(tf.size(counts)), counts)
        place = tf.range(tf.size(source)) - tf.gather(
            tf.cumsum(counts, exclusive=True), source
        )
        split = tf.gather(counts, source) > 1
        starts = tf.gather(self._starts, numbers)
        index = tf.where(split, tf.gather(starts, source) + place, 0)
        flat = tf.where(split, tf.gather(self._tokens, index), tf.gather(old, source))
        ends = tf.pad(tf.cumsum(counts), [[1, 0]])
        splits = tf.cast(tf.gather(ends, tokens.row_splits), tokens.row_splits.dtype)
        new = tf.RaggedTensor.from_row_splits(flat, splits, validate=False)
        after = tf.where(split, tf.gather(self._after, index), 0)
        return new, source, place, after

    def tokenize(self, texts: TFTensor) -> TFRagged:
        """Tokenize as the model does, texts of shape `(batch,)`."""
        return self._split(self.model.tokenize(texts))[0]

    def tokenize_with_offsets(
        self, texts: TFTensor
    ) -> tuple[TFRagged, TFRagged, TFRagged]:
        """Tokenize as the model does, texts of shape `(batch,)`, with offsets."""
        tokens, starts, ends = self.model.tokenize_with_offsets(texts)
        tokens, source, place, after = self._split(tokens)
        ends = tf.gather(ends.flat_values, source) - tf.cast(after, ends.dtype)
        first = tf.gather(starts.flat_values, source)
        before = tf.concat([first[:1], ends[:-1]], axis=0)
        starts = tf.where(place == 0, first, before)
        return tokens, tokens.with_flat_values(starts), tokens.with_flat_values(ends)

    def detokenize(self, tokens: TFTensor) -> TFTensor:
        """Read tokens as the model does."""
        return self.model.detokenize(tokens)
