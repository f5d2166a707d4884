"""Strategies of `MaskTokens` that select single tokens."""

from collections.abc import Sequence
from typing import Literal

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.selection import (
    select_smoothed,
    select_tokens,
)
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.types import TFTensor


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

    name = "tokens"

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        return candidates, candidates

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        return select_tokens(candidates, counts, max_count, seed)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SmoothedTokens(MaskingStrategy):
    """Single tokens, the rarer the likelier: weights `max(count, 1)^-smoothing`.

    Tokens are selected one after the other, each in proportion to the weights of
    those that are left.

    Args:
        token_counts: sequence of numbers, one for each id of the vocabulary: how
            often it occurs in the corpus. `None`: a preprocessor's `dataset` counts
            them in its documents.
        smoothing: float, at least 0. Defaults to `0.7`.
        budget: `"row"` or `"batch"`. `"batch"`, as in DistilBERT's code, selects
            the sum of the rows' counts among all rows together, so that a row
            of rare tokens gets more selections and another perhaps none; no row
            gets more than `mask_selection_length`, which is by default twice that of
            `"row"`. Defaults to `"row"`.

    Example:

    ```python
    strategy = keras_bertfam.layers.SmoothedTokens([1000] * 1000 + [10] * 29522)
    keras_bertfam.layers.MaskTokens(30522, mask_token_id=103, strategy=strategy)
    ```

    Reference: [Sanh et al., 2019](https://arxiv.org/abs/1910.01108), released
    code.
    """

    name = "smoothed_tokens"
    uses_counts = True

    def __init__(
        self,
        token_counts: Sequence[float] | None = None,
        smoothing: float = 0.7,
        budget: Literal["row", "batch"] = "row",
    ) -> None:
        if not smoothing >= 0:
            raise ValueError(f"`smoothing` must be at least 0. Received: {smoothing}.")
        if budget not in ("row", "batch"):
            raise ValueError(
                f'`budget` must be "row" or "batch". Received: {budget!r}.'
            )
        self.smoothing = smoothing
        self.budget = budget
        self.token_counts: list[float] | None = None
        if token_counts is not None:
            self.set_counts(token_counts)

    def set_counts(self, token_counts: Sequence[float]) -> None:
        """Set how often each token occurs, see the constructor."""
        counts = np.asarray(token_counts, "float64")
        if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0).any():
            raise ValueError(
                "`token_counts` must be a sequence of finite numbers of at least 0. "
                f"Received: {token_counts}."
            )
        self.token_counts = counts.tolist()
        self._weights = np.maximum(counts, 1) ** -self.smoothing

    def check(self, vocabulary_size: int, starts_word: list[bool] | None) -> None:
        if self.token_counts is not None and len(self.token_counts) != vocabulary_size:
            raise ValueError(
                f"`token_counts` must have vocabulary_size={vocabulary_size} "
                f"elements. Received: {len(self.token_counts)}."
            )

    def mask_selection_length(self, selections: int) -> int:
        return 2 * selections if self.budget == "batch" else selections

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        return candidates, candidates

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        if self.token_counts is None:
            raise ValueError(
                "`token_counts` must be given, or counted by a preprocessor's "
                "`adapt(documents)` or `dataset(documents)`. Received: None."
            )
        weights = tf.gather(self._weights, token_ids)
        across_rows = self.budget == "batch"
        return select_smoothed(
            candidates, weights, counts, max_count, across_rows, seed
        )
