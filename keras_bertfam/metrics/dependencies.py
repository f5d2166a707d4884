"""Score dependency trees, and find the best tree by scores."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.arguments import checked


@checked
def attachment_scores(
    y_true: Sequence[Sequence[Any]],
    y_pred: Sequence[Sequence[Any]],
    counted: Sequence[Sequence[bool]] | None = None,
    subtypes: bool = False,
) -> dict[str, float]:
    """Compute the shares of words with the correct head, and also the correct relation.

    Args:
        y_true: for each sentence a list with `(head, relation)` for each word. Words
            whose relation is -100 aren't counted.
        y_pred: the same, with predicted heads and relations.
        counted: for each sentence a bool for each word: whether it is counted. `None`
            counts all words, as the script of CoNLL 2018 does. The scripts of CoNLL-X
            and 2007 leave out punctuation, see `no_punctuation`.
        subtypes: bool. Whether the part of a relation after the colon counts, as in
            `"acl:relcl"`. Defaults to `False`, as in the script of CoNLL 2018; the
            scripts of CoNLL-X and 2007 compare whole labels.

    Returns:
        Dict of `uas`, the share of words with the correct head, and `las`, the share of
        words with the correct head and relation. Both are 0 without words.

    Raises:
        ValueError: if `y_true` and `y_pred` differ in the numbers of sentences or
            words.

    Example:

    ```python
    right = [[(2, "nsubj"), (0, "root"), (2, "obj")]]
    found = [[(2, "nsubj"), (0, "root"), (2, "obl")]]
    keras_bertfam.metrics.attachment_scores(right, found)
    # {"uas": 1.0, "las": 0.667}
    ```

    References: [Zeman et al., 2018](https://aclanthology.org/K18-2001/), section 4;
    [Buchholz and Marsi, 2006](https://aclanthology.org/W06-2920/), section 3.
    """
    lists = {"y_pred": y_pred, **({} if counted is None else {"counted": counted})}
    for name, rows in lists.items():
        if [*map(len, rows)] != [*map(len, y_true)]:
            raise ValueError(
                f"`{name}` must have one for each word of each sentence of `y_true`. "
                f"Received: {sum(map(len, rows))} in {len(rows)} sentences, for "
                f"{sum(map(len, y_true))} in {len(y_true)}."
            )
    heads = both = words = 0
    for row, (right, found) in enumerate(zip(y_true, y_pred, strict=True)):
        for word, (one, other) in enumerate(zip(right, found, strict=True)):
            without = str(one[1]) == "-100"
            if without or (counted is not None and not counted[row][word]):
                continue
            words += 1
            if str(one[0]) != str(other[0]):
                continue
            heads += 1
            names = [str(each[1]) for each in (one, other)]
            if not subtypes:
                names = [name.partition(":")[0] for name in names]
            both += names[0] == names[1]
    return {"uas": heads / max(words, 1), "las": both / max(words, 1)}


def no_punctuation(words: Sequence[Sequence[str]]) -> list[list[bool]]:
    """Mark the words with a character that isn't punctuation in Unicode.

    The script of CoNLL-X leaves the other words out of the scores.

    Args:
        words: for each sentence a list of words.
    """
    return [
        [any(unicodedata.category(c)[0] != "P" for c in word) for word in row]
        for row in words
    ]


def best_tree(scores: np.ndarray) -> list[int]:
    """Find the tree with one root that has the greatest sum of scores.

    If the best heads of all words form such a tree, they are the result. Otherwise
    `networkx` finds it with the algorithm of Chu, Liu and Edmonds. For example, with
    the scores `[[2, 0, 3], [0, 2, 0]]` each of two words has the other as its best
    head, which is no tree. The best tree is `[0, 1]`, with the sum 2 + 2.

    Args:
        scores: float array `(words, words + 1)`: for each word the scores of its heads,
            that of being the root first.

    Returns:
        For each word the number of its head, counted from 1, or 0 for the root.

    Raises:
        ValueError: for another shape, or scores that aren't numbers.
        ImportError: if networkx is needed, but not installed; the `evaluation` extra
            has it.
    """
    scores = np.array(scores, float)
    broken = np.isnan(scores).any() or np.isposinf(scores).any()
    if scores.ndim != 2 or scores.shape[1] != len(scores) + 1 or broken:
        raise ValueError(
            "`scores` must be an array `(words, words + 1)` of numbers less than "
            f"infinity. Received: shape={scores.shape}"
            f"{', with nan or infinity' if broken else ''}."
        )
    words = np.arange(len(scores))
    scores[words, words + 1] = -np.inf
    heads = scores.argmax(axis=1)
    if _is_tree(heads):
        return heads.tolist()
    try:
        import networkx
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Trees need {error.name}: pip install keras-bertfam[evaluation]."
        ) from error
    # A second root must cost more than any other head can gain.
    scores[words, words + 1] = 0.0
    scores = np.clip(scores, scores[np.isfinite(scores)].max() - 1e6, None)
    scores[:, 0] -= (np.ptp(scores) + 1.0) * (len(words) + 1)
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from(
        (head, word + 1, scores[word, head])
        for word in words
        for head in range(len(words) + 1)
        if head != word + 1
    )
    tree = networkx.maximum_spanning_arborescence(graph)
    found = {int(word): int(head) for head, word in tree.edges}
    return [found[word + 1] for word in words.tolist()]


def _is_tree(heads):
    """Tell whether following heads leads from every word to a single root."""
    if np.count_nonzero(heads == 0) != 1:
        return len(heads) == 0
    above = np.array([0, *heads])
    for _ in range(len(heads).bit_length()):
        above = above[above]
    return not above.any()
