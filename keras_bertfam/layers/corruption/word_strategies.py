"""Strategies of `MaskTokens` that select words and spans of words."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.selection import after_other, distinct_scores
from keras_bertfam.layers.corruption.span_selection import (
    select_ngram_windows,
    select_ngrams,
    select_spans,
)
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.data.documents.marked_spans import MARKS
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.types import TFTensor


@keras.saving.register_keras_serializable("keras_bertfam")
class WholeWords(MaskingStrategy):
    """Selects whole words in random order, each that fits what is left of the count.

    If the words that fit can't fill the count, longer words are masked in parts. That
    happens in text without spaces, such as Thai, where a row is one word.

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
    """Selects n-grams of words, with p(n) proportional to 1/n.

    The strategy visits the starts of words in random order. At each start it draws n,
    and shrinks it until the n-gram's tokens fit what is left of the row's count. It
    skips a start whose own word doesn't fit, or whose n-gram holds a selected token.
    Near the end of the text n is at most the number of words left. If the words that
    fit can't fill the count, longer words are masked in parts, as in `WholeWords`.

    Args:
        max_n: int. The largest n. Defaults to `3`, with the probabilities 6/11, 3/11
            and 2/11.
        favor_shorter: bool. `False` reverses the probabilities. Defaults to
            `True`.
        weights: sequence of `max_n` floats, or `None`. How often n = 1, 2, ... is
            drawn, in place of 1/n; they need not sum to 1. MacBERT has 4, 3, 2 and 1.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy=keras_bertfam.layers.NGrams(max_n=3)
    )
    ```

    Reference: [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 4.1.
    In the released code n-grams can also run across [SEP], and a piece with digits or
    letters beyond a to z is a word of its own; here they don't, and it isn't.
    """

    name = "ngrams"
    uses_words = True

    def __init__(
        self,
        max_n: int = 3,
        favor_shorter: bool = True,
        weights: Sequence[float] | None = None,
    ) -> None:
        _check_length("max_n", max_n)
        self.max_n = max_n
        self.favor_shorter = favor_shorter
        self.weights = None if weights is None else [float(x) for x in weights]
        shares = 1 / np.arange(1, max_n + 1)
        if self.weights is not None:
            shares = np.array(self.weights)
            finite = np.isfinite(shares).all() and (shares >= 0).all()
            if len(shares) != max_n or not finite or not shares.sum() > 0:
                raise ValueError(
                    f"`weights` must be max_n={max_n} numbers of at least 0, not all "
                    f"0. Received: {weights}."
                )
        shares = shares if favor_shorter else shares[::-1]
        self.probabilities = (shares / shares.sum()).tolist()

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
class NGramWindows(MaskingStrategy):
    """Selects an n-gram of words in each window from left to right, as DeBERTa's code.

    For each window n is drawn with p(n) proportional to 1/n. The n-gram begins at a
    random place of the next `window * n` words. Words are masked from the left until
    the row's count is reached, so in a full row about the last tenth is never masked.
    The last word may exceed the count if there are slots for it. By default there are,
    for a word of up to five tokens; `mask_selection_length` can set fewer.

    Args:
        max_n: int. The largest n. Defaults to `3`, with the probabilities 6/11, 3/11
            and 2/11. With `1` each token is a unit instead of each word, as in the
            code.
        window: int. The number of words of which one is masked, `int(1 /
            mask_selection_rate)` in the code. A larger window doesn't reach the row's
            count. Defaults to `6`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy=keras_bertfam.layers.NGramWindows(max_n=3)
    )
    ```

    Reference: [He et al., 2020](https://arxiv.org/abs/2006.03654), released code.
    N-grams that would run across [SEP] are cut before it.
    """

    name = "ngram_windows"
    uses_words = True

    def __init__(self, max_n: int = 3, window: int = 6) -> None:
        _check_length("max_n", max_n)
        _check_length("window", window)
        self.max_n = max_n
        self.window = window
        weights = 1 / np.arange(1, max_n + 1)
        self.probabilities = (weights / weights.sum()).tolist()

    def mask_selection_length(self, selections: int) -> int:
        return selections if self.max_n == 1 else selections + 4

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        if self.max_n == 1:
            return candidates, candidates
        return super().units(token_ids, candidates, starts, span_ids)

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        return select_ngram_windows(
            candidates,
            starts,
            counts,
            max_count,
            self.probabilities,
            self.window,
            seed,
        )


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class GeometricSpans(MaskingStrategy):
    """Selects spans of words; their lengths have a geometric distribution with a limit.

    The strategy draws a length, and a token that isn't selected yet. It selects that
    many words, beginning with the token's word. It repeats this until the row's count
    is reached. The last span is cut to reach the count exactly, even within a word.

    Args:
        p: float in (0, 1]. The parameter of the geometric distribution. Defaults
            to `0.2`.
        max_length: int. The longest span, in words. The probabilities of the lengths up
            to it are renormalised. Defaults to `10`, for a mean of 3.8.

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
    """Selects spans that come with the text, such as phrases and entities.

    `MaskTokens` must be called with `span_ids`, int `(batch, length)`: neighbouring
    tokens with the same number, except 0, are a span. Whole spans are selected in
    random order, each that fits what is left of the count.

    Args:
        only_spans: bool. Whether to select spans only. If not, words outside of spans
            (number 0) are selected too, and where these can't fill the count, also
            parts of spans that are longer than it. Defaults to `False`.

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
        # Text without spaces is a long word, which must be cut. A span never is.
        self.cuts_long_units = not only_spans

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


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SalientSpans(GivenSpans):
    """Selects one whole marked span of each row, and nothing else.

    In the text a span stands between ⟦ and ⟧, as for `KnowledgeMasking`. You can write
    the marks yourself, or have them made by `keras_bertfam.tasks.mark_entities`, a
    `keras_bertfam.layers.Lexicon` or `keras_bertfam.layers.mark_dates`. All spans that
    fit the slots of a row are equally likely. A row without such a span has no
    selection. The rate has no influence: the number of selected tokens is the span's.

    Args:
        max_length: int or `None`. The longest span, in tokens. `None` stands for the
            number of slots.

    Raises:
        ValueError: for a `max_length` below 1.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy="salient_spans", mask_selection_length=10,
        mask_token_rate=1.0, random_token_rate=0.0)
    preprocessor(["⟦Jane Austen⟧ wrote Emma in ⟦1815⟧."])
    ```

    Reference: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.4.
    """

    name = "salient_spans"
    uses_words = False
    uses_rate = False
    uses_marks = True
    marked = "entity"

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__(only_spans=True)
        check_at_least(1, max_length=max_length)
        self.max_length = max_length

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        begins = candidates & (starts | after_other(candidates))
        spans = tf.cumsum(tf.cast(begins, tf.int32), axis=1)
        spans = tf.where(candidates, spans, 0)  # 1, 2, ... and 0 for no span
        rows, length = tf.unstack(tf.shape(candidates))
        sizes = tf.math.unsorted_segment_sum(
            tf.reshape(tf.cast(candidates, tf.int32), [-1]),
            tf.reshape(spans + tf.range(rows)[:, None] * (length + 1), [-1]),
            rows * (length + 1),
        )
        sizes = tf.reshape(sizes, [rows, length + 1])
        longest = min(max_count, self.max_length or max_count)
        fits = (sizes > 0) & (sizes <= longest)
        scores = tf.where(fits, distinct_scores(tf.shape(sizes), seed), -1)
        chosen = tf.argmax(scores, axis=1, output_type=tf.int32)
        found = tf.reduce_max(scores, axis=1) >= 0
        return candidates & (spans == chosen[:, None]) & found[:, None]


STAGES = ("basic", *MARKS)


@keras.saving.register_keras_serializable("keras_bertfam")
class KnowledgeMasking(GivenSpans):
    """Selects whole words, and phrases or entities that are marked in the text.

    A phrase stands between ⟪ and ⟫, an entity between ⟦ and ⟧: `"⟦New York⟧ is ⟪by
    far⟫ the largest."` One can be within the other. You can write the marks yourself,
    or have them made by a `keras_bertfam.layers.Lexicon` or
    `keras_bertfam.tasks.mark_entities`. Preprocessors remove them from the text.

    Each stage masks whole units in random order, each that fits what is left of a
    row's count. In the `"basic"` stage the units are words, which in Chinese are
    characters. In the `"phrase"` and `"entity"` stages they are the spans of that kind,
    and the words outside of them. A mark without its counterpart in the same sentence
    makes no span. A span that a row's end cuts becomes a span in each of the two rows.

    Without a preprocessor, `MaskTokens` needs `span_ids` in the `"phrase"` and
    `"entity"` stages; see `GivenSpans`.

    Args:
        stage: `"basic"`, `"phrase"` or `"entity"`. A training has the stages in this
            order. Defaults to `"entity"`.

    Raises:
        ValueError: for another stage.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    documents = documents.map(keras_bertfam.layers.Lexicon("entities.txt"))
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy=keras_bertfam.layers.KnowledgeMasking("entity")
    )
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Sun et al., 2019](https://arxiv.org/abs/1904.09223), section 3.2.
    """

    name = "knowledge"
    uses_marks = True

    def __init__(self, stage: str = "entity") -> None:
        super().__init__()
        if stage not in STAGES:
            raise ValueError(f"`stage` must be one of {STAGES}. Received: {stage!r}.")
        self.stage = stage
        self.marked = None if stage == "basic" else stage

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        if self.stage == "basic":
            return MaskingStrategy.units(self, token_ids, candidates, starts, span_ids)
        return super().units(token_ids, candidates, starts, span_ids)
