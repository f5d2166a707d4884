"""The layer that leaves words out of rows."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.replacement import check_ids
from keras_bertfam.layers.corruption.selection import is_any, number_words
from keras_bertfam.layers.data.base import PreprocessingLayer, as_token_ids
from keras_bertfam.layers.data.seeding import RNG, content_seed
from keras_bertfam.types import Config, TFTensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DeleteWords(PreprocessingLayer):
    """Leaves words out of dense rows of ids, each by itself; one always stays.

    The tokens that stay move to the left, and padding comes after them.

    Args:
        deletion_rate: float in [0, 1]. Defaults to `0.6`.
        pad_token_id: int. The id of padding. Defaults to `0`.
        kept_token_ids: sequence of ints. Ids that always stay: usually those of [CLS]
            and [SEP]. They part words. Defaults to none.
        starts_word: sequence of booleans, one for each id, or `None`. Whether a token
            starts a word; without it every token does.
        seed: int. Used in calls without a seed. Defaults to `0`.

    Call arguments:
        token_ids: integer tensor of shape `(batch, length)` or `(length,)`.
        seed: integer tensor of shape `(2,)`. Defaults to a hash of `token_ids` and the
            layer's own seed.

    Returns:
        Dict of `token_ids`, int32, and `padding_mask`, bool and false for padding,
        both of the shape of the ids.

    Example:

    ```python
    from keras_bertfam.layers.corruption.delete_words import DeleteWords
    layer = DeleteWords(kept_token_ids=[101, 102])
    layer([[101, 7592, 1010, 2026, 3899, 102]], seed=[0, 1])
    ```

    Reference: [Wang et al., 2021](https://arxiv.org/abs/2104.06979), section 3.
    """

    def __init__(
        self,
        deletion_rate: float = 0.6,
        pad_token_id: int = 0,
        kept_token_ids: Sequence[int] = (),
        starts_word: Sequence[bool] | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= deletion_rate <= 1:
            raise ValueError(
                f"`deletion_rate` must be in [0, 1]. Received: {deletion_rate}."
            )
        self.deletion_rate = deletion_rate
        self.pad_token_id = pad_token_id
        self.kept_token_ids = [int(i) for i in kept_token_ids]
        self.starts_word = None if starts_word is None else [*map(bool, starts_word)]
        self.seed = seed
        if self.starts_word is not None:
            check_ids(len(self.starts_word), kept_token_ids=self.kept_token_ids)
        self._starts_word_table = np.array(self.starts_word or [], bool)

    def call(
        self, token_ids: TFTensor, seed: TFTensor | None = None
    ) -> dict[str, TFTensor]:
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
            return self._delete(ids, seed)
        return {name: x[0] for name, x in self._delete(ids[None], seed).items()}

    def _delete(self, ids, seed):
        # Example: [CLS] a ##b c [SEP]. The words a ##b and c draw .3 and .8, and with a
        # rate of .6 only c stays: [CLS] c [SEP] [PAD] [PAD]. Of .3 and .5, too.
        padding = ids == self.pad_token_id
        words = ~(padding | is_any(ids, self.kept_token_ids))
        starts = tf.ones_like(words)
        if self.starts_word is not None:
            starts = tf.gather(self._starts_word_table, ids)
        numbers, _ = number_words(words, starts)
        drawn = tf.random.stateless_uniform([tf.size(ids)], seed, alg=RNG)
        drawn = tf.where(words, tf.gather(drawn, numbers), -1.0)
        highest = tf.reduce_max(drawn, axis=1, keepdims=True)
        stays = ~padding & (~words | (drawn >= self.deletion_rate) | (drawn == highest))
        first = tf.argsort(tf.cast(~stays, tf.int32), axis=1, stable=True)
        ids = tf.gather(tf.where(stays, ids, self.pad_token_id), first, batch_dims=1)
        counts = tf.reduce_sum(tf.cast(stays, tf.int32), axis=1)
        mask = tf.sequence_mask(counts, tf.shape(ids)[1])
        return {"token_ids": ids, "padding_mask": tf.ensure_shape(mask, ids.shape)}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "deletion_rate": self.deletion_rate,
            "pad_token_id": self.pad_token_id,
            "kept_token_ids": self.kept_token_ids,
            "starts_word": self.starts_word,
            "seed": self.seed,
        }
