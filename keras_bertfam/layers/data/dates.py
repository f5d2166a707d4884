"""Dates, marked in texts by a rule."""

import tensorflow as tf

from keras_bertfam.layers.data.marks import MARKS, check_kind
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import TFTensor

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
# What two dates or more within an entity leave of their marks, in so many turns.
_NESTED = 4


def mark_dates(texts: TFTensor, kind: str = "entity") -> TFTensor:
    """Mark English dates and years in texts: use it with `Dataset.map`.

    Days with months, months with years, `1887-03-12`, and years from 1000 to 2099. A
    date within a span that is marked already is a part of that span.

    Args:
        texts: string tensor of any shape, in UTF-8.
        kind: `"entity"` or `"phrase"`: with which marks. Defaults to `"entity"`.

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
    for _ in range(_NESTED):
        texts = tf.strings.regex_replace(texts, f"{inside}{closing}", r"\1\2")
    return texts
