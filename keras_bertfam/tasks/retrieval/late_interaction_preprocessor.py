"""Make rows of queries and passages whose tokens are compared one by one."""

import dataclasses
import string
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.labels import finite_numbers
from keras_bertfam.layers.data.pairs.passages import Ranges, TitledRows
from keras_bertfam.tasks.retrieval.dual_encoder_preprocessor import (
    DualEncoderPreprocessor,
)
from keras_bertfam.types import Config, TFTensor, Tokenizer

# The first two tokens without a meaning, which BERT's vocabularies reserve for users.
_MARKERS = {"query": "[unused0]", "passage": "[unused1]"}


@dataclasses.dataclass(frozen=True)
class ScoredRows(TitledRows):
    """Lay out rows as `TitledRows` does, and mark the tokens that are compared.

    Args:
        filler: int or `None`. A token that fills rows up. It is compared, too.
        attended: bool. Whether other tokens attend to the filling ones.
        skipped: tuple of ints, tokens that aren't compared.
    """

    filler: int | None = None
    attended: bool = False
    skipped: tuple[int, ...] = ()

    def lay_out(
        self,
        tokens: TFTensor,
        texts: list[Ranges],
        title: Ranges | None = None,
        buckets: list[int] | None = None,
    ) -> dict[str, TFTensor]:
        full = self.filler is not None
        rows = super().lay_out(tokens, texts, title, None if full else buckets)
        ids, inside = rows["token_ids"], rows["padding_mask"]
        scored = inside
        if full:
            rows["token_ids"] = tf.where(inside, ids, self.filler)
            scored = tf.ones_like(inside)
            rows["padding_mask"] = scored if self.attended else inside
        if self.skipped:
            is_skipped = ids[..., None] == tf.constant(self.skipped)
            scored &= ~tf.reduce_any(is_skipped, -1)
        return {**rows, "scored": scored}


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LateInteractionPreprocessor(DualEncoderPreprocessor):
    """Makes rows of queries and of passages for `LateInteraction`.

    It makes the rows of `DualEncoderPreprocessor` with three changes:

    - a marker after the start token tells the kind of row: `[start] [Q] query [end]`;
    - queries are filled up with mask tokens. Other tokens don't attend to them, but
    they are compared like words: the model can add what the query lacks;
    - punctuation of passages isn't compared.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. Tokens of a passage, special ones and its title's
            included. Defaults to `220`.
        query_length: int or `None`. Tokens of a query, special ones included. Defaults
            to `32`, or `sequence_length` if that is less.
        query_marker: str or `None`. A token of the vocabulary. `None` takes
            `"[unused0]"` if the vocabulary has it, and otherwise no marker; `""` for no
            marker.
        passage_marker: the same for passages, with `"[unused1]"`.
        fill_queries: bool or `None`. Whether queries are filled up with mask tokens.
            `None` fills them if the tokenizer has a mask token.
        attend_to_filling: bool. Whether other tokens attend to those that fill queries
            up. Defaults to `False`.
        skipped_tokens: list of str or `None`. Tokens of the vocabulary that aren't
            compared in passages. `None` for the 32 punctuation characters of ASCII,
            also with a vocabulary's mark for a space or the end of a word.
        **kwargs: other arguments of `DualEncoderPreprocessor`.

    Call arguments:
        x: see `DualEncoderPreprocessor`.
        y: `None`; or a teacher's scores, float `(batch, count)`, one for each passage.
        sample_weight: numbers, one for each query, or `None`.

    Returns:
        As `DualEncoderPreprocessor`, with `query_scored` and `passage_scored` in the
        dict: bool, of the shape of `query_token_ids` and `passage_token_ids`. A given
        `y` is returned as float32.

    Raises:
        ValueError: for an argument out of its range, or a token that isn't in the
            vocabulary.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.LateInteractionPreprocessor(tokenizer)
    x, y, weight = preprocessor((["Who purrs?"], ["A cat."]), None)
    ```

    References: [Khattab and Zaharia, 2020](https://arxiv.org/abs/2004.12832), section
    3.2; lengths as in its released code.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 220,
        query_length: int | None = None,
        query_marker: str | None = None,
        passage_marker: str | None = None,
        fill_queries: bool | None = None,
        attend_to_filling: bool = False,
        skipped_tokens: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if query_length is None:
            query_length = min(32, sequence_length)
        for name, length in (
            ("sequence_length", sequence_length),
            ("query_length", query_length),
        ):
            if length < 4:
                raise ValueError(f"`{name}` must be at least 4. Received: {length}.")
        self.markers = {"query": query_marker, "passage": passage_marker}
        self.fill_queries = fill_queries
        self.attend_to_filling = attend_to_filling
        if skipped_tokens is not None:
            skipped_tokens = [str(token) for token in skipped_tokens]
        self.skipped_tokens = skipped_tokens
        self._token_ids: dict[str, Any] = {}
        super().__init__(tokenizer, sequence_length, query_length, **kwargs)

    def build(self, input_shape: Any = None) -> None:
        known = {x: k for k, x in enumerate(self.tokenizer.get_vocabulary())}
        self._token_ids = {kind: self._marker(kind, known) for kind in self.markers}
        self._token_ids["skipped"] = self._skipped(known)
        super().build(input_shape)

    def _buckets(self, kind):
        # Queries that are filled up have one length.
        return None if self.rows_of(kind).filler is not None else super()._buckets(kind)

    def rows_of(self, kind: str) -> ScoredRows:
        if not self._token_ids:  # a `.keras` file loads the vocabulary later
            self.build()
        rows = super().rows_of(kind)
        settings: dict[str, Any] = {"skipped": tuple(self._token_ids["skipped"])}
        if kind == "query":
            settings = {"filler": self._filler(), "attended": self.attend_to_filling}
        length, marker = rows.sequence_length, self._token_ids[kind]
        return ScoredRows(self.tokenizer, self._layout, length, marker, **settings)

    def _marker(self, kind, known):
        token = self.markers[kind]
        if token is None:
            token = _MARKERS[kind] if _MARKERS[kind] in known else ""
        return _id_of(token, f"{kind}_marker", known) if token else None

    def _filler(self):
        mask = getattr(self.tokenizer, "mask_token_id", None)
        if self.fill_queries and mask is None:
            raise ValueError(
                "`fill_queries` must be `False` or `None` with a tokenizer without a "
                f"mask token. Received: {self.fill_queries}."
            )
        return None if self.fill_queries is False else mask

    def _skipped(self, known):
        if self.skipped_tokens is not None:
            return [_id_of(x, "skipped_tokens", known) for x in self.skipped_tokens]
        plain = ((token.removesuffix("</w>"), k) for token, k in known.items())
        marks = {*string.punctuation}
        return [k for token, k in plain if (token.lstrip("▁Ġ") or token) in marks]

    def targets(self, y: Any, shape: tf.TensorShape) -> TFTensor:
        scores = finite_numbers(tf.convert_to_tensor(y), "y")
        expected = shape if shape.rank == 2 else shape.concatenate([1])
        if not scores.shape.is_compatible_with(expected) or expected[1] < 2:
            raise ValueError(
                "`y` must have a teacher's score for each passage of rows of two or "
                f"more. Received: shape {scores.shape}, for passages {shape}."
            )
        return tf.cast(scores, tf.float32)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "query_marker": self.markers["query"],
            "passage_marker": self.markers["passage"],
            "fill_queries": self.fill_queries,
            "attend_to_filling": self.attend_to_filling,
            "skipped_tokens": self.skipped_tokens,
        }


def _id_of(token, name, known):
    if token not in known:
        raise ValueError(
            f"`{name}` must be in the tokenizer's vocabulary. Received: {token!r}."
        )
    return known[token]
