"""Fine-tune as T5 does: examples become pairs of texts, and the model writes answers.

This module has the same functions as `finetuning_heads`.
"""

from typing import Any

import keras

from keras_bertfam import datasets, metrics, optimizers, tasks
from keras_bertfam.cli.prediction import write_texts
from keras_bertfam.datasets import text_to_text
from keras_bertfam.datasets.task_data import TaskData
from keras_bertfam.tasks.recipes import FineTuningRecipe, recipe_of
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Model

OWN_KIND = "text_to_text"
_AT_ONCE = 2048
CLASSES: dict[str, Any] = dict.fromkeys(text_to_text.KINDS, tasks.TextToText)


def make_model(
    task: TaskData,
    preset: str,
    load_weights: bool = True,
    sequence_length: int | None = None,
    end_head: str = "independent",
    packed: bool = False,
) -> Model:
    """Load a `TextToText` from a preset.

    Args:
        task: `keras_bertfam.datasets.task_data.TaskData`.
        preset: str.
        load_weights: bool.
        sequence_length: int, or `None` for the preset's.
        end_head: not read; `finetuning_heads` has it.
        packed: bool. Whether pairs share rows in training.

    Returns:
        A task with a `TextToTextPreprocessor`.

    Raises:
        ValueError: for a preset without a tokenizer.
    """
    model = tasks.TextToText.from_preset(preset, load_weights=load_weights)
    before = model.preprocessor
    if before is None:
        raise ValueError(f"`preset` must have a tokenizer. Received: {preset!r}.")
    model.preprocessor = tasks.TextToTextPreprocessor(
        before.tokenizer,
        sequence_length or before.sequence_length,
        packed=packed,
        decoder_start_token_id=before.decoder_start_token_id,
    )
    return model


def prepare(model: Model, examples: datasets.Examples) -> tuple[Any, Any]:
    """Turn examples into pairs of texts, and set the lengths of the model's rows.

    Args:
        model: a task of `make_model`. Its rows get room for the longest target.
        examples: `Examples`.

    Returns:
        Tuple of inputs and targets, lists of strings.
    """
    inputs, given = datasets.as_text_pairs(examples)
    targets = given or []
    config = model.preprocessor
    longest = 3
    for start in range(0, len(targets), _AT_ONCE):
        tokens = tokenize(config.tokenizer, to_utf8(targets[start : start + _AT_ONCE]))
        most = int(tokens.row_lengths().numpy().max())
        longest = max(longest, most + config.layout.specials)
    longest = min(longest, model.backbone.max_sequence_length or longest)
    model.preprocessor = tasks.TextToTextPreprocessor(
        config.tokenizer,
        config.sequence_length,
        target_length=longest,
        packed=config.packed,
        decoder_start_token_id=config.decoder_start_token_id,
    )
    return inputs, targets


def optimizer(
    model: Model, learning_rate: float, recipe: FineTuningRecipe
) -> keras.optimizers.Optimizer:
    """Make the recipe's optimizer, or Adafactor if the family was pre-trained by it.

    Its rate is constant (Raffel et al., 2019, section 3.1.2).

    Args:
        model: a `TextToText`.
        learning_rate: float.
        recipe: `FineTuningRecipe`.

    Returns:
        An optimizer.
    """
    if recipe_of(model).optimizer == "adafactor":
        return optimizers.Adafactor(learning_rate)
    return optimizers.fine_tuning_optimizer(
        model, learning_rate, **recipe.optimizer_arguments()
    )


class Scores(metrics.TaskMetrics):
    """Score, as `TaskMetrics` does, the texts that a `TextToText` writes."""

    def compute(self, model: Model | None = None) -> dict[str, float]:
        texts = _written(model or self.model, self.examples, self.batch_size)
        return datasets.score_texts(self.examples, texts)


def predict(model: Model, examples: datasets.Examples) -> list[Any]:
    """Predict labels in the form that a benchmark's site takes: only the task's own.

    Args:
        model: a `TextToText`.
        examples: `Examples`.

    Returns:
        A list of class numbers, or of numbers for a regression. A text that names no
        class counts as class 0; a text that isn't a number counts as -1.
    """
    labels = text_to_text.labels_of_texts(examples, _written(model, examples))
    if examples.task.kind == "regression":
        return labels
    return [max(label, 0) for label in labels]


def _written(model, examples, batch_size=32):
    inputs, _ = datasets.as_text_pairs(examples)
    return write_texts(model, inputs, batch_size)
