"""The layer that draws from which tokens of its row each token is to be predicted."""

import functools
from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.selection import (
    count_selections,
    select_words,
)
from keras_bertfam.layers.corruption.word_layer import WordLayer
from keras_bertfam.layers.data.seeding import random_uniform, split_seed
from keras_bertfam.types import TFTensor

# Sets of hidden words that the tokens of a row choose among, as in the released code.
_MOST_DRAWS = 256


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SampleContexts(WordLayer):
    """Draws for each token of a row the tokens that it is to be predicted from.

    For each row as many sets of whole words are drawn as it has tokens, at most 256.
    Each token has one of these sets hidden from it, chosen at random, and itself. Of a
    row of `n` tokens, special ones included, a set has `max(1, round(n *
    hiding_rate))`, or fewer where the next word is too long.

    Args:
        hiding_rate: float in [0, 1]. Defaults to `0.5`.
        **kwargs: those of `WordLayer`. Padding is hidden from all, and
            `unselectable_token_ids` from none.

    Call arguments are those of `WordLayer`.

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

    rate_name = "hiding_rate"

    def __init__(self, hiding_rate: float = 0.5, **kwargs: Any) -> None:
        self.hiding_rate = hiding_rate
        super().__init__(**kwargs)

    def draw(
        self,
        ids: TFTensor,
        seed: TFTensor,
        padding: TFTensor,
        words: TFTensor,
        starts: TFTensor,
    ) -> TFTensor:
        # Example: [CLS] a ##b c [SEP] and a rate of .5, so 2 tokens are hidden (round(5
        # * .5), half to even). The sets drawn are {a, ##b}, {c}, ...: after c, the
        # word a ##b is too long. The token c may have {a, ##b} hidden from it, and c.
        lengths, selectable = (
            tf.reduce_sum(tf.cast(x, tf.int32), 1) for x in (~padding, words)
        )
        drawn, chosen = split_seed(seed, 2)
        counts = count_selections(lengths, selectable, self.hiding_rate, "bert", drawn)
        batch, length = tf.unstack(tf.shape(ids))
        draws = tf.minimum(length, _MOST_DRAWS)
        copied = functools.partial(tf.repeat, repeats=draws, axis=0)
        sets = select_words(copied(words), copied(starts), copied(counts), drawn)
        sets = tf.reshape(sets, [batch, draws, length])
        # A row that is padded has as many sets as it has tokens.
        share = random_uniform([batch, length], chosen)
        own = tf.cast(tf.minimum(lengths, draws), tf.float32)[:, None]
        choice = tf.cast(share * own, tf.int32)
        hidden = tf.gather(sets, choice, axis=1, batch_dims=1)
        hidden |= tf.eye(length, dtype=tf.bool) & words[:, None]
        seen = ~(hidden | padding[:, None])
        return tf.ensure_shape(seen, [*ids.shape, ids.shape[-1]])
