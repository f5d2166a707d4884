"""The layer that masks token ids for masked language models."""

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.layers.preprocessing.base import PreprocessingLayer, as_token_ids
from keras_bertfam.layers.preprocessing.seeding import RNG, content_seed
from keras_bertfam.layers.preprocessing.selection import (
    count_selections,
    fill_slots,
    is_any,
    max_selections,
    replace_tokens,
    select_tokens,
    select_words,
)


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskTokens(PreprocessingLayer):
    """Masks dense batches of token ids, as BERT and RoBERTa do.

    Use it inside `Dataset.map`, after batching. It draws nothing from a global
    generator: the same ids and seed give the same masks everywhere.

    A row of `n` tokens (padding excluded, special tokens included) gets
    `min(max_selections, max(1, round(n * selection_rate)))` selections by the
    `"bert"` rule, half rounding to even, or
    `min(max_selections, int(n * selection_rate + u))`, with `u` uniform in
    [0, 1), by the `"fairseq"` rule; never more than it has selectable tokens.
    A `selection_rate` of 0 therefore still selects one token by the first rule.

    Args:
        vocabulary_size: int. Number of token ids.
        mask_token_id: int. The id put in place of masked tokens.
        pad_token_id: int. The id of padding, never selected. Defaults to `0`.
        unselectable_token_ids: sequence of ints. Ids that are never selected:
            usually those of [CLS] and [SEP]. Defaults to none.
        selection_rate: float in [0, 1]. Defaults to `0.15`.
        max_selections: int or `None`. The number of slots out and the most
            selections in a row. Defaults to what `count` gives a full row,
            whose length must then be static.
        mask_token_rate: float. Share of the selected tokens replaced by the
            mask token. Defaults to `0.8`.
        random_token_rate: float. Share of the selected tokens replaced by a
            random one; the rest are kept. Defaults to `0.1`.
        random_token_ids: sequence of ints or `None`. The ids that random
            replacements are drawn from, uniformly. Defaults to the whole
            vocabulary, as in BERT.
        starts_word: sequence of `vocabulary_size` booleans, or `None`. Whether
            a token starts a word. If given, whole words are selected: in random
            order, each that doesn't exceed what is left of the row's count.
            A word never extends across a padding or unselectable token.
        count: `"bert"` or `"fairseq"`. Defaults to `"bert"`.
        seed: int. Used in calls without a seed. Defaults to `0`.

    Call arguments:
        token_ids: integer tensor of shape `(batch, length)` or `(length,)`.
        seed: integer tensor of shape `(2,)`, such as one of `seeded_passes`.
            Defaults to a hash of `token_ids` and the layer's own seed.

    Returns:
        A dict of `tf.Tensor`s, without the batch axis if there was none:
        `token_ids`, int32 `(batch, length)`, the masked ids;
        `mask_positions`, int32 `(batch, max_selections)`, ascending;
        `mask_ids`, int32 of that shape, the original ids; and `mask_weights`,
        float32 of that shape, 1 for a selection and 0 for an empty slot, whose
        position and id are 0.

    Raises:
        ValueError: If an argument is out of its range, if `token_ids` isn't a
            dense integer tensor of rank 1 or 2, or if its length isn't static
            and `max_selections` is `None`.

    Example:

    ```python
    masker = keras_bertfam.layers.MaskTokens(
        vocabulary_size=30522, mask_token_id=103, unselectable_token_ids=[101, 102]
    )
    masker([[101, 7592, 1010, 2026, 3899, 102, 0, 0]], seed=[0, 1])
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1.
    """

    def __init__(
        self,
        vocabulary_size,
        mask_token_id,
        pad_token_id=0,
        unselectable_token_ids=(),
        selection_rate=0.15,
        max_selections=None,
        mask_token_rate=0.8,
        random_token_rate=0.1,
        random_token_ids=None,
        starts_word=None,
        count="bert",
        seed=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.mask_token_id = mask_token_id
        self.pad_token_id = pad_token_id
        self.unselectable_token_ids = [int(i) for i in unselectable_token_ids]
        self.selection_rate = selection_rate
        self.max_selections = max_selections
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self.random_token_ids = _optional_list(random_token_ids, int)
        self.starts_word = _optional_list(starts_word, bool)
        self.count = count
        self.seed = seed
        self._check_arguments()
        self._starts_word_table = np.array(self.starts_word or [], bool)

    def _check_arguments(self):
        for name in ("selection_rate", "mask_token_rate", "random_token_rate"):
            rate = getattr(self, name)
            if not 0 <= rate <= 1:
                raise ValueError(f"`{name}` must be in [0, 1]. Received: {rate}.")
        if self.mask_token_rate + self.random_token_rate > 1 + 1e-6:
            raise ValueError(
                "`mask_token_rate + random_token_rate` must be at most 1. Received: "
                f"{self.mask_token_rate} + {self.random_token_rate}."
            )
        for name in ("mask_token_id", "unselectable_token_ids", "random_token_ids"):
            value = getattr(self, name)
            ids = np.atleast_1d([] if value is None else value)
            if ((ids < 0) | (ids >= self.vocabulary_size)).any():
                raise ValueError(
                    f"`{name}` must be in [0, {self.vocabulary_size}), the "
                    f"vocabulary. Received: {value}."
                )
        if self.random_token_ids == []:
            raise ValueError("`random_token_ids` must not be empty.")
        if self.max_selections is not None and self.max_selections < 1:
            raise ValueError(
                "`max_selections` must be positive or `None`. "
                f"Received: {self.max_selections}."
            )
        if self.count not in ("bert", "fairseq"):
            raise ValueError(
                f'`count` must be "bert" or "fairseq". Received: {self.count!r}.'
            )
        if self.starts_word and len(self.starts_word) != self.vocabulary_size:
            raise ValueError(
                f"`starts_word` must have vocabulary_size={self.vocabulary_size} "
                f"elements. Received: {len(self.starts_word)}."
            )

    def call(self, token_ids, seed=None):
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
            return self._mask(ids, seed)
        return {name: x[0] for name, x in self._mask(ids[None], seed).items()}

    def _mask(self, ids, seed):
        slots = self._num_slots(ids.shape[1])
        seeds = tf.unstack(tf.random.split(seed, 3, alg=RNG), 3)
        padding = ids == self.pad_token_id
        candidates = ~(padding | is_any(ids, self.unselectable_token_ids))
        lengths = tf.reduce_sum(tf.cast(~padding, tf.int32), 1)
        counts = count_selections(lengths, self.selection_rate, self.count, seeds[0])
        counts = tf.minimum(counts, slots)
        if self.starts_word is None:
            selected = select_tokens(candidates, counts, slots, seeds[1])
        else:
            starts = tf.gather(self._starts_word_table, ids)
            selected = select_words(candidates, starts, counts, seeds[1])
        where = tf.where(selected)
        originals = tf.gather_nd(ids, where)
        replaced = replace_tokens(
            originals,
            seeds[2],
            self.mask_token_id,
            self.random_token_ids or self.vocabulary_size,
            self.mask_token_rate,
            self.random_token_rate,
        )
        positions, targets, weights = fill_slots(
            where, originals, tf.shape(ids, tf.int64)[0], slots
        )
        return {
            "token_ids": tf.tensor_scatter_nd_update(ids, where, replaced),
            "mask_positions": positions,
            "mask_ids": targets,
            "mask_weights": weights,
        }

    def _num_slots(self, length):
        if self.max_selections is not None:
            return self.max_selections
        if length is None:
            raise ValueError(
                "`max_selections` must be given where the length of `token_ids` "
                "isn't static. Received: max_selections=None."
            )
        return max_selections(length, self.selection_rate, self.count)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "vocabulary_size": self.vocabulary_size,
                "mask_token_id": self.mask_token_id,
                "pad_token_id": self.pad_token_id,
                "unselectable_token_ids": self.unselectable_token_ids,
                "selection_rate": self.selection_rate,
                "max_selections": self.max_selections,
                "mask_token_rate": self.mask_token_rate,
                "random_token_rate": self.random_token_rate,
                "random_token_ids": self.random_token_ids,
                "starts_word": self.starts_word,
                "count": self.count,
                "seed": self.seed,
            }
        )
        return config


def _optional_list(values, kind):
    return None if values is None else [kind(v) for v in values]
