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
    if not _kinds_of(one):
        raise ValueError(
            "`preset` must be of a task that learned from labels. Received: one of "
            f"{type(one).__name__}."
        )
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
    kind, kinds = examples.task.kind, _kinds_of(_one_of(model))
    if kind not in kinds:
        raise ValueError(
            f"`preset` must be of a task for examples of kind {kind!r}. Received: one "
            f"of {type(_one_of(model)).__name__}, for the kinds {kinds}."
        )
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


def _kinds_of(one):
    """List the kinds of examples that a model answers."""
    classes = finetuning_heads.CLASSES
    if isinstance(one, tasks.TextToText):
        classes = finetuning_text.CLASSES
    kinds = sorted(kind for kind, cls in classes.items() if isinstance(one, cls))
    several = getattr(one, "multi_label", None)
    if several is not None:
        kinds = [kind for kind in kinds if (kind == "multi_label") == several]
    return kinds
