"""Strategies of `MaskTokens`: the base, a registry, and two for single tokens."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.selection import (
    select_smoothed,
    select_tokens,
    select_words,
)
from keras_bertfam.layers.data.base import KnownByName
from keras_bertfam.lazy import Registry
from keras_bertfam.types import Config, TFTensor


class MaskingStrategy(KnownByName):
    """Base of masking strategies: small objects that choose positions for `MaskTokens`.

    A subclass defines one or both of two methods. `units` says which tokens are
    selected together. `select` says which units are selected; by default units in
    random order, each that fits what is left of the count.

    What a strategy draws must depend on `seed` alone. It keeps each constructor
    argument as an attribute of the same name, from which `get_config` is made. It is
    registered with Keras, so that layers and preprocessors that hold it can be saved.
    If it has a `name` and its arguments have defaults, the name can be used in place of
    an object as soon as the class is defined.

    Attributes:
        name: str or `None`. The name by which `MaskTokens` and preprocessors find it.
        uses_words: bool. Whether it selects words. Without `starts_word` each token is
            a word.
        uses_rate: bool. Whether it selects as many tokens as the rate asks for, as far
            as there are so many.
        uses_counts: bool. Whether it needs the number of occurrences of each token. Its
            `token_counts` are `None` until `set_counts` is called.
        uses_marks: bool. Whether it reads the marks around spans of texts. Marks of the
            kind `marked` become `span_ids`. Marks of all kinds are removed from the
            text.
        cuts_long_units: whether `select` cuts units that are longer than a row's count,
            if the others can't fill it.
        marked: `"phrase"`, `"entity"` or `None` for neither.

    Example:

    ```python
    @keras.saving.register_keras_serializable("my_project")
    class Listed(keras_bertfam.layers.MaskingStrategy):
        '''Tokens of given ids only, one by one.'''

        name = "listed"

        def __init__(self, listed=(17, 23)):
            self.listed = [int(i) for i in listed]

        def units(self, token_ids, candidates, starts, span_ids):
            known = tf.reduce_any(token_ids[..., None] == self.listed, axis=-1)
            return candidates & known, candidates & known

    for strategy in ("listed", Listed([5, 6])):
        masker = keras_bertfam.layers.MaskTokens(
            100, mask_token_id=4, mask_selection_rate=0.5, strategy=strategy)
        masker([[7, 17, 8, 5, 23, 6]], seed=[0, 1])
    ```
    """

    kind = "strategy"
    named: ClassVar[Registry] = Registry()
    uses_words: ClassVar[bool] = False
    uses_rate: ClassVar[bool] = True
    uses_counts: ClassVar[bool] = False
    uses_marks: ClassVar[bool] = False
    cuts_long_units: bool = True
    marked: str | None = None

    def check(self, vocabulary_size: int, starts_word: list[bool] | None) -> None:
        """Raise a `ValueError` if the strategy doesn't fit the vocabulary."""

    def mask_selection_length(self, selections: int) -> int:
        """Compute the number of slots if a full row gets that many `selections`."""
        return selections

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        """Return which tokens may be selected, and which of them start a unit.

        By default the units are words. A span of `span_ids` is a word; between spans
        `starts` says where words begin.

        Args:
            token_ids: int32 tensor of shape `(batch, length)`.
            candidates: bool tensor of that shape, false for padding and special tokens.
            starts: bool tensor of that shape: which tokens start a word.
            span_ids: int32 tensor of that shape or `None`.
        """
        if span_ids is None:
            return candidates, starts
        previous = tf.pad(span_ids, [[0, 0], [1, 0]])[:, :-1]
        return candidates, (starts & (span_ids == 0)) | (span_ids != previous)

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        """Return the selections as a bool tensor of shape `(batch, length)`.

        By default it selects whole units in random order, each that fits what is left
        of the count.

        Args:
            token_ids: int32 tensor of shape `(batch, length)`.
            candidates: bool tensor of that shape, from `units`.
            starts: bool tensor of that shape, from `units`.
            counts: int32 tensor of shape `(batch,)`: tokens to select.
            max_count: int. An upper bound of `counts`.
            seed: integer tensor of shape `(2,)`.
        """
        return select_words(candidates, starts, counts, seed, self.cuts_long_units)


def get_strategy(identifier: MaskingStrategy | Config | str) -> MaskingStrategy:
    """Return the strategy that is meant by an object, a config or a name.

    Args:
        identifier: `MaskingStrategy`; the config that `keras.saving` made of one; or
            the name of one, such as `"tokens"`, `"words"`, `"ngrams"`,
            `"ngram_windows"`, `"spans"`, `"given_spans"`, `"knowledge"` or
            `"smoothed_tokens"`.
    """
    strategy: MaskingStrategy = MaskingStrategy.get(identifier)
    return strategy


@keras.saving.register_keras_serializable("keras_bertfam")
class IndependentTokens(MaskingStrategy):
    """Selects single tokens, all sets of them equally likely; `MaskTokens`' default.

    Example:

    ```python
    from keras_bertfam.layers.corruption.strategies import IndependentTokens
    keras_bertfam.layers.MaskTokens(
        30522, mask_token_id=103, strategy=IndependentTokens()
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
    """Selects single tokens, rare ones more often than frequent ones.

    A token's weight is `max(count, 1)^-smoothing`. Tokens are selected one after the
    other, each in proportion to the weights of those that are left.

    Args:
        token_counts: sequence of numbers, one for each id of the vocabulary: how
            often it occurs in the corpus. `None`: a preprocessor's `dataset` counts
            tokens in its documents.
        smoothing: float, at least 0. Defaults to `0.7`.
        budget: `"row"` or `"batch"`. `"row"` gives each row its own number of
            selections. `"batch"`, as in DistilBERT's code, adds the numbers up and
            selects among all rows together: a row of rare tokens gets more, and another
            perhaps none. No row gets more than `mask_selection_length`, whose default
            is twice as large for `"batch"`. Defaults to `"row"`.

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
        """Set the `token_counts`, see the constructor."""
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
