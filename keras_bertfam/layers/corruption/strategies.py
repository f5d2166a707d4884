"""What a strategy of `MaskTokens` is, and strategies by name."""

from typing import ClassVar

import tensorflow as tf

from keras_bertfam.layers.corruption.named import KnownByName
from keras_bertfam.layers.corruption.selection import select_words
from keras_bertfam.lazy import Registry
from keras_bertfam.types import Config, TFTensor


class MaskingStrategy(KnownByName):
    """Base of the strategies: small objects that `MaskTokens` asks for positions.

    A strategy says in `units` what is selected as a whole, and, if units in random
    order, each that fits what is left of the count, aren't what it wants, in
    `select` which of them. What it draws must depend on `seed` alone. Arguments
    of its constructor are attributes of the same names, of which `get_config` is
    made, and its class is registered with Keras, so that layers and preprocessors
    that hold it can be saved.

    A subclass with a `name` of its own, whose arguments have defaults, can be
    asked for by that name as soon as it is defined.

    Attributes:
        name: str or `None`. What `MaskTokens` and preprocessors call it.
        uses_words: bool. Whether it selects words, which without `starts_word`
            are the single tokens.
        uses_rate: bool. Whether it selects as many tokens as it is asked for, if there
            are so many.
        uses_counts: bool. Whether it needs to know how often each token occurs: its
            `token_counts` are `None` until `set_counts` is called.
        uses_marks: bool. Whether it reads the marks around spans of texts. Those of the
            kind `marked` become `span_ids`, and all are left out of the text.
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
    marked: str | None = None

    def check(self, vocabulary_size: int, starts_word: list[bool] | None) -> None:
        """Raise a `ValueError` if the strategy doesn't fit the vocabulary."""

    def mask_selection_length(self, selections: int) -> int:
        """Count the slots to provide where a full row gets so many `selections`."""
        return selections

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        """Return which tokens may be selected, and which of them start a unit.

        By default the units are words: spans, where there are some, and by the
        vocabulary what is between them.

        Args:
            token_ids: int32 tensor of shape `(batch, length)`.
            candidates: bool tensor of that shape: no padding, nor special tokens.
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

        By default whole units in random order, each that fits what is left.

        Args:
            token_ids: int32 tensor of shape `(batch, length)`.
            candidates: bool tensor of that shape, from `units`.
            starts: bool tensor of that shape, from `units`.
            counts: int32 tensor of shape `(batch,)`: tokens to select.
            max_count: int. An upper bound of `counts`.
            seed: integer tensor of shape `(2,)`.
        """
        return select_words(candidates, starts, counts, seed)


def get_strategy(identifier: MaskingStrategy | Config | str) -> MaskingStrategy:
    """Return a strategy given itself, its config or its name.

    Args:
        identifier: `MaskingStrategy`, what `keras.saving` serialised of one, or
            the `name` of one, such as `"tokens"`, `"words"`, `"ngrams"`,
            `"spans"`, `"given_spans"`, `"knowledge"`, `"smoothed_tokens"`.
    """
    strategy: MaskingStrategy = MaskingStrategy.get(identifier)
    return strategy
