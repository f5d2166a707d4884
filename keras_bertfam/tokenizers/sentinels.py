"""Sentinels, by which T5 marks the spans that it leaves out."""

import re
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.presets.piece_models import USER_DEFINED, PieceModel
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer

_SENTINEL = re.compile(r"<extra_id_\d+>")


def sentinel(number: int) -> str:
    """Name the piece of a sentinel, counted from 0."""
    return f"<extra_id_{number}>"


def sentinel_ids(tokenizer: Tokenizer) -> list[int]:
    """List the ids of a tokenizer's sentinels, in the order in which they are used."""
    known = set(tokenizer.get_vocabulary())
    ids: list[int] = []
    while sentinel(len(ids)) in known:
        ids.append(tokenizer.token_to_id(sentinel(len(ids))))
    return ids


def with_sentinels(proto: bytes, count: int) -> bytes:
    """Add sentinels after a SentencePiece model's other pieces, the first one last.

    Args:
        proto: bytes. The model.
        count: int. How many there are to be in a model without any.
    """
    model = PieceModel()
    model.ParseFromString(proto)
    if any(piece.piece == sentinel(0) for piece in model.pieces):
        return proto
    for number in reversed(range(count)):
        model.pieces.add(
            piece=sentinel(number),
            score=0.0,
            type=USER_DEFINED,
        )
    content: bytes = model.SerializeToString()
    return content


class SentinelSpaces(tf.Module):
    """A SentencePiece model of `tf_text` whose sentinels take the space before them.

    Args:
        model: `tf_text.SentencepieceTokenizer`.
        pieces: list of str, its vocabulary.
    """

    def __init__(self, model: Any, pieces: list[str]) -> None:
        super().__init__()
        self.model = model
        # NumPy arrays, of which each graph makes constants of its own.
        self._space = np.array([piece == "▁" for piece in pieces])
        self._sentinel = np.array([_SENTINEL.fullmatch(p) is not None for p in pieces])

    def _kept(self, tokens):
        """Tell which tokens are no space before a sentinel, as a bool tensor."""
        ids = tokens.flat_values
        if ids.dtype == tf.string:
            ids = self.model.string_to_id(ids)
        row = tokens.value_rowids()
        followed = tf.gather(self._sentinel, ids[1:]) & (row[1:] == row[:-1])
        followed = tf.concat([followed, tf.zeros_like(ids[:1], tf.bool)], 0)
        return tokens.with_flat_values(~(tf.gather(self._space, ids) & followed))

    def tokenize(self, texts: TFTensor) -> TFRagged:
        """Tokenize as the model does, texts of shape `(batch,)`."""
        tokens = self.model.tokenize(texts)
        return tf.ragged.boolean_mask(tokens, self._kept(tokens))

    def tokenize_with_offsets(
        self, texts: TFTensor
    ) -> tuple[TFRagged, TFRagged, TFRagged]:
        """Tokenize as the model does, texts of shape `(batch,)`, with offsets."""
        parts = self.model.tokenize_with_offsets(texts)
        kept = self._kept(parts[0])
        tokens, starts, ends = (tf.ragged.boolean_mask(part, kept) for part in parts)
        return tokens, starts, ends

    def detokenize(self, tokens: TFTensor) -> TFTensor:
        """Read tokens as the model does."""
        return self.model.detokenize(tokens)
