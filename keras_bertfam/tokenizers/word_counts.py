"""Words and their counts, from which vocabularies are learned as from a text."""

import collections
import itertools
from collections.abc import Callable, Iterable, Mapping

_WORDS_AT_ONCE = 4096


def recount(
    counts: Mapping[str, int],
    split: Callable[[list[str]], Iterable[Iterable[bytes | str]]],
) -> dict[str, int]:
    """Count how often the parts of words occur.

    Args:
        counts: words and how often they occur.
        split: function of a list of words that gives the parts of each.

    Returns:
        A dict of parts and their counts.

    Raises:
        TypeError: for counts that aren't ints of strings.
        ValueError: for a count that isn't positive.
    """
    words = iter(counts)
    new: collections.Counter[str] = collections.Counter()
    while batch := [*itertools.islice(words, _WORDS_AT_ONCE)]:
        for word in batch:
            _check_count(word, counts[word])
        for word, parts in zip(batch, split(batch), strict=True):
            for part in parts:
                text = part.decode() if isinstance(part, bytes) else part
                new[text] += counts[word]
    return dict(new)


def _check_count(word, count):
    if not isinstance(word, str) or not isinstance(count, int):
        raise TypeError(
            "`documents`, if a dict, must have words and how often they occur. "
            f"Received: {word!r}: {count!r}."
        )
    if count < 1:
        raise ValueError(
            "`documents`, if a dict, must have positive counts. Received: "
            f"{word!r}: {count}."
        )
