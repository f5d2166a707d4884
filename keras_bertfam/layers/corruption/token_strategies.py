"""Strategies of `MaskTokens` that select single tokens, and their base class."""

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.layers.corruption.selection import (
    select_smoothed,
    select_tokens,
)


class MaskingStrategy:
    """Base of the strategies: small objects that `MaskTokens` asks for positions.

    Attributes:
        uses_words: bool. Whether it selects words, which without `starts_word`
            are the single tokens.
    """

    uses_words = False

    def check(self, vocabulary_size, starts_word):
        """Raises a `ValueError` if the strategy doesn't fit the vocabulary."""

    def max_selections(self, count):
        """The slots to provide where a full row gets `count` selections."""
        return count

    def units(self, candidates, starts, span_ids):
        """Returns which tokens may be selected, and which of them start a unit.

        Args:
            candidates: bool tensor of shape `(batch, length)`.
            starts: bool tensor of that shape: which tokens start a word.
            span_ids: int32 tensor of that shape or `None`.
        """
        return candidates, starts

    def select(self, token_ids, candidates, starts, counts, max_count, seed):
        """Returns the selections as a bool tensor of shape `(batch, length)`.

        Args:
            token_ids: int32 tensor of shape `(batch, length)`.
            candidates: bool tensor of that shape, from `units`.
            starts: bool tensor of that shape, from `units`.
            counts: int32 tensor of shape `(batch,)`: tokens to select.
            max_count: int. An upper bound of `counts`.
            seed: integer tensor of shape `(2,)`.
        """
        raise TypeError(f"{type(self).__name__} must define `select`.")

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable("keras_bertfam")
class IndependentTokens(MaskingStrategy):
    """Single tokens, all sets of them equally likely. `MaskTokens`' default.

    Example:

    ```python
    keras_bertfam.layers.MaskTokens(
        30522, mask_token_id=103, strategy=keras_bertfam.layers.IndependentTokens()
    )
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805),
    section 3.1.
    """

    def units(self, candidates, starts, span_ids):
        return candidates, candidates

    def select(self, token_ids, candidates, starts, counts, max_count, seed):
        return select_tokens(candidates, counts, max_count, seed)


@keras.saving.register_keras_serializable("keras_bertfam")
class SmoothedTokens(MaskingStrategy):
    """Single tokens, the rarer the likelier: weights `max(count, 1)^-smoothing`.

    Tokens are selected one after the other, each in proportion to the weights of
    those that are left.

    Args:
        token_counts: sequence of numbers, one for each id of the vocabulary: how
            often it occurs in the corpus.
        smoothing: float, at least 0. Defaults to `0.7`.
        budget: `"row"` or `"batch"`. `"batch"`, as in DistilBERT's code, selects
            the sum of the rows' counts among all rows together, so that a row
            of rare tokens gets more selections and another perhaps none; no row
            gets more than `max_selections`, which is by default twice that of
            `"row"`. Defaults to `"row"`.

    Example:

    ```python
    strategy = keras_bertfam.layers.SmoothedTokens([1000] * 1000 + [10] * 29522)
    keras_bertfam.layers.MaskTokens(30522, mask_token_id=103, strategy=strategy)
    ```

    Reference: [Sanh et al., 2019](https://arxiv.org/abs/1910.01108), released
    code.
    """

    def __init__(self, token_counts, smoothing=0.7, budget="row"):
        counts = np.asarray(token_counts, "float64")
        if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0).any():
            raise ValueError(
                "`token_counts` must be a sequence of finite numbers of at least 0. "
                f"Received: {token_counts}."
            )
        if not smoothing >= 0:
            raise ValueError(f"`smoothing` must be at least 0. Received: {smoothing}.")
        if budget not in ("row", "batch"):
            raise ValueError(
                f'`budget` must be "row" or "batch". Received: {budget!r}.'
            )
        self.token_counts = counts.tolist()
        self.smoothing = smoothing
        self.budget = budget
        self._weights = np.maximum(counts, 1) ** -smoothing

    def check(self, vocabulary_size, starts_word):
        if len(self.token_counts) != vocabulary_size:
            raise ValueError(
                f"`token_counts` must have vocabulary_size={vocabulary_size} "
                f"elements. Received: {len(self.token_counts)}."
            )

    def max_selections(self, count):
        return 2 * count if self.budget == "batch" else count

    def units(self, candidates, starts, span_ids):
        return candidates, candidates

    def select(self, token_ids, candidates, starts, counts, max_count, seed):
        weights = tf.gather(self._weights, token_ids)
        across_rows = self.budget == "batch"
        return select_smoothed(
            candidates, weights, counts, max_count, across_rows, seed
        )

    def get_config(self):
        return {
            "token_counts": self.token_counts,
            "smoothing": self.smoothing,
            "budget": self.budget,
        }
