"""Score answers to open questions, and passages found for them."""

import importlib
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

from keras_bertfam.arguments import checked
from keras_bertfam.metrics.squad import normalize_answer

# A pattern that takes longer than this on a text, in seconds, matches nothing.
_SECONDS = 0.5
_LONGEST = 10_000  # characters of a pattern
_TOKEN = r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]"


def normalize_open_answer(text: str) -> str:
    """Normalise as SQuAD's script does, after separating letters and accents.

    Args:
        text: str.

    Returns:
        str in Unicode's form NFD, in lower case, without ASCII punctuation, articles
        and extra white space.
    """
    return normalize_answer(unicodedata.normalize("NFD", text))


@checked
def open_question_scores(
    answers: Sequence[Sequence[str]],
    predictions: Sequence[str | None],
    patterns: bool = False,
) -> dict[str, float]:
    """Compute the exact match of answers to open questions, by ORQA's rules.

    A prediction is correct if it equals one of the answers; the form of accents, case,
    punctuation, articles and white space don't count. With `patterns`, it is correct if
    a pattern matches at its beginning, in upper or lower case. A pattern that isn't
    valid, or takes longer than half a second, matches nothing, and a warning says so.

    Args:
        answers: list of lists of str, the correct answers to each question, or its
            patterns (regular expressions), as in `Examples.y`.
        predictions: list of str, in the same order. `None` for a question without
            prediction, which counts as wrong.
        patterns: bool. Whether answers are patterns, as CuratedTREC's.

    Returns:
        Dict of a float in percent: `exact_match`.

    Raises:
        ValueError: for lists of different length, or none.
        ImportError: for patterns without `regex`, which the `evaluation` extra has.

    Example:

    ```python
    keras_bertfam.metrics.open_question_scores(
        [["Jane Austen", "Austen"], ["1815"]], ["The Austen!", "1816"])
    # {"exact_match": 50.0}
    ```

    Reference: [Lee et al., 2019](https://arxiv.org/abs/1906.00300), and the released
    code.
    """
    _check_answers(answers, predictions)
    found = Patterns() if patterns else None
    right = 0
    for texts, prediction in zip(answers, predictions, strict=True):
        if prediction is None:
            continue
        if found is not None:
            right += any([found.match(text, prediction) for text in texts])
        else:
            said = normalize_open_answer(prediction)
            right += said in map(normalize_open_answer, texts)
    if found is not None:
        found.warn()
    return {"exact_match": 100 * right / len(answers)}


@checked
def answer_recall(
    passages: Sequence[Sequence[str]],
    answers: Sequence[Sequence[str]],
    counts: Sequence[int] = (1, 5, 20),
    patterns: bool = False,
) -> dict[str, float]:
    """Compute for how many questions a passage with an answer is found, as DPR does.

    A passage has an answer if it contains the answer's words one after the other, in
    upper or lower case; or, with `patterns`, if a pattern matches anywhere in it. See
    `open_question_scores`.

    Args:
        passages: list of lists of str, the texts found for each question, the best
            first.
        answers: list of lists of str, answers or patterns of each question.
        counts: sequence of ints, how many of the first passages to look at.
        patterns: bool. Whether answers are patterns, as CuratedTREC's.

    Returns:
        Dict of floats in percent: `recall@1` and so on.

    Raises:
        ValueError: for lists of different length, or none, and a count below 1.
        ImportError: without `regex`, which the `evaluation` extra has.

    Example:

    ```python
    keras_bertfam.metrics.answer_recall(
        [["A novel.", "Emma is by Jane Austen."]], [["Austen"]], counts=[1, 2])
    # {"recall@1": 0.0, "recall@2": 100.0}
    ```

    Reference: [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), and the
    released code.
    """
    _check_answers(answers, passages)
    if min(counts, default=0) < 1:
        raise ValueError(
            f"`counts` must be some numbers of at least 1. Received: {[*counts]}."
        )
    found = Patterns()
    ranks = [
        _first_with(texts[: max(counts)], right, found, patterns)
        for texts, right in zip(passages, answers, strict=True)
    ]
    found.warn()
    return {
        f"recall@{count}": 100 * sum(rank < count for rank in ranks) / len(ranks)
        for count in counts
    }


def _first_with(texts, answers, patterns, are_patterns):
    """Give the index of the first text with an answer, or the number of texts."""
    if are_patterns:
        wanted = [unicodedata.normalize("NFD", answer) for answer in answers]
    else:
        wanted = [patterns.tokens(answer) for answer in answers]
    for place, text in enumerate(texts):
        if are_patterns:
            text = unicodedata.normalize("NFD", text)
            # All patterns are tried, so that warnings don't depend on the order.
            right = any([patterns.search(each, text) for each in wanted])
        else:
            tokens = patterns.tokens(text)
            right = any(_has(tokens, each) for each in wanted)
        if right:
            return place
    return float("inf")


def _has(tokens, wanted):
    """Tell whether tokens contain other tokens one after the other."""
    count = len(wanted)
    places = range(len(tokens) - count + 1)
    return count > 0 and any(tokens[k : k + count] == wanted for k in places)


class Patterns:
    """Match regular expressions from data, with bounded work.

    An expression that isn't valid, or that has taken too long once, matches nothing.
    """

    def __init__(self) -> None:
        try:
            # Python's own `re` has no time limit.
            self._regex = importlib.import_module("regex")
        except ModuleNotFoundError as error:
            raise ImportError(
                "Patterns need regex: pip install keras-bertfam[evaluation]."
            ) from error
        self._known: dict[str, Any] = {}
        self._bad: dict[str, str] = {}
        self._token = self._regex.compile(_TOKEN)

    def tokens(self, text: str) -> list[str]:
        """Split a text into words and other characters, in lower case, as DPR does."""
        return self._token.findall(unicodedata.normalize("NFD", text).lower())

    def match(self, pattern: str, text: str) -> bool:
        """Tell whether a pattern matches at the beginning of a text."""
        return self._tried(pattern, "match", text) is not None

    def search(self, pattern: str, text: str) -> bool:
        """Tell whether a pattern is found anywhere in a text."""
        return self._tried(pattern, "search", text) is not None

    def found(self, pattern: str, text: str) -> str:
        """Give the first match of a pattern in a text; `""` for none."""
        match = self._tried(pattern, "search", text)
        return match.group() if match else ""

    def warn(self) -> None:
        """Warn of patterns that couldn't be used, if there were any."""
        if self._bad:
            (pattern, reason), *_ = self._bad.items()
            warnings.warn(
                f"{len(self._bad)} patterns match nothing. The first: {pattern:.100}, "
                f"as {reason}.",
                stacklevel=4,
            )

    def _tried(self, pattern, way, text):
        if pattern in self._bad:
            return None
        if len(pattern) > _LONGEST:
            self._bad[pattern] = f"it has more than {_LONGEST} characters"
            return None
        try:
            if pattern not in self._known:
                self._known[pattern] = self._compiled(pattern)
            found = getattr(self._known[pattern], way)(text, timeout=_SECONDS)
        except TimeoutError:
            self._bad[pattern] = f"it takes longer than {_SECONDS} s"
            return None
        except (self._regex.error, ValueError, OverflowError, RecursionError) as error:
            self._bad[pattern] = f"it isn't valid: {error}"
            return None
        return found

    def _compiled(self, pattern):
        known = self._regex
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags = known.IGNORECASE | known.UNICODE | known.MULTILINE
            return known.compile(pattern, flags)


def _check_answers(answers, others):
    if len(answers) != len(others) or not len(answers):
        raise ValueError(
            "There must be a list of answers for each of the questions, and a "
            f"question. Received: {len(answers)} and {len(others)}."
        )
    if single := [each for each in answers if isinstance(each, str)]:
        raise ValueError(
            "The answers of a question must be a list of strings. Received: "
            f"{single[0]!r}."
        )
