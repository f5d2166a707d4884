"""Strategies of `MaskTokens` that select words and spans of words."""

import keras
import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.span_selection import (
    select_ngrams,
    select_spans,
)
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.types import TFTensor


@keras.saving.register_keras_serializable("keras_bertfam")
class WholeWords(MaskingStrategy):
    """Whole words in random order, each that fits what is left of the count.

    Where the words that fit can't fill the count, as in a row of Thai, which is one
    word, longer ones are masked in parts.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy=keras_bertfam.layers.WholeWords()
    )
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), released
    code of May 2019.
    """

    name = "words"
    uses_words = True

    def check(self, vocabulary_size: int, starts_word: list[bool] | None) -> None:
        if starts_word is None:
            raise ValueError(
                "`starts_word` must be given for whole words. Received: None."
            )


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class NGrams(MaskingStrategy):
    """n-grams of words with p(n) proportional to 1/n.

    Word starts are gone through in random order. For each an n is drawn, and
    shrunk until the pieces fit what is left of the row's count. A start whose
    word doesn't fit is skipped, and so is one whose n-gram holds a token that is
    selected already. Near the end of the text n is the most there may be. Where the
    words that fit can't fill the count, as in a row of Thai, longer ones are taken in
    parts.

    Args:
        max_n: int. The largest n. Defaults to `3`: 6/11, 3/11 and 2/11.
        favor_shorter: bool. `False` reverses the probabilities. Defaults to
            `True`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy=keras_bertfam.layers.NGrams(max_n=3)
    )
    ```

    Reference: [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 4.1.
    The released code also lets n-grams run across [SEP]; these don't.
    """

    name = "ngrams"
    uses_words = True

    def __init__(self, max_n: int = 3, favor_shorter: bool = True) -> None:
        _check_length("max_n", max_n)
        self.max_n = max_n
        self.favor_shorter = favor_shorter
        weights = 1 / np.arange(1, max_n + 1)
        weights = weights if favor_shorter else weights[::-1]
        self.probabilities = (weights / weights.sum()).tolist()

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        return select_ngrams(
            candidates, starts, counts, max_count, self.probabilities, seed
        )


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class GeometricSpans(MaskingStrategy):
    """Spans of words whose length is geometric, up to a limit.

    Until the row's count is reached: draw a length, and a token that isn't
    selected yet; select that many words from the start of the token's word on.
    The last span is cut to reach the count exactly, be it within a word.

    Args:
        p: float in (0, 1]. The parameter of the geometric distribution. Defaults
            to `0.2`.
        max_length: int. The longest span, in words; the probabilities of the
            lengths up to it are renormalised. Defaults to `10`: a mean of 3.8.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer,
        strategy=keras_bertfam.layers.GeometricSpans(),
        replacement_unit="span",
        selections_per_row="spanbert",
    )
    ```

    Reference: [Joshi et al., 2019](https://arxiv.org/abs/1907.10529),
    section 3.1.
    """

    name = "spans"
    uses_words = True

    def __init__(self, p: float = 0.2, max_length: int = 10) -> None:
        if not 0 < p <= 1:
            raise ValueError(f"`p` must be in (0, 1]. Received: {p}.")
        _check_length("max_length", max_length)
        self.p = p
        self.max_length = max_length
        weights = (1 - p) ** np.arange(max_length)
        self.probabilities = (weights / weights.sum()).tolist()

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        return select_spans(
            candidates, starts, counts, max_count, self.probabilities, seed
        )


@keras.saving.register_keras_serializable("keras_bertfam")
class GivenSpans(MaskingStrategy):
    """Spans that come with the text, such as phrases and entities.

    `MaskTokens` must be called with `span_ids`, int `(batch, length)`: the
    neighbouring tokens of equal number, except 0, are a span. Spans are selected
    as a whole, in random order, each that fits what is left of the count.

    Args:
        only_spans: bool. Whether to select nothing but spans; otherwise the
            words that are in no span (number 0) take part. Defaults to `False`.

    Example:

    ```python
    masker = keras_bertfam.layers.MaskTokens(
        1000, mask_token_id=4, mask_selection_rate=0.4,
        strategy=keras_bertfam.layers.GivenSpans(),
    )
    masker([[7, 8, 9, 10, 11]], span_ids=[[1, 1, 0, 2, 2]])
    ```

    Reference: [Sun et al., 2019](https://arxiv.org/abs/1904.09223), section 3.2.
    """

    name = "given_spans"
    uses_words = True

    def __init__(self, only_spans: bool = False) -> None:
        self.only_spans = only_spans

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        if span_ids is None:
            raise ValueError(
                "`span_ids` must be given for the strategy GivenSpans. Received: None."
            )
        candidates, starts = super().units(token_ids, candidates, starts, span_ids)
        return candidates & (span_ids != 0) if self.only_spans else candidates, starts


def _check_length(name, value):
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a positive int. Received: {value!r}.")
