"""What probes predict: labels of words, of spans and of pairs of them."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.metrics import scheme_of
from keras_bertfam.metrics.scores import METRICS, entity_spans


@checked
def arcs(
    heads: Sequence[Sequence[int]],
    relations: Sequence[Sequence[str]] | None = None,
    seed: int = 0,
) -> list[list[tuple[int, int, str]]]:
    """Make labels of pairs of words, for `probe`, of dependency arcs.

    Args:
        heads: for each sentence a list of ints: which word, counted from 1, each one
            depends on; 0 for a root, as in the column HEAD of CoNLL-U, which
            `datasets.load_examples("my.conllu", label="head").y` has; also as strings.
        relations: for each sentence a list of strings, the relations, which are then
            the labels. `None` asks whether there is an arc: for each one there is a
            pair of the dependent with a random word that it doesn't depend on.
        seed: int, of these words.

    Returns:
        For each sentence a list of `(dependent, head, label)`, the words counted from
        0: a relation, or `"arc"` or `"none"`. Roots have no arc.

    Raises:
        ValueError: for heads out of their sentence, or other numbers of relations.

    Example:

    ```python
    from keras_bertfam.analysis.probes.data import arcs
    arcs([[2, 0, 2]], [["nsubj", "root", "obj"]])
    # [[(0, 1, "nsubj"), (2, 1, "obj")]]
    ```

    References: [Tenney et al., 2019](https://arxiv.org/abs/1905.05950), section 3;
    [Liu et al., 2019](https://arxiv.org/abs/1903.08855), section 3.
    """
    if relations is not None and [*map(len, heads)] != [*map(len, relations)]:
        raise ValueError("`relations` must have one for each of `heads`.")
    rng = np.random.default_rng(seed)
    found: list[list[tuple[int, int, str]]] = []
    for row, each in enumerate(heads):
        given = [int(head) if str(head).isdecimal() else -1 for head in each]
        if not all(0 <= head <= len(given) for head in given):
            raise ValueError(
                "`heads` must be numbers of words of their sentence, or 0. Received "
                f"in row {row}: {list(each)}."
            )
        pairs = [(word, head - 1) for word, head in enumerate(given) if head]
        if relations is not None:
            labels = relations[row]
            found.append([(word, head, labels[word]) for word, head in pairs])
            continue
        found.append([])
        for word, head in pairs:
            found[-1].append((word, head, "arc"))
            others = [k for k in range(len(given)) if k not in (word, head)]
            if others:
                found[-1].append((word, int(rng.choice(others)), "none"))
    return found


def entities(
    tags: Sequence[Sequence[str]], scheme: str | None = None
) -> list[list[tuple[tuple[int, int], str]]]:
    """Make labels of spans, for `probe`, of the tags of entities.

    Args:
        tags: for each sentence a list of tags, such as `"B-person"`, `"I-person"` and
            `"O"`; -100, of words without a label, is read as that.
        scheme: see `keras_bertfam.metrics.scheme_of`; `None` to tell it from `tags`.

    Returns:
        For each sentence a list of `((begin, end), kind)`, the words counted from 0
        and `end` the first one behind, as seqeval reads the tags.

    Raises:
        ValueError: for another scheme.
        ImportError: without seqeval, which the `evaluation` extra has.

    Example:

    ```python
    keras_bertfam.analysis.entities([["B-person", "I-person", "O"]])
    # [[((0, 2), "person")]]
    ```
    """
    METRICS["entity_f1"].load()
    scheme = scheme or scheme_of(tag for row in tags for tag in row)
    return [
        [((begin, end), kind) for begin, end, kind in entity_spans(row, scheme)]
        for row in tags
    ]


@dataclasses.dataclass(frozen=True)
class Targets:
    """Labels and where the words are that they are of.

    Attributes:
        places: int array `(targets, spans, 2)`: begin and end of each span among the
            words of all sentences.
        labels: int array `(targets,)`: which of `sets` each one has.
        names: list of the labels, sorted.
        sets: bool array `(sets, names)`: which labels targets have together; a row for
            each label, in this order, where all have one.
        sentences: int array `(targets,)`, the number of each one's sentence.
        kinds: int array `(targets,)`, the same number where the words of the first
            span are the same.
    """

    places: np.ndarray
    labels: np.ndarray
    names: list[Any]
    sets: np.ndarray
    sentences: np.ndarray
    kinds: np.ndarray

    def control_labels(self, rows: np.ndarray, seed: int = 0) -> np.ndarray:
        """Draw a label, or a set of them, for each kind of word.

        Each is drawn as often as it is among some rows.

        Args:
            rows: int array, numbers of targets.
            seed: int.
        """
        counts = np.bincount(self.labels[rows], minlength=len(self.sets))
        rng = np.random.default_rng(seed)
        of_kinds = rng.choice(
            len(self.sets), self.kinds.max() + 1, p=counts / counts.sum()
        )
        return of_kinds[self.kinds]


def check_lists(
    words: Sequence[Sequence[str]], labels: Any, name: str = "labels"
) -> None:
    """Raise a `ValueError` unless labels are a list for each sentence."""
    lists = np.iterable(labels) and not isinstance(labels, (str, bytes))
    lists = lists and all(
        np.iterable(row) and not isinstance(row, str) for row in labels
    )
    if lists and any(label != label for row in labels for label in row):
        raise ValueError(
            f"`{name}` must be labels, or `None` where there is none. Received: nan."
        )
    if not lists or len(labels) != len(words):
        count = len(labels) if lists else repr(labels)
        raise ValueError(
            f"`{name}` must have a list of labels for each sentence. Received: "
            f"{count} for {len(words)}."
        )


def read_targets(words: Sequence[Sequence[str]], labels: Sequence[Any]) -> Targets:
    """Read labels in any of the forms that `probe` takes.

    Raises:
        ValueError: for another number of labels than of words, spans out of their
            sentence, targets of one span and of two, and no label at all.
    """
    places, found, sentences, kinds = [], [], [], []
    nested = any(isinstance(label, (list, tuple)) for row in labels for label in row)
    read = _of_spans if nested else _of_words
    begin = 0
    for row, (sentence, given) in enumerate(zip(words, labels, strict=True)):
        for spans, label in read(given, row, len(sentence)):
            places.append([(begin + first, begin + end) for first, end in spans])
            found.append(_names(label))
            sentences.append(row)
            kinds.append(tuple(sentence[slice(*spans[0])]))
        begin += len(sentence)
    if len({len(spans) for spans in places}) != 1:
        raise ValueError(
            "`labels` must have one, of a span or of two, and each of as many. "
            f"Received: {len(found)} labels of {sorted({*map(len, places)})} spans."
        )
    names = sorted({*itertools.chain(*found)}, key=_order)
    if not names:
        raise ValueError("`labels` must have one. Received: empty lists of them only.")
    numbers = {name: number for number, name in enumerate(names)}
    together = sorted(set(found), key=lambda names: [numbers[name] for name in names])
    of_sets = {each: number for number, each in enumerate(together)}
    of_kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return Targets(
        np.array(places),
        np.array([of_sets[each] for each in found]),
        names,
        np.array([[name in each for name in names] for each in together]),
        np.array(sentences),
        np.array([of_kinds[kind] for kind in kinds]),
    )


def _names(label):
    """Give the labels of a target, each once and in order: a list has any number."""
    names = set(label) if isinstance(label, list) else {label}
    return tuple(sorted(names, key=_order))


def _order(name):
    return str(type(name)), name


def _of_words(given, row, length):
    """Give the spans and the labels of the words of a sentence that have one."""
    if len(given) != length:
        raise ValueError(
            "`labels` must have one for each word, or tuples of spans and a label. "
            f"Received in row {row}: {len(given)} for {length} words."
        )
    pairs = enumerate(given)
    return [([(k, k + 1)], label) for k, label in pairs if label is not None]


def _of_spans(given, row, length):
    """Give the spans and the labels of the targets of a sentence."""
    found = []
    for target in given:
        if not isinstance(target, (list, tuple)) or len(target) not in (2, 3):
            raise ValueError(
                "`labels` must be one for each word, or tuples of one or two spans and "
                f"a label. Received in row {row}: {target!r}."
            )
        *spans, label = target
        found.append(([_span(span, row, length, target) for span in spans], label))
    return found


def _span(span, row, length, target):
    ends = [*span] if isinstance(span, (list, tuple)) else [span]
    whole = all(isinstance(k, (int, np.integer)) for k in ends) and len(ends) < 3
    first, end = (ends[0], ends[-1] + (len(ends) == 1)) if whole and ends else (0, 0)
    if not 0 <= first < end <= length:
        raise ValueError(
            f"Spans of `labels` must be within the {length} words of their sentence. "
            f"Received in row {row}: {target}."
        )
    return int(first), int(end)
