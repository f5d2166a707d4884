"""The layer that masks each row at its own rate, from hardly any token to all."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.word_layer import WordLayer
from keras_bertfam.layers.data.seeding import random_uniform, split_seed
from keras_bertfam.types import Config, TFTensor

NO_TARGET = -1


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DiffuseTokens(WordLayer):
    """Masks each row of ids at its own rate, for masked diffusion.

    The rate `p` is uniform from `lowest_rate` to 1. Each token of the row is masked
    independently with probability `p`. The `n` rates of a batch are spread evenly: one
    lies in each `n`-th of the range. So all batches are about equally hard.

    Args:
        mask_token_id: int. The id that masked tokens become.
        lowest_rate: float in [0, 1]. Defaults to `0.001`.
        **kwargs: those of `WordLayer`, without `starts_word`.

    Call arguments are those of `WordLayer`.

    Returns:
        Dict of tensors of the shape of the ids: `token_ids`, int32, with masks;
        `targets`, int32, the original ids, and -1 for tokens that are never masked; and
        `weights`, float32, `1 / p` of masked tokens and 0 of all others.

    Example:

    ```python
    from keras_bertfam.layers.corruption.diffuse_tokens import DiffuseTokens
    layer = DiffuseTokens(103, unselectable_token_ids=[101, 102])
    layer([[101, 7592, 1010, 2026, 3899, 102]], seed=[0, 1])
    ```

    References: [Nie et al., 2025](https://arxiv.org/abs/2502.09992), equation 3;
    [Sahoo et al., 2024](https://arxiv.org/abs/2406.07524), whose released code spreads
    the rates of a batch.
    """

    rate_name = "lowest_rate"

    def __init__(
        self, mask_token_id: int, lowest_rate: float = 0.001, **kwargs: Any
    ) -> None:
        self.mask_token_id = mask_token_id
        self.lowest_rate = lowest_rate
        super().__init__(**kwargs)

    def draw(
        self,
        ids: TFTensor,
        seed: TFTensor,
        padding: TFTensor,
        words: TFTensor,
        starts: TFTensor,
    ) -> dict[str, TFTensor]:
        # Example: two rows draw .4 and .8, and the first gets the upper half of the
        # range. The rates are (1 + .4) / 2 = .7 and (0 + .8) / 2 = .4. The second row's
        # tokens draw .1, .6, .5: the first of them is masked, with the weight 1 / .4 =
        # 2.5.
        for_rates, for_tokens = split_seed(seed, 2)
        rows = tf.shape(ids)[0]
        drawn = random_uniform([rows + 1], for_rates)
        first = tf.cast(drawn[0] * tf.cast(rows, tf.float32), tf.int32)
        parts = (first + tf.range(rows)) % tf.maximum(rows, 1)
        share = (tf.cast(parts, tf.float32) + drawn[1:]) / tf.cast(rows, tf.float32)
        rates = (self.lowest_rate + (1 - self.lowest_rate) * share)[:, None]
        drawn = random_uniform(tf.shape(ids), for_tokens)
        masked = words & (drawn < rates)
        return {
            "token_ids": tf.where(masked, self.mask_token_id, ids),
            "targets": tf.where(words, ids, NO_TARGET),
            # A rate of 0 masks nothing.
            "weights": tf.math.divide_no_nan(tf.cast(masked, tf.float32), rates),
        }

    def get_config(self) -> Config:
        return {**super().get_config(), "mask_token_id": self.mask_token_id}
