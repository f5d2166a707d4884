"""Exact match of open questions, patterns, and passages that have an answer."""

import re
import time
import warnings

import pytest

from keras_bertfam.metrics import (
    answer_recall,
    compute_metrics,
    open_question_scores,
)
from keras_bertfam.metrics.open_questions import normalize_open_answer

pytestmark = pytest.mark.any_backend


def score(answers, prediction, patterns=False):
    return open_question_scores([answers], [prediction], patterns)["exact_match"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Who!", "who"),
        ("Beyonc\u00e9", "beyonce\u0301"),  # taken apart, not away
        ("a.b an-c", "ab anc"),
        ("\u2019tis \u00abthe\u00bb end", "\u2019tis \u00ab \u00bb end"),
        ("\uff21the", "\uff41the"),
    ],
)
def test_how_answers_are_normalised(text, expected):
    assert normalize_open_answer(text) == expected


def test_exact_match_over_answers():
    answers = [["Jane Austen", "Austen"], ["1815"], ["Beyonce\u0301"], ["Rome"]]
    predictions = ["the austen.", "1816", "Beyonc\u00c9", None]
    assert open_question_scores(answers, predictions) == {"exact_match": 50.0}
    found = compute_metrics(["open_exact_match"], answers, predictions)
    assert found == {"open_exact_match": 50.0}


@pytest.mark.parametrize(
    ("pattern", "prediction", "right"),
    [
        (r"Francis\s+Scott\s+Key", "francis  scott key", True),
        ("Key", "Scott Key", False),  # it has to begin there
        ("Scott", "scott key", True),  # and not to end there
        ("^Key$", "Scott\nKey", False),
        (r"(19)?84\b", "1984", True),
        ("Z\u00fcrich", "Z\u00dcRICH", True),
    ],
)
def test_patterns_match_from_the_beginning(pattern, prediction, right):
    # As Python's own say.
    flags = re.IGNORECASE | re.UNICODE | re.MULTILINE
    assert bool(re.match(pattern, prediction, flags)) == right
    assert score([pattern], prediction, True) == 100 * right
    assert compute_metrics(["pattern_match"], [[pattern]], [prediction]) == {
        "pattern_match": 100.0 * right
    }


def test_patterns_that_are_wrong_or_take_for_ever():
    hostile = "(a|aa)+$"
    began = time.process_time()
    with pytest.warns(UserWarning, match="2 patterns match nothing. The first: "):
        found = open_question_scores(
            [["(", "b"], [hostile], [hostile]],
            ["b", "a" * 60 + "b", "a" * 70 + "b"],
            True,
        )
    assert found == {"exact_match": pytest.approx(100 / 3)}
    assert time.process_time() - began < 1.4  # it is tried once
    with pytest.warns(UserWarning, match="more than 10000 characters"):
        assert score(["b" * 10_001], "b", True) == 0


def test_recall_of_passages():
    passages = [["A novel.", "Emma is by JANE\n Austen."], ["Nobody."], ["caf\u00e9s"]]
    answers = [["jane austen"], ["body"], ["Cafe\u0301s"]]
    found = answer_recall(passages, answers, [1, 2])
    assert found == {
        "recall@1": pytest.approx(100 / 3),
        "recall@2": pytest.approx(200 / 3),
    }
    assert answer_recall([["x, y"]], [["x y", "x,"]], [1]) == {"recall@1": 100.0}
    # A pattern is found anywhere, and needs no whole words.
    assert answer_recall([["Nobody."]], [["body"]], [1], True) == {"recall@1": 100.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answer_recall([[]], [["x"]]) == dict.fromkeys(
            ("recall@1", "recall@5", "recall@20"), 0.0
        )


def test_what_is_refused():
    with pytest.raises(ValueError, match="Received: 1 and 2"):
        open_question_scores([["a"]], ["a", "b"])
    with pytest.raises(ValueError, match="Received: 0 and 0"):
        answer_recall([], [])
    for counts in ([0], []):
        with pytest.raises(ValueError, match="`counts` must be some numbers"):
            answer_recall([["a"]], [["a"]], counts)


def test_patterns_with_accents_are_found_in_passages():
    found = answer_recall([["in Zürich"]], [["Zürich|Bern"]], [1], patterns=True)
    assert found == {"recall@1": 100.0}


def test_a_string_is_no_list_of_answers():
    for function, given in (
        (open_question_scores, (["Paris"], ["P"])),
        (answer_recall, ([["P"]], ["Paris"])),
    ):
        with pytest.raises(ValueError, match="must be a list of strings.*'Paris'"):
            function(*given)
