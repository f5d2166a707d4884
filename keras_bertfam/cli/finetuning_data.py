"""Examples to fine-tune on: of a task, or of a table of one's own."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from keras_bertfam import datasets
from keras_bertfam.cli.inputs import check_something


def load_own(
    data: Any,
    text: str | Sequence[str] | None,
    label: str | None,
    validation: Any,
    share: float,
    limit: int | None,
    kind: str | None = None,
) -> tuple[datasets.Examples, datasets.Examples]:
    """Load examples of a table of one's own to train on, and to validate on.

    Args:
        data: the table, see `keras_bertfam.datasets.load_examples`.
        text, label: its columns.
        validation: a table to validate on, or `None` for a share of `data`.
        share: float, this share.
        limit: int or `None`. Only so many of each.
        kind: str or `None`, see `load_examples`.

    Returns:
        Tuple of two `Examples`.
    """
    check_something(None, data)
    columns: dict[str, Any] = {"text": text, "label": label, "limit": limit}
    columns["kind"] = kind
    if validation is None:
        parts = datasets.load_examples(data, **columns, validation_split=share)
    else:
        train = datasets.load_examples(data, **columns)
        columns |= {"label_names": train.label_names, "kind": train.task.kind}
        parts = train, datasets.load_examples(validation, **columns)
    if None in [part.y for part in parts]:
        raise ValueError(
            f"`label` must be a column with labels. Received: label={label!r}."
        )
    return parts


def load_parts(
    task: datasets.TaskData,
    data: Any,
    limit: int | None,
    report: Callable[[str], object],
) -> tuple[datasets.Examples, datasets.Examples, dict[str, datasets.Examples]]:
    """Load a task's examples to train on, to validate on, and of its further parts.

    Such a part is MNLI's mismatched one.

    Args:
        task: `keras_bertfam.datasets.TaskData`.
        data: folder, or `None` to download.
        limit: int or `None`. Only so many of each.
        report: function that takes a line of text: which part isn't there.

    Returns:
        Tuple of two `Examples` and a dict of others.
    """
    if data is not None and not os.path.isdir(data):
        raise ValueError(
            "`data` must be a folder with files to train and to validate on. "
            f"Received: {os.fspath(data)!r}."
        )
    parts = {}
    for split in task.splits:
        name = split.removeprefix("validation_")
        if split in ("train", "validation") or name != split:
            try:
                parts[name] = datasets.load_examples(task, split, data, limit)
            except FileNotFoundError as error:
                if name == split:
                    raise
                report(f"No scores of {split!r}: {error}")
    for name, part in parts.items():
        if part.y is None:
            raise ValueError(
                f"{task.name!r}, split {name!r}, must have labels in {task.label!r}. "
                "Received: none."
            )
    return parts.pop("train"), parts.pop("validation"), parts
