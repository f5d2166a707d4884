"""What tags of words mean: the schemes of entities, and words without a label."""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

SCHEMES = ("CONLL", "IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU")
# Beginnings of tags that one scheme alone has.
_TELLING = {"IOBES": {"E", "S"}, "BILOU": {"L", "U"}}
_NO_LABEL = (-100, "-100")


def scheme_of(tags: Iterable[Any]) -> str:
    """Tell the scheme of tags of entities, such as `"B-PER"`.

    Args:
        tags: iterable of tags, or of the names of all classes.

    Returns:
        `"BILOU"` or `"IOBES"` by their last and single words, `"L-"` and `"U-"` or
        `"E-"` and `"S-"`; else `"CONLL"`: the official reading of `"B-"` and `"I-"`,
        by which an entity may begin with either.

    Raises:
        ValueError: for tags of both.

    Example:

    ```python
    keras_bertfam.metrics.scheme_of(["O", "U-PER", "B-PER", "L-PER"])  # "BILOU"
    ```
    """
    begins = {str(tag)[0] for tag in {*tags} if str(tag)[1:2] == "-"}
    found = [name for name, letters in _TELLING.items() if letters & begins]
    if len(found) > 1:
        raise ValueError(
            f"Tags must be of one scheme: give `scheme`, one of {SCHEMES}. Received: "
            f"tags that begin with {sorted(begins)}."
        )
    return found[0] if found else SCHEMES[0]


def check_scheme(scheme: str | None) -> None:
    """Raise a `ValueError` for a scheme that isn't known."""
    if scheme is not None and scheme not in SCHEMES:
        raise ValueError(
            f"`scheme` must be `None` or one of {SCHEMES}. Received: {scheme!r}."
        )


def entity_scheme(name: str) -> Any:
    """Load seqeval's class of a scheme other than `"CONLL"`."""
    return getattr(importlib.import_module("seqeval.scheme"), name)


def with_labels(
    y_true: Sequence[Sequence[Any]], y_pred: Sequence[Sequence[Any]]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Leave words out whose right tag is -100, which means none.

    Raises:
        ValueError: for unequal lists.
    """
    rows = [
        [pair for pair in zip(*both, strict=True) if pair[0] not in _NO_LABEL]
        for both in zip(y_true, y_pred, strict=True)
    ]
    return [[a for a, _ in row] for row in rows], [[b for _, b in row] for row in rows]


def entity_spans(
    tags: Sequence[str], scheme: str | None = None
) -> list[tuple[int, int, str]]:
    """Find the entities of a sentence.

    Args:
        tags: sequence of tags; -100 is read as `"O"`.
        scheme: see `scheme_of`; `None` to tell it from these.

    Returns:
        A list of `(begin, end, kind)`, in order, `end` the first word behind.

    Raises:
        ImportError: without seqeval, which the `evaluation` extra has.
        ValueError: for another scheme.
    """
    check_scheme(scheme)
    row = ["O" if tag in _NO_LABEL else str(tag) for tag in tags]
    scheme = scheme or scheme_of(row)
    if scheme == "CONLL":
        labeling = importlib.import_module("seqeval.metrics.sequence_labeling")
        return [(a, b + 1, kind) for kind, a, b in labeling.get_entities(row)]
    found = importlib.import_module("seqeval.scheme").Entities(
        [row], entity_scheme(scheme)
    )
    return [(each.start, each.end, each.tag) for each in found.entities[0]]
