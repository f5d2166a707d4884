"""The layer that draws from which tokens of its row each token is to be predicted."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.replacement import check_ids
from keras_bertfam.layers.corruption.selection import (
    count_selections,
    is_any,
    select_words,
)
from keras_bertfam.layers.data.base import PreprocessingLayer, as_token_ids
from keras_bertfam.layers.data.seeding import RNG, content_seed
from keras_bertfam.types import Config, TFTensor

# Sets of hidden words that the tokens of a row choose among, as in the released code.
_MOST_DRAWS = 256


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SampleContexts(PreprocessingLayer):
    """Draws for each token of a row the tokens that it is to be predicted from.

    For each row as many sets of whole words are drawn as it has tokens, at most 256.
    Each token has one of these sets hidden from it, chosen at random, and itself. Of a
    row of `n` tokens, special ones included, a set has `max(1, round(n *
    hiding_rate))`, or fewer where the next word is too long.

    Args:
        hiding_rate: float in [0, 1]. Defaults to `0.5`.
        pad_token_id: int. The id of padding, which is hidden from all. Defaults to `0`.
        unselectable_token_ids: sequence of ints. Ids that are never hidden: usually
            those of [CLS] and [SEP]. Defaults to none.
        starts_word: sequence of booleans, one for each id, or `None`. Whether a token
            starts a word; without it every token does.
        seed: int. Used in calls without a seed. Defaults to `0`.

    Call arguments:
        token_ids: integer tensor of shape `(batch, length)` or `(length,)`.
        seed: integer tensor of shape `(2,)`. Defaults to a hash of `token_ids` and the
            layer's own seed.

    Returns:
        bool tensor of shape `(batch, length, length)`, without the batch axis if there
        was none: true where the token of the second axis is predicted from that of the
        third.

    Example:

    ```python
    from keras_bertfam.layers.corruption.sample_contexts import SampleContexts
    layer = SampleContexts(unselectable_token_ids=[101, 102])
    layer([[101, 7592, 1010, 2026, 102, 0]], seed=[0, 1]).shape  # (1, 6, 6)
    ```

    Reference: [Xiao et al., 2022](https://arxiv.org/abs/2205.12035), section 3.3, and
    its released code.
    """

    def __init__(
        self,
        hiding_rate: float = 0.5,
        pad_token_id: int = 0,
        unselectable_token_ids: Sequence[int] = (),
        starts_word: Sequence[bool] | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= hiding_rate <= 1:
            raise ValueError(
                f"`hiding_rate` must be in [0, 1]. Received: {hiding_rate}."
            )
        self.hiding_rate = hiding_rate
        self.pad_token_id = pad_token_id
        self.unselectable_token_ids = [int(i) for i in unselectable_token_ids]
        self.starts_word = None if starts_word is None else [*map(bool, starts_word)]
        self.seed = seed
        if self.starts_word is not None:
            check_ids(
                len(self.starts_word), unselectable_token_ids=unselectable_token_ids
            )
        self._starts_word_table = np.array(self.starts_word or [], bool)

    def call(self, token_ids: TFTensor, seed: TFTensor | None = None) -> TFTensor:
        ids = as_token_ids(token_ids)
        if ids.shape.rank not in (1, 2):
            raise ValueError(
                "`token_ids` must have the shape `(batch, length)` or `(length,)`. "
                f"Received: shape={ids.shape}."
            )
        if seed is None:
            seed = content_seed(ids, self.seed)
        seed = tf.ensure_shape(tf.cast(seed, tf.int64), [2])
        if ids.shape.rank == 2:
            return self._sample(ids, seed)
        return self._sample(ids[None], seed)[0]

    def _sample(self, ids, seed):
        # Example: [CLS] a ##b c [SEP] and a rate of .5, so 2 tokens are hidden (round(5
        # * .5), half to even). The sets drawn are {a, ##b}, {c}, ...: after c, the
        # word a ##b is too long. The token c may have {a, ##b} hidden from it, and c.
        padding = ids == self.pad_token_id
        candidates = ~(padding | is_any(ids, self.unselectable_token_ids))
        starts = tf.ones_like(candidates)
        if self.starts_word is not None:
            starts = tf.gather(self._starts_word_table, ids)
        lengths, selectable = (
            tf.reduce_sum(tf.cast(x, tf.int32), 1) for x in (~padding, candidates)
        )
        words, chosen = tf.unstack(tf.random.split(seed, 2, alg=RNG), 2)
        counts = count_selections(lengths, selectable, self.hiding_rate, "bert", words)
        batch, length = tf.unstack(tf.shape(ids))
        draws = tf.minimum(length, _MOST_DRAWS)
        rows = (tf.repeat(x, draws, axis=0) for x in (candidates, starts, counts))
        sets = tf.reshape(select_words(*rows, words), [batch, draws, length])
        choice = tf.random.stateless_uniform(
            [batch, length], chosen, 0, draws, tf.int32, alg=RNG
        )
        hidden = tf.gather(sets, choice, axis=1, batch_dims=1)
        hidden |= tf.eye(length, dtype=tf.bool) & candidates[:, None]
        seen = ~(hidden | padding[:, None])
        return tf.ensure_shape(seen, [*ids.shape, ids.shape[-1]])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "hiding_rate": self.hiding_rate,
            "pad_token_id": self.pad_token_id,
            "unselectable_token_ids": self.unselectable_token_ids,
            "starts_word": self.starts_word,
            "seed": self.seed,
        }
