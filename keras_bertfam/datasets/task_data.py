"""The form of a fact sheet about a task's data."""

import dataclasses
from typing import Any

_METRICS = {
    "classification": ("accuracy",),
    "regression": ("spearman", "pearson"),
    "tagging": ("entity_f1",),
    "question_answering": ("squad_f1", "squad_exact_match"),
    "multiple_choice": ("accuracy",),
    "multi_label": ("micro_f1",),
    "text_to_text": ("chrf", "bleu"),
}


@dataclasses.dataclass(frozen=True)
class TaskData:
    """The places and columns of a task's examples.

    Attributes:
        name: str.
        kind: `"classification"`, `"regression"`, `"tagging"`, `"multi_label"`,
            `"question_answering"`, `"multiple_choice"`, `"text_to_text"` or `"text"`.
        source: names of the datasets in `tensorflow_datasets`, one after the
            other; empty if it isn't there.
        columns: the inputs' columns there, and in files once `renamed`. Of
            `"multiple_choice"`: the context's; the `question`'s if there is one;
            then one with a list of choices, or one for each choice.
        label: the labels' column, or `None`.
        label_names: the classes in order.
        splits: this library's name of a split to that of `tensorflow_datasets`.
        metrics: names in `keras_bertfam.metrics`; the first is the one to watch.
            `None` means those of the kind.
        layouts: folders that the data is found as: for each split its files. The
            first whose files are there, with labels to train and to validate on,
            counts.
        header: names of the columns of files without a first line of names.
        renamed: a file's name of a column to that in `columns`, `label`.
        maximum: of a `"regression"`'s labels, which begin at 0.
        question: of `"multiple_choice"`: which column has the question that goes
            before each choice, or has it in the place of its `_`; or `None`.
        symmetric: whether the texts of a pair could change places.
        prefix: what T5's inputs begin with, `None` for the name.
        skip_broken_rows: whether rows of a table without a value for each column
            are left out, with a warning, and no error.

    Example:

    ```python
    keras_bertfam.datasets.TASKS["sst2"].label_names  # ("negative", "positive")
    # A line: {"context": "a", "question": "b", "choices": ["c", "d"], "label": 1}
    mine = keras_bertfam.datasets.TaskData(
        "mine",
        "multiple_choice",
        columns=("context", "question", "choices"),
        question="question",
    )
    keras_bertfam.datasets.load_examples(mine, data="mine.jsonl")
    ```
    """

    name: str
    kind: str
    source: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    label: str | None = "label"
    label_names: tuple[str, ...] | None = None
    splits: dict[str, str] = dataclasses.field(
        default_factory=lambda: {
            "train": "train",
            "validation": "validation",
            "test": "test",
        }
    )
    metrics: tuple[str, ...] = None  # type: ignore[assignment]  # until it is made
    layouts: tuple[dict[str, Any], ...] = ()
    header: tuple[str, ...] = ()
    renamed: dict[str, str] = dataclasses.field(default_factory=dict)
    maximum: float | None = None
    question: str | None = None
    symmetric: bool = False
    prefix: str | None = None
    skip_broken_rows: bool = False

    def __post_init__(self) -> None:
        if self.metrics is None:
            object.__setattr__(self, "metrics", _METRICS.get(self.kind, ()))

    @property
    def can_be_learned(self) -> bool:
        """bool: whether there are labels to train on, and others to validate on."""
        return bool(self.metrics) and {"train", "validation"} <= self.splits.keys()
