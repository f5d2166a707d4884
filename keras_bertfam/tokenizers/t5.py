"""T5's tokenizer, and its sentinels, which stand for spans that are left out."""

import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.presets.tokenizer_formats.piece_models import (
    USER_DEFINED,
    PieceModel,
)
from keras_bertfam.tokenizers.sentence_piece import PlainSentencePiece
from keras_bertfam.types import Config, Path, TFRagged, TFTensor, Tokenizer

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
    """Add sentinels after a SentencePiece model's other pieces, in reversed order.

    Args:
        proto: bytes. The model.
        count: int. How many sentinels to add. A model that has sentinels keeps its own.
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
    """A SentencePiece model of `tf_text` whose sentinels include the space before them.

    Args:
        model: `tf_text.SentencepieceTokenizer`.
        pieces: list of str, its vocabulary.
    """

    def __init__(self, model: Any, pieces: list[str]) -> None:
        super().__init__()
        self.model = model
        # NumPy arrays: each graph makes its own constants from them.
        self._space = np.array([piece == "▁" for piece in pieces])
        self._sentinel = np.array([_SENTINEL.fullmatch(p) is not None for p in pieces])

    def _kept(self, tokens):
        """Tell which tokens stay: all except a space before a sentinel."""
        ids = tokens.flat_values
        if ids.dtype == tf.string:
            ids = self.model.string_to_id(ids)
        row = ragged.row_ids(tokens)
        followed = tf.gather(self._sentinel, ids[1:]) & (row[1:] == row[:-1])
        followed = tf.concat([followed, tf.zeros_like(ids[:1], tf.bool)], 0)
        return ~(tf.gather(self._space, ids) & followed)

    def tokenize(self, texts: TFTensor) -> TFRagged:
        """Tokenize as the model does, texts of shape `(batch,)`."""
        tokens = self.model.tokenize(texts)
        return ragged.keep_in_rows(tokens, self._kept(tokens))

    def tokenize_with_offsets(
        self, texts: TFTensor
    ) -> tuple[TFRagged, TFRagged, TFRagged]:
        """Tokenize as the model does, texts of shape `(batch,)`, with offsets."""
        parts = self.model.tokenize_with_offsets(texts)
        kept = self._kept(parts[0])
        tokens, starts, ends = (ragged.keep_in_rows(part, kept) for part in parts)
        return tokens, starts, ends

    def detokenize(self, tokens: TFTensor) -> TFTensor:
        """Read tokens as the model does."""
        return self.model.detokenize(tokens)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class T5Tokenizer(PlainSentencePiece):
    """T5's tokenizer, with its sentinels `<extra_id_0>`, `<extra_id_1>`, ...

    T5's SentencePiece model has 32,000 pieces and no sentinels. The sentinels are added
    after these in reversed order, so that `<extra_id_0>` has the id 32,099. A model
    that has sentinels already keeps its own. In texts a sentinel includes the space
    before it. There is no start token: rows begin with text, and the decoder begins
    with padding.

    Args:
        proto: path of a `spiece.model`, or its content as bytes.
        sentinels: int. How many sentinels a model without any gets. Defaults to `100`.
        **kwargs: arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Returns:
        Called on strings of shape `(batch,)`, a `tf.RaggedTensor` of shape
        `(batch, None)`, also in eager mode. Called on a single string, a tensor of
        shape `(None,)`.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 60, family="t5", sentinels=20)
    tokenizer(["a <extra_id_0> sat"])
    ```

    Reference: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.1.
    """

    special_token_names = {"pad": "<pad>", "end": "</s>"}
    start_token = None
    start_token_id = None

    def __init__(
        self, proto: Path | bytes | None = None, sentinels: int = 100, **kwargs: Any
    ) -> None:
        if sentinels < 0:
            raise ValueError(
                f"`sentinels` must not be negative. Received: {sentinels}."
            )
        self.sentinels = sentinels
        super().__init__(proto, **kwargs)

    def set_proto(self, proto: Path | bytes | None) -> None:
        super().set_proto(proto)
        if self.proto is None:
            return
        complete = with_sentinels(self.proto, self.sentinels)
        if complete != self.proto:
            super().set_proto(complete)
        self._sentence_piece = SentinelSpaces(
            self._sentence_piece, self.model_vocabulary()
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "sentinels": self.sentinels}
