"""The layer that deletes words from rows."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.selection import number_words
from keras_bertfam.layers.corruption.word_layer import WordLayer
from keras_bertfam.layers.data.seeding import random_uniform
from keras_bertfam.types import TFTensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DeleteWords(WordLayer):
    """Deletes words from dense rows of ids, each independently; one always stays.

    The tokens that stay move to the left, and padding follows them.

    Args:
        deletion_rate: float in [0, 1]. The probability that a word is deleted.
            Defaults to `0.6`.
        **kwargs: those of `WordLayer`.

    Call arguments are those of `WordLayer`.

    Returns:
        Dict of `token_ids`, int32, and `padding_mask`, bool and false for padding,
        both of the shape of the ids.

    Example:

    ```python
    from keras_bertfam.layers.corruption.delete_words import DeleteWords
    layer = DeleteWords(unselectable_token_ids=[101, 102])
    layer([[101, 7592, 1010, 2026, 3899, 102]], seed=[0, 1])
    ```

    Reference: [Wang et al., 2021](https://arxiv.org/abs/2104.06979), section 3.
    """

    rate_name = "deletion_rate"

    def __init__(self, deletion_rate: float = 0.6, **kwargs: Any) -> None:
        self.deletion_rate = deletion_rate
        super().__init__(**kwargs)

    def draw(
        self,
        ids: TFTensor,
        seed: TFTensor,
        padding: TFTensor,
        words: TFTensor,
        starts: TFTensor,
    ) -> dict[str, TFTensor]:
        # Example: [CLS] a ##b c [SEP] and a rate of .6. The words a ##b and c draw .3
        # and .8; only c stays, as its number isn't below the rate: [CLS] c [SEP] [PAD]
        # [PAD]. With .3 and .5 c would stay too, since the highest number always does.
        numbers, _ = number_words(words, starts)
        drawn = random_uniform([tf.size(ids)], seed)
        drawn = tf.where(words, tf.gather(drawn, numbers), -1.0)
        highest = tf.reduce_max(drawn, axis=1, keepdims=True)
        stays = ~padding & (~words | (drawn >= self.deletion_rate) | (drawn == highest))
        first = tf.argsort(tf.cast(~stays, tf.int32), axis=1, stable=True)
        ids = tf.gather(tf.where(stays, ids, self.pad_token_id), first, batch_dims=1)
        counts = tf.reduce_sum(tf.cast(stays, tf.int32), axis=1)
        mask = tf.sequence_mask(counts, tf.shape(ids)[1])
        return {"token_ids": ids, "padding_mask": tf.ensure_shape(mask, ids.shape)}
