"""The layer that draws for each token which tokens of its row predict it."""

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

# The most sets of hidden words of a row, as in the released code.
_MOST_DRAWS = 256


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SampleContexts(WordLayer):
    """Draws for each token of a row the tokens from which it is predicted.

    The layer draws as many sets of whole words as the row has tokens, at most 256. For
    each token it picks one set at random. The set's tokens are hidden from the token,
    and a token of a word is also hidden from itself. In a row of `n` tokens, special
    ones included, a set has `max(1, round(n * hiding_rate))` tokens, or fewer if the
    next word doesn't fit.

    Args:
        hiding_rate: float in [0, 1]. Defaults to `0.5`.
        **kwargs: those of `WordLayer`. Padding is hidden from all tokens, and
            `unselectable_token_ids` from none.

    Call arguments are those of `WordLayer`.

    Returns:
        bool tensor of shape `(batch, length, length)`, without the batch axis if there
        was none. Element `(b, i, j)` tells whether token `i` is predicted from token
        `j`.

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
        # Example: [CLS] a ##b c [SEP] and a rate of .5. A set has round(5 * .5) = 2
        # tokens, half rounding to even. The sets drawn are {a, ##b}, {c}, ...: after c
        # the word a ##b doesn't fit. The token c can get the set {a, ##b}: these are
        # hidden from it, and c itself.
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
        # A padded row has as many sets as it has tokens without padding.
        share = random_uniform([batch, length], chosen)
        own = tf.cast(tf.minimum(lengths, draws), tf.float32)[:, None]
        choice = tf.cast(share * own, tf.int32)
        hidden = tf.gather(sets, choice, axis=1, batch_dims=1)
        hidden |= tf.eye(length, dtype=tf.bool) & words[:, None]
        seen = ~(hidden | padding[:, None])
        return tf.ensure_shape(seen, [*ids.shape, ids.shape[-1]])
