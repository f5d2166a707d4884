"""Spans of texts between marks, such as phrases and entities."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.texts import CUT, to_utf8
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer

# The marks that begin and end a span of each kind.
MARKS = {"phrase": ("⟪", "⟫"), "entity": ("⟦", "⟧")}


def check_kind(kind: str) -> str:
    """Check the name of a kind of spans, and return it.

    Raises:
        ValueError: for a name that isn't in `MARKS`.
    """
    if kind not in MARKS:
        raise ValueError(
            f"`kind` must be one of {sorted(MARKS)}. Received: kind={kind!r}."
        )
    return kind


def without_marks(texts: TFTensor, kept: str | None = None) -> TFTensor:
    """Remove the marks of all kinds from texts, except one kind.

    Args:
        texts: string tensor.
        kept: the kind that stays, one of `MARKS`; or `None` for no kind.
    """
    removed = "".join("".join(m) for kind, m in MARKS.items() if kind != kept)
    return tf.strings.regex_replace(texts, f"[{removed}]", "")


class MarkedTokenizer:
    """A tokenizer of marked texts, whose ids also say where spans are.

    The first id of a span grows by the size of the vocabulary, the span's other ids
    grow by twice this size. Such ids can be packed into rows like any ids.
    `with_spans` restores ids and spans from them. Marks are removed before the text is
    tokenised.

    Args:
        tokenizer: a tokenizer layer that `tokenize_with_offsets` takes.
        kind: the kind of spans, `"phrase"` or `"entity"`; `None` for no spans.
    """

    goes_across = False  # whether a token in two parts belongs to the first

    def __init__(self, tokenizer: Tokenizer, kind: str | None) -> None:
        self.unmarked = tokenizer
        self.kind = None if kind is None else check_kind(kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unmarked, name)

    def __call__(self, texts: TFTensor) -> TFRagged:
        texts = without_marks(tf.strings.regex_replace(texts, CUT, " "), self.kind)
        if self.kind is None:
            return tokenize(self.unmarked, texts)
        bare = without_marks(texts)
        ids, starts, ends = tokenize_with_offsets(self.unmarked, bare)
        part, inside = self._parts(texts, bare, starts, ends)
        first = tf.concat([part[:1] >= 0, part[1:] != part[:-1]], 0)
        place = tf.where(inside, tf.where(first, 1, 2), 0)
        size = self.unmarked.vocabulary_size()
        return ids.with_flat_values(ids.flat_values + size * place)

    def _parts(self, texts, bare, starts, ends):
        """Tell for each token its part of the text, and whether this part is a span.

        A part is the text between two marks. A token in two parts is in no span. A mark
        without its counterpart makes no span.
        """
        opening, closing = MARKS[self.kind or ""]
        cut = tf.strings.regex_replace(texts, f"([{opening}{closing}])", rf"{CUT}\1")
        pieces = tf.strings.split(cut, CUT).flat_values
        # Pieces before a text's first mark don't begin with a mark.
        opened, closed = (
            tf.strings.regex_full_match(pieces, f"(?s){mark}.*")
            for mark in (opening, closing)
        )
        in_span = opened & tf.concat([closed[1:], [False]], 0)
        sizes = tf.strings.length(without_marks(pieces))
        begins = tf.cumsum(sizes, exclusive=True)
        rows = starts.value_rowids()
        at = tf.gather(tf.cumsum(tf.strings.length(bare), exclusive=True), rows)

        def part_of(places):
            return tf.searchsorted(begins, at + places, side="right") - 1

        first, last = part_of(starts.flat_values), part_of(ends.flat_values - 1)
        whole = ends.flat_values > starts.flat_values
        if not self.goes_across:
            whole &= first == last
        return first, whole & tf.gather(in_span, first)


class SegmentedTokenizer(MarkedTokenizer):
    """A tokenizer whose ids also say where words are, by a user's function.

    A token in two words belongs to the word in which it begins. Tokens of byte-level
    BPE can end within a character, for example.

    Args:
        tokenizer: see `MarkedTokenizer`.
        segmenter: function of a str that returns ints: the places, in characters,
            where its words begin or end.
    """

    goes_across = True

    def __init__(
        self, tokenizer: Tokenizer, segmenter: Callable[[str], Iterable[int]]
    ) -> None:
        super().__init__(tokenizer, "phrase")
        self.segmenter = segmenter

    def __call__(self, texts: TFTensor) -> TFRagged:
        bare = without_marks(texts)
        marked = tf.numpy_function(self._mark_all, [bare], tf.string, stateful=False)
        return super().__call__(tf.ensure_shape(marked, texts.shape))

    def _mark_all(self, texts):
        return np.array([self._mark(text.decode()).encode() for text in texts], "O")

    def _mark(self, text):
        places = sorted({0, len(text), *map(int, self.segmenter(text))})
        if places[0] < 0 or places[-1] > len(text):
            raise ValueError(
                f"`segmenter` must return places from 0 to {len(text)} for a text of "
                f"{len(text)} characters. Received: {places}."
            )
        words = (text[begin:end] for begin, end in itertools.pairwise(places))
        opening, closing = MARKS["phrase"]
        return "".join(
            f"{opening}{word}{closing}" if word.strip() else word for word in words
        )


def with_spans(rows: dict[str, TFTensor], vocabulary_size: int) -> dict[str, TFTensor]:
    """Restore ids and spans from the ids of `MarkedTokenizer`.

    Args:
        rows: dict with `token_ids`, int32 `(..., length)`.
        vocabulary_size: int, of the tokenizer.

    Returns:
        The dict with ids of the vocabulary, and `span_ids`, int32 of that shape: 1, 2,
        ... for the spans of a row, and 0 for tokens outside of spans.
    """
    # Example: a vocabulary of 100 and the ids 7 108 209 5 111 give the ids 7 8 9 5 11
    # and the spans 0 1 1 0 2.
    place = rows["token_ids"] // vocabulary_size
    padding = [[0, 0]] * (place.shape.rank - 1)
    before = tf.pad(place[..., :-1], [*padding, [1, 0]])
    begins = (place == 1) | ((place == 2) & (before == 0))  # its beginning was cut off
    numbers = tf.cumsum(tf.cast(begins, tf.int32), axis=-1)
    return {
        **rows,
        "token_ids": rows["token_ids"] % vocabulary_size,
        "span_ids": tf.where(place > 0, numbers, 0),
    }


_MONTH = (
    "(?:January|February|March|April|May|June|July|August|September|October|November|"
    r"December|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?)"
)
_DAY = "(?:[12][0-9]|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = "(?:1[0-9]{3}|20[0-9]{2})"
_DATES = (
    rf"{_DAY} (?:of )?{_MONTH}(?:,? {_YEAR})?",
    rf"{_MONTH} {_DAY}(?:,? {_YEAR})?",
    rf"{_MONTH},? {_YEAR}",
    rf"{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])",
    rf"{_YEAR}s?",
)


def mark_dates(texts: TFTensor, kind: str = "entity") -> TFTensor:
    """Mark English dates and years in texts: use it with `Dataset.map`.

    Found are days with months, months with years, dates such as `1887-03-12`, and years
    from 1000 to 2099. A date within a marked span gets no marks of its own.

    Args:
        texts: string tensor of any shape, in UTF-8.
        kind: `"entity"` or `"phrase"`. It chooses the marks. Defaults to `"entity"`.

    Returns:
        The string tensor with marks, see `SalientSpans`.

    Raises:
        ValueError: for another `kind`.

    Example:

    ```python
    keras_bertfam.layers.mark_dates("It began on 12 March 1887.")
    # "It began on ⟦12 March 1887⟧."
    ```

    Reference: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.4.
    """
    opening, closing = MARKS[check_kind(kind)]
    dates = rf"\b({'|'.join(_DATES)})\b"
    texts = to_utf8(tf.convert_to_tensor(texts))
    texts = tf.strings.regex_replace(texts, dates, rf"{opening}\1{closing}")
    inside = rf"({opening}[^{opening}{closing}]*){opening}([^{opening}{closing}]*)"

    def without_one(texts, _):
        fewer = tf.strings.regex_replace(texts, f"{inside}{closing}", r"\1\2")
        return fewer, tf.reduce_any(fewer != texts)

    # Each turn removes the marks of one date in each span that had marks before.
    start = texts, tf.constant(True)
    texts, _ = tf.while_loop(lambda _, changed: changed, without_one, start)
    return texts
