"""Attachment scores by hand, and trees beside all trees there are."""

import itertools

import numpy as np
import pytest

from keras_bertfam.metrics import attachment_scores, compute_metrics
from keras_bertfam.metrics.dependencies import best_tree, no_punctuation

pytestmark = pytest.mark.any_backend
RIGHT = [[(2, "det"), (0, "root"), (2, "obj"), (2, "punct")]]
FOUND = [[(2, "det"), (0, "root"), (1, "obj"), (3, "punct")]]


def test_scores_count_as_the_scripts_do():
    assert attachment_scores(RIGHT, FOUND) == {"uas": 0.5, "las": 0.5}
    counted = no_punctuation([["the", "dog", "it's", "...»"]])
    assert counted == [[True, True, True, False]]
    found = attachment_scores(RIGHT, FOUND, counted)
    assert found == pytest.approx({"uas": 2 / 3, "las": 2 / 3})
    right, other = [[(0, "acl:relcl"), (1, "-100")]], [[("0", "acl"), (1, "x")]]
    assert attachment_scores(right, other) == {"uas": 1.0, "las": 1.0}
    assert attachment_scores(right, other, subtypes=True)["las"] == 0
    assert compute_metrics(["las", "uas"], RIGHT, FOUND) == {"las": 0.5, "uas": 0.5}
    assert attachment_scores([[]], [[]]) == {"uas": 0.0, "las": 0.0}
    with pytest.raises(ValueError, match="Received: 4 in 1 sentences, for 8 in 2"):
        attachment_scores(RIGHT * 2, FOUND)


def test_words_of_tags_have_a_macro_f1_of_their_own():
    right, found = [["O", "I-PAR", "O"], [-100]], [["O", "O", "O"], ["O"]]
    scores = compute_metrics(["word_macro_f1"], right, found)
    assert scores["word_macro_f1"] == pytest.approx((2 * 2 / 5 + 0) / 2)


def trees(words):
    """All heads that make a tree of one root."""
    for heads in itertools.product(range(words + 1), repeat=words):
        if heads.count(0) != 1:
            continue
        above = dict(enumerate((0, *heads)))
        at = list(above)
        for _ in range(words):
            at = [above[k] for k in at]
        if not any(at):
            yield heads


def test_the_best_tree_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    for words in (1, 2, 3, 4, 4, 4, 4):
        scores = rng.normal(0, 3, (words, words + 1))
        scores[:, 0] += 3 * (rng.random() < 0.5)  # greedily there are several roots
        each = range(words)
        best = max(trees(words), key=lambda heads: scores[each, heads].sum())
        assert best_tree(scores) == [*best]
    # Greedily each is the head of the other.
    assert best_tree(np.array([[5.0, 0, 9], [4, 10, 0]])) == [0, 1]
    masked = np.array([[0.0, -1e30, -1e30], [1.0, -1e30, -1e30]])
    assert sorted(best_tree(masked)) in ([0, 1], [0, 2])
    assert best_tree(np.zeros((0, 1))) == []
    with pytest.raises(ValueError, match="shape=\\(2, 2\\)"):
        best_tree(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="with nan"):
        best_tree(np.full((1, 2), np.nan))
