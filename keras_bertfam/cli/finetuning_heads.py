"""Fine-tune with a head: make the model of a task, and its inputs and labels."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_bertfam import datasets, metrics, optimizers, tasks
from keras_bertfam.datasets.task_data import TaskData
from keras_bertfam.metrics.callback import predicted_labels
from keras_bertfam.tasks.finetuning.fine_tuning import LabelledTask
from keras_bertfam.tasks.finetuning.packed_preprocessor import PackedPreprocessor
from keras_bertfam.tasks.recipes import FineTuningRecipe
from keras_bertfam.types import Model

# The class for each kind of data that a public task has.
CLASSES: dict[str, Any] = {
    kind: cls
    for cls in (getattr(tasks, name) for name in tasks.__all__)
    if (kind := getattr(cls, "data_kind", None)) is not None
}
CLASSES |= dict.fromkeys(
    ("multi_label", "answer_sets", "candidates"), CLASSES["classification"]
)
# The kind of a user's table; `None` infers it.
OWN_KIND = None


def make_model(
    task: TaskData,
    preset: str,
    load_weights: bool = True,
    sequence_length: int | None = None,
    end_head: str = "independent",
    packed: bool = False,
) -> Model:
    """Make a model for a task from a preset, with a new head.

    Args:
        task: `keras_bertfam.datasets.task_data.TaskData`.
        preset: str.
        load_weights: bool.
        sequence_length: int, or `None` for the preprocessor's default.
        end_head: see `SpanQuestionAnswering`.
        packed: bool. Whether examples share rows in training.

    Returns:
        A task with a preprocessor.

    Raises:
        ValueError: for a task without classes, a preset without a tokenizer, and
            `packed` with a task or family that doesn't take it.
    """
    check_packed(task, packed)
    cls = CLASSES[task.kind]
    several = task.kind == "multi_label"
    arguments: dict[str, Any] = {"multi_label": True} if several else {}
    labelled = issubclass(cls, LabelledTask)
    if labelled:
        if task.label_names is None:
            raise ValueError(f"{task.name!r} must have `label_names`. Received: None.")
        if len(task.label_names) < 2:
            raise ValueError(
                f"{task.name!r} must have two classes at least. Received: "
                f"{list(task.label_names)}."
            )
        arguments["label_names"] = list(task.label_names)
    if "end_head" in cls.fixed_arguments:
        arguments["end_head"] = end_head
    model = cls.from_preset(preset, load_weights=load_weights, **arguments)
    if model.preprocessor is None:
        raise ValueError(f"`preset` must have a tokenizer. Received: {preset!r}.")
    changes = lengths_of(model.preprocessor, sequence_length)
    if not labelled and hasattr(model.preprocessor, "label_names"):
        changes["label_names"] = task.label_names
    if packed:
        changes["packed"] = True
    if task.symmetric and model.preprocessor.new_tokens:  # as GPT
        changes["both_orders"] = True
    if changes:
        model.preprocessor = changed(model.preprocessor, changes)
    return model


def lengths_of(preprocessor: Any, sequence_length: int | None) -> dict[str, Any]:
    """Give the arguments of a preprocessor for rows of a length; none for `None`."""
    if sequence_length is None:
        return {}
    changes: dict[str, Any] = {"sequence_length": sequence_length}
    if "buckets" in preprocessor.get_config():
        changes["buckets"] = None
    if isinstance(preprocessor, tasks.SpanQuestionAnsweringPreprocessor):
        changes |= preprocessor.lengths_for(sequence_length)
    return changes


def changed(preprocessor: Any, changes: Mapping[str, Any]) -> Any:
    """Make a preprocessor with other arguments in place of some of its own."""
    config = preprocessor.get_config()
    own = {k: v for k, v in config.items() if k not in ("config_file", "dtype")}
    own["tokenizer"] = preprocessor.tokenizer
    return type(preprocessor)(**{**own, **changes})


def check_packed(task: TaskData, packed: bool) -> None:
    """Raise a `ValueError` for `packed` with a task that doesn't take it.

    Args:
        task: `keras_bertfam.datasets.task_data.TaskData`.
        packed: bool. Whether examples share rows in training.
    """
    cls = CLASSES[task.kind]
    if packed and not issubclass(cls.preprocessor_cls, PackedPreprocessor):
        raise ValueError(
            f"`packed` must be `False` for tasks of kind {task.kind!r}. Received: "
            f"packed={packed}, for {task.name!r}."
        )
    if packed and task.kind == "multi_label":
        raise ValueError(
            "`packed` must be `False` where texts have lists of classes. Received: "
            f"packed={packed}, for {task.name!r}."
        )


def prepare(model: Model, examples: datasets.Examples) -> tuple[Any, Any]:
    """Turn examples into the inputs and labels of `fit()`.

    Args:
        model: a task of `make_model`.
        examples: `Examples`.

    Returns:
        Tuple of inputs and labels.
    """
    return examples.x, examples.y


def optimizer(
    model: Model, learning_rate: float, recipe: FineTuningRecipe
) -> keras.optimizers.Optimizer:
    """Make the optimizer of a recipe.

    Args:
        model: a task of `make_model`.
        learning_rate: float, the peak.
        recipe: `FineTuningRecipe`.

    Returns:
        An optimizer.
    """
    return optimizers.fine_tuning_optimizer(
        model, learning_rate, **recipe.optimizer_arguments()
    )


# `Scores` computes the scores of examples and adds them to the logs.
Scores = metrics.TaskMetrics
predict = predicted_labels
