"""Score fine-tuned models on labelled examples."""

from collections.abc import Sequence
from typing import Any

from keras_bertfam import datasets, metrics, tasks
from keras_bertfam.cli import finetuning_heads, finetuning_text
from keras_bertfam.datasets import tables
from keras_bertfam.datasets.task_data import get_task
from keras_bertfam.metrics.callback import predicted_labels
from keras_bertfam.tasks.finetuning.fine_tuning import LabelledTask
from keras_bertfam.types import Model

# Kinds of a table's labels that can't be told from the labels themselves.
_TOLD_BY_MODELS = ("question_answering", "regression")


def table_of(
    model: Model,
    data: str,
    text: Sequence[str] = (),
    label: str | None = None,
    limit: int | None = None,
    name: str = "data",
) -> datasets.Examples:
    """Load a table with the labels that a fine-tuned model learned.

    The labels of a model without names are the numbers of its classes.

    Args:
        model: a fine-tuned task, or an `Ensemble`.
        data: path of the table, see `keras_bertfam.datasets.load_examples`.
        text, label: its columns.
        limit: the most examples, or `None`.
        name: of the argument with the table, for the error.

    Raises:
        ValueError: for a table without labels, or with labels of another kind.
    """
    if label is None and tables.label_of_conll(data) is None:
        raise ValueError(
            f"`label` must be the column of the labels of `{name}`. Received: None."
        )
    one = _one_of(model)
    names = getattr(one, "label_names", None)
    if names is None and isinstance(one, LabelledTask):
        names = [*map(str, range(one.num_classes))]
    kind = "text_to_text" if isinstance(one, tasks.TextToText) else one.data_kind
    return datasets.load_examples(
        data,
        limit=limit,
        text=[*text] or None,
        label=label,
        label_names=names,
        kind=kind if kind in (*_TOLD_BY_MODELS, "text_to_text") else None,
    )


def load(
    model: Model,
    task: str | None,
    data: str | None,
    split: str = "validation",
    text: Sequence[str] = (),
    label: str | None = None,
    limit: int | None = None,
) -> datasets.Examples:
    """Load the examples to score a model on.

    Args:
        model: a fine-tuned task, or an `Ensemble`.
        task: name of a task, see `get_task`, or `None` for a table of your own.
        data: the task's folder or files, or your table. `None` downloads the task.
        split: part of the task.
        text, label: columns of your table.
        limit: the most examples, or `None`.

    Raises:
        ValueError: for examples without labels, or of a kind that the model doesn't
            answer.
    """
    if task is None:
        examples = table_of(model, str(data), text, label, limit)
    else:
        examples = datasets.load_examples(get_task(task), split, data, limit)
    _check_kind(_one_of(model), examples)
    if examples.y is None:
        raise ValueError(
            f"`split` must be a part of {task!r} that has labels. Received: {split!r}."
        )
    return examples


def score(model: Model, examples: datasets.Examples) -> dict[str, Any]:
    """Compute the task's metrics of a model's answers.

    Questions count as unanswerable by the threshold that the model was saved with.

    Args:
        model: a fine-tuned task, or an `Ensemble`.
        examples: what `load` gives.

    Returns:
        A dict: `examples`, their number, and the metrics.
    """
    targets = examples.targets or []
    if isinstance(model, tasks.TextToText):
        scores = finetuning_text.Scores(examples).compute(model)
    else:
        answers = predicted_labels(model, examples)
        scores = metrics.compute_metrics(examples.task.metrics, targets, answers)
    return {"examples": len(targets), **scores}


def _one_of(model):
    return model.models[0] if isinstance(model, tasks.Ensemble) else model


def _check_kind(one, examples):
    """Raise a `ValueError` for examples that a model doesn't answer."""
    kind = examples.task.kind
    classes = {**finetuning_heads.CLASSES}
    if isinstance(one, tasks.TextToText):
        classes = finetuning_text.CLASSES
    taken = sorted(name for name, cls in classes.items() if isinstance(one, cls))
    if isinstance(one, tasks.TextClassifier):
        several = one.multi_label
        taken = [name for name in taken if (name == "multi_label") == several]
    if kind not in taken:
        raise ValueError(
            f"`preset` must be of a task for examples of kind {kind!r}. Received: one "
            f"of {type(one).__name__}, for the kinds {taken}."
        )
