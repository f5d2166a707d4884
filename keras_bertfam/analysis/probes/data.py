"""Labels that probes predict: of words, of spans and of pairs of spans."""

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
    """Make labels for `probe` from dependency arcs: labels of pairs of words.

    Args:
        heads: for each sentence a list of ints or strings, as in the column HEAD of
            CoNLL-U: the number, counted from 1, of the word that each word depends on,
            and 0 for a root. `datasets.load_examples("my.conllu", label="head").y` has
            them.
        relations: for each sentence a list of strings, the relations; they are the
            labels. With `None` the labels are `"arc"` and `"none"`: for each arc there
            is also a pair of the dependent and a random word that it doesn't depend on.
        seed: int, for the random words.

    Returns:
        For each sentence a list of tuples `(dependent, head, label)`. Words are counted
        from 0. The label is a relation, `"arc"` or `"none"`. Roots have no arc.

    Raises:
        ValueError: for heads outside their sentence, or another number of relations
            than of heads.

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
        raise ValueError("`relations` must have a relation for each of `heads`.")
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
    """Make labels for `probe` from the tags of entities: labels of spans.

    Args:
        tags: for each sentence a list of tags, such as `"B-person"`, `"I-person"` and
            `"O"`. The label -100, of words without a tag, is read as `"O"`.
        scheme: see `keras_bertfam.metrics.scheme_of`. `None` derives it from `tags`.

    Returns:
        For each sentence a list of `((begin, end), kind)`, as seqeval reads the tags.
        Words are counted from 0, and `end` is the word after the last one.

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
    """Labels, and the places of their words.

    Attributes:
        places: int array `(targets, spans, 2)`: begin and end of each span among the
            words of all sentences.
        labels: int array `(targets,)`: the number of each target's row in `sets`.
        names: list of the labels, sorted.
        sets: bool array `(sets, names)`: a row for each set of labels that a target
            has, with `True` for its labels. If all targets have one label, the rows are
            those of the labels, in the order of `names`.
        sentences: int array `(targets,)`, the number of each target's sentence.
        kinds: int array `(targets,)`, a number for the words of the first span: equal
            words have equal numbers.
    """

    places: np.ndarray
    labels: np.ndarray
    names: list[Any]
    sets: np.ndarray
    sentences: np.ndarray
    kinds: np.ndarray

    def control_labels(self, rows: np.ndarray, seed: int = 0) -> np.ndarray:
        """Draw a label, or a set of labels, for each distinct word.

        The probability of a label is its frequency among `rows`.

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
    """Read labels in each form that `probe` takes.

    Raises:
        ValueError: for another number of labels than of words, spans outside their
            sentence, targets of one span mixed with targets of two, and no label at
            all.
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
            "`labels` must have at least one label, each of one span or each of two. "
            f"Received: {len(found)} labels of {sorted({*map(len, places)})} spans."
        )
    names = sorted({*itertools.chain(*found)}, key=_order)
    if not names:
        raise ValueError(
            "`labels` must have at least one label. Received: only empty lists."
        )
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
    """Give the distinct labels of a target, sorted."""
    names = set(label) if isinstance(label, list) else {label}
    return tuple(sorted(names, key=_order))


def _order(name):
    return str(type(name)), name


def _of_words(given, row, length):
    """Give the spans and the labels of the words of a sentence that have one."""
    if len(given) != length:
        raise ValueError(
            "`labels` must have a label for each word, or tuples of spans and a label. "
            f"Received in row {row}: {len(given)} for {length} words."
        )
    pairs = enumerate(given)
    # Tasks leave these out, too.
    nothing = (None, -100, "-100")
    return [([(k, k + 1)], label) for k, label in pairs if label not in nothing]


def _of_spans(given, row, length):
    """Give the spans and the labels of the targets of a sentence."""
    found = []
    for target in given:
        if not isinstance(target, (list, tuple)) or len(target) not in (2, 3):
            raise ValueError(
                "`labels` must be a label for each word, or tuples of one or two spans "
                f"and a label. Received in row {row}: {target!r}."
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
