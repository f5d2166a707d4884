"""The base of layers that draw words of dense rows of ids."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.corruption.replacement import check_ids
from keras_bertfam.layers.corruption.selection import is_any
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.data.base import (
    PreprocessingLayer,
    as_ids_like,
    as_token_ids,
)
from keras_bertfam.layers.data.seeding import content_seed
from keras_bertfam.types import Config, TFTensor


class WordLayer(PreprocessingLayer):
    """Base of layers that draw words of dense rows of ids.

    A subclass defines `draw`. Its `rate_name` is the name of the attribute that holds
    the share of words to draw.

    Args:
        pad_token_id: int. The id of padding.
        unselectable_token_ids: sequence of ints. Ids that belong to no word: usually
            those of [CLS] and [SEP].
        starts_word: sequence of booleans, one for each id, or `None`. Whether a token
            starts a word; without it every token does.
        seed: int. Used in calls without a seed.

    Call arguments:
        token_ids: integer tensor of shape `(batch, length)` or `(length,)`.
        seed: integer tensor of shape `(2,)`. Defaults to a hash of `token_ids` and the
            layer's own seed.
        span_ids: integer tensor of the shape of `token_ids`, or `None`. Neighbouring
            tokens with the same number, except 0, are a word.

    Returns:
        What `draw` returns, without the batch axis if there was none.
    """

    rate_name: str

    def __init__(
        self,
        pad_token_id: int = 0,
        unselectable_token_ids: Sequence[int] = (),
        starts_word: Sequence[bool] | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pad_token_id = pad_token_id
        self.unselectable_token_ids = [int(i) for i in unselectable_token_ids]
        self.starts_word = None if starts_word is None else [*map(bool, starts_word)]
        self.seed = seed
        rate = getattr(self, self.rate_name)
        if not 0 <= rate <= 1:
            raise ValueError(f"`{self.rate_name}` must be in [0, 1]. Received: {rate}.")
        if self.starts_word is not None:
            ids = self.unselectable_token_ids
            check_ids(len(self.starts_word), unselectable_token_ids=ids)
        self._starts_word_table = np.array(self.starts_word or [], bool)

    def call(
        self,
        token_ids: TFTensor,
        seed: TFTensor | None = None,
        span_ids: TFTensor | None = None,
    ) -> Any:
        ids = as_token_ids(token_ids)
        if ids.shape.rank not in (1, 2):
            raise ValueError(
                "`token_ids` must have the shape `(batch, length)` or `(length,)`. "
                f"Received: shape={ids.shape}."
            )
        if seed is None:
            seed = content_seed(ids, self.seed)
        seed = tf.ensure_shape(tf.cast(seed, tf.int64), [2])
        given = as_ids_like(ids, span_ids=span_ids)
        if ids.shape.rank == 2:
            return self.draw(ids, seed, *self._words(ids, **given))
        ids, given = ids[None], {name: x[None] for name, x in given.items()}
        drawn = self.draw(ids, seed, *self._words(ids, **given))
        return tf.nest.map_structure(lambda x: x[0], drawn)

    def draw(
        self,
        ids: TFTensor,
        seed: TFTensor,
        padding: TFTensor,
        words: TFTensor,
        starts: TFTensor,
    ) -> Any:
        """Compute the output of rows. Works in a graph.

        Args:
            ids: int32 tensor of shape `(batch, length)`.
            seed: int64 tensor of shape `(2,)`.
            padding: bool tensor of the shape of the ids, true for padding.
            words: bool tensor of that shape, true for tokens of words.
            starts: bool tensor of that shape, true for tokens that start a word.
        """
        raise TypeError(f"{type(self).__name__} must define `draw`.")

    def _words(self, ids, span_ids=None):
        """Tell which tokens are padding, belong to words, and start a word."""
        padding = ids == self.pad_token_id
        words = ~(padding | is_any(ids, self.unselectable_token_ids))
        starts = tf.ones_like(words)
        if self.starts_word is not None:
            starts = tf.gather(self._starts_word_table, ids)
        words, starts = MaskingStrategy().units(ids, words, starts, span_ids)
        return padding, words, starts

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            self.rate_name: getattr(self, self.rate_name),
            "pad_token_id": self.pad_token_id,
            "unselectable_token_ids": self.unselectable_token_ids,
            "starts_word": self.starts_word,
            "seed": self.seed,
        }
