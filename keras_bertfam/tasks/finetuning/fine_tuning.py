"""Share code among fine-tuning tasks: raw inputs, defaults, named labels, reports."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution, optimizers
from keras_bertfam.analysis.reliability import calibration
from keras_bertfam.analysis.report import (
    Report,
    answer_report,
    class_report,
    label_set_report,
    number_report,
)
from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.labels import check_labels, class_numbers
from keras_bertfam.layers.data.pipelines import (
    check_at_least,
    checked_batch_size,
    remember_count,
)
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.exported import row_specs
from keras_bertfam.optimizers.layerwise import fine_tuning_epsilon
from keras_bertfam.presets.converting.heads import FINE_TUNING, Counterpart
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.recipes import FineTuningRecipe
from keras_bertfam.tasks import torch_graph
from keras_bertfam.tasks.finetuning.adversarial import (
    SoftCrossentropy,
    adversarial_loss,
    check_adversarial,
)
from keras_bertfam.tasks.finetuning.packed_preprocessor import check_packed
from keras_bertfam.tasks.inputs import (
    is_arrays,
    is_preprocessed,
    remember_shapes,
)
from keras_bertfam.tasks.losses import (
    MaskedCrossentropy,
    UnweightedAccuracy,
    WeightedMeanLoss,
)
from keras_bertfam.tasks.resizing import with_new_tokens
from keras_bertfam.tasks.summary import (
    is_encoder_decoder,
)
from keras_bertfam.tasks.task import PretrainingTask
from keras_bertfam.types import Config, Mixin, Model, Tensor


class FineTuningTask(PretrainingTask):
    """Base class of the fine-tuning tasks, for any backbone of the library.

    `fit()`, `evaluate()` and `predict()` take raw inputs. `fit()` passes arrays and
    lists through `preprocessor.dataset`, which shuffles them and puts examples of
    similar length into a batch; `shuffle=False` turns that off. A `tf.data.Dataset` is
    used in its own order. `class_weight` and `sample_weight` weight the loss. Default
    metrics count every example once, except those of weight 0.

    Args:
        backbone: a backbone.
        preprocessor: a `FineTuningPreprocessor`, or `None` for data that is
            preprocessed already.
        **kwargs: arguments of `keras.Model`.

    Attributes:
        data_kind: kind of the tasks of `keras_bertfam.datasets` on which this task is
            fine-tuned; `None` for none of them.
        usual_learning_rate: default learning rate of `compile()`; `None` for the
            greatest rate in the published grid of the backbone's family.
        one_row_each: whether each example is one row.
        pipeline: the name of this kind of task on model hubs, or `None`.
        text_columns: the columns of a table that `answers` reads by default; empty if
            the task answers no tables.
        counterpart: the corresponding class of `transformers`, or `None`.
        serving_signatures: method that makes the signatures of its SavedModel, from a
            preprocessor and options of `export_saved_model`; `None` for no SavedModel.
        merged: static function that takes several models of the task and their
            predictions, and returns joint predictions, from which `told` makes answers.
            `None` for a task that `Ensemble` doesn't take.
    """

    backbone_cls: Any = TokenBackbone
    data_kind: str | None = None
    pipeline: str | None = None
    text_columns: tuple[str, ...] = ()
    counterpart: Counterpart | None = None
    serving_signatures: Any = None
    merged: Any = None
    one_row_each = True
    usual_learning_rate: float | None = None
    noise_seed: keras.random.SeedGenerator | None = None
    _adversarial_weight = 0.0

    def __init__(
        self, backbone: Model, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        check_packed(preprocessor, backbone)
        backbone = with_new_tokens(backbone, preprocessor)
        super().__init__(backbone, preprocessor, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if vars(cls).get("counterpart"):
            FINE_TUNING.enter(cls.__name__, cls)

    def input_signature(self) -> dict[str, keras.InputSpec]:
        if not is_encoder_decoder(self.backbone):
            return super().input_signature()
        return row_specs(("token_ids", "padding_mask", *self.extra_inputs))

    @property
    def optimizer_defaults(self) -> dict[str, Any]:
        recipe = self.published_recipe()
        return {
            "learning_rate": self.usual_learning_rate or max(recipe.learning_rates),
            "warmup_steps": recipe.warmup_steps,
            "weight_decay": recipe.weight_decay,
            "epsilon": fine_tuning_epsilon(self),
        }

    def published_recipe(self) -> FineTuningRecipe:
        record = self.backbone.record or FAMILIES["bert"]
        layers = getattr(self.backbone, "num_layers", None)
        return record.fine_tuning_recipes(self.backbone.hidden_dim, layers)[""]

    def make_optimizer(self, **arguments: Any) -> keras.optimizers.Optimizer:
        recipe = self.published_recipe()
        if recipe.layer_decay == 1:
            return super().make_optimizer(**arguments)
        return optimizers.fine_tuning_optimizer(
            self, **{**recipe.optimizer_arguments(), **arguments}
        )

    def unused_variables(self) -> list[keras.Variable]:
        # XLNet's tokens to be predicted start from this state.
        query = getattr(self.backbone, "query_embedding", None)
        return [*super().unused_variables(), *(query.variables if query else [])]

    @checked
    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = None,
        adversarial_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Compile as other tasks do, with `metrics` in place of the default ones.

        `optimizer="auto"` has the settings of the family's fine-tuning: its greatest
        rate, its warm-up and weight decay, and smaller rates for lower layers if the
        family has them. Give your own metrics as `weighted_metrics`: then they leave
        out rows of weight 0, such as those that fill up the last batch of
        `preprocessor.dataset`.

        With an `adversarial_weight`, training is virtually adversarial, as in DeBERTa's
        scale-invariant fine-tuning. Noise of 1 % of the embeddings' standard deviation
        is added to them, and moved one step in the direction in which outputs change
        the most. The cross-entropies between these outputs and the usual ones, in both
        directions, are multiplied by the weight and added to the loss; for numbers,
        their squared difference. A step computes three times as much. Published weights
        are 5, and 3 for the smallest DeBERTa.

        Raises:
            ValueError: for an `adversarial_weight` with a task that doesn't predict
                classes or numbers.
        """
        check_adversarial(self, adversarial_weight)
        given = adversarial_weight or None
        torch_graph.check_part(kwargs.get("jit_compile"), "adversarial_weight", given)
        if metrics is not None:
            kwargs.setdefault("weighted_metrics", None)
        super().compile(optimizer, loss, metrics=metrics, **kwargs)
        self._adversarial_weight = adversarial_weight
        if given and self.noise_seed is None:
            with distribution.scope_of(self):
                self.noise_seed = keras.random.SeedGenerator()

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        if config and self._adversarial_weight:
            config = {**config, "adversarial_weight": self._adversarial_weight}
        return config

    def soft_loss(self) -> WeightedMeanLoss | None:
        """Make the loss that compares outputs with other outputs as targets.

        `None` for a task that can't be trained with an `adversarial_weight`.
        """
        return None

    def soft_targets(self, outputs: Tensor) -> Tensor:
        """Turn what the model returns into targets for `soft_loss`."""
        return outputs

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor | None:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if training and self._adversarial_weight:
            added = adversarial_loss(self, x, y_pred, sample_weight)
            loss += self._adversarial_weight * added
        return loss

    def _takes_raw(self, x):
        raw = is_arrays(x) and not is_preprocessed(x)
        return self.preprocessor is not None and raw

    @checked
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        if self._takes_raw(x) and kwargs.get("class_weight") is not None:
            if kwargs.get("sample_weight") is not None:
                raise ValueError(
                    "`class_weight` and `sample_weight` can't both be given."
                )
            weights = self.preprocessor.weights_of_classes(y, kwargs["class_weight"])
            kwargs |= {"sample_weight": weights, "class_weight": None}
        elif kwargs.get("class_weight") is not None and self.preprocessor is not None:
            of_numbers = self.preprocessor.weights_by_number(kwargs["class_weight"])
            kwargs["class_weight"] = of_numbers
        return super().fit(x, y, batch_size, epochs, **kwargs)

    def _rows(self, x, y=None, sample_weight=None):
        if not self._takes_raw(x):
            return super()._rows(x, y, sample_weight)
        return self.preprocessor.from_arrays(x, y, sample_weight)

    def _batched(self, data, batch_size, position=None):
        x, *_ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
        if not self._takes_raw(x):
            return super()._batched(data, batch_size, position)
        training = position is not None
        packed = training and getattr(self.preprocessor, "packed", False)
        if packed:  # it may have been set after the constructor
            check_packed(self.preprocessor, self.backbone)
        batches = self.preprocessor.dataset(data, batch_size, training=training)
        if self.one_row_each and not packed:
            remember_count(batches, -(-len(data) // batch_size))
        return remember_shapes(batches, len(self.preprocessor.lengths()))

    @checked
    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        if not self._takes_raw(x):
            return super().predict(x, batch_size=batch_size, **kwargs)
        size, steps = checked_batch_size(batch_size), kwargs.get("steps")
        batches, places = self.preprocessor.inputs(
            x, size, steps, any_length=not self.jit_compile
        )
        outputs = super().predict(batches, **kwargs)
        return keras.tree.map_structure(lambda part: part[places], outputs)

    def inputs_of(self, columns: Sequence[Sequence[Any]]) -> Any:
        """Turn a table's columns into the inputs of `predict()`.

        Args:
            columns: see `answers`.
        """
        return columns[0] if len(columns) == 1 else tuple(columns)

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        """Answer the rows of a table, in the form that the command `predict` writes.

        Args:
            columns: for each of `text_columns`, or of other columns given in their
                place, a sequence of the rows' values.

        Yields:
            For each row a dict that JSON can hold.
        """
        raise TypeError(f"{type(self).__name__} must define `answers`.")

    @checked
    def report(
        self, x: Any, y: Any, batch_size: int = 32, worst: int | None = 10
    ) -> Report:
        """Report how good the model is on labelled examples, and where it is worst.

        Args:
            x: what `fit()` takes, a batch.
            y: the labels, as for `fit()`.
            batch_size: int.
            worst: int. The most errors that the report lists; `None` for all.

        Returns:
            A `keras_bertfam.analysis.report.Report`, with what fits the labels:

            - classes of texts or words, and choices: accuracy, macro F1 and Matthews
              correlation, a confusion matrix and a table of the classes. Two classes
              add the F1 of the second one, tags (`"B-PER"`) seqeval's F1 of entities,
              and all except words the expected calibration error. Every word counts,
              and each one the same, as in `tag()`.
            - lists of classes: micro and macro F1, the share of texts with all classes
              correct, the share of correct decisions, and a table of the classes.
            - numbers, and the similarities that a `TextEmbedder` is trained on:
              Pearson's and Spearman's correlations, and the errors.
            - answers: SQuAD's scores.

        Raises:
            ValueError: if the task has no preprocessor, and for what `fit()` refuses.
            ImportError: without scikit-learn and SciPy, which the `evaluation` extra
                installs.
        """
        if self.preprocessor is None:
            raise ValueError("`report` needs a task with a preprocessor.")
        check_at_least(0, worst=worst)
        rows = self.preprocessor.from_arrays(x, y)
        batches = self.preprocessor.batch(rows, len(rows))
        x, labels = batches.get_single_element()
        return self._report(x, labels, y, batch_size, worst)

    def _report(self, x, labels, given, batch_size, worst):
        """Make the report from checked tensors of strings and labels."""
        raise TypeError(f"{type(self).__name__} must define `_report`.")


class LabelledTask(Mixin):
    """Mixin of tasks with `num_classes`, `label_names` and `activation`."""

    label_kind = "class"

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Compute probabilities of the classes from what the model returns."""
        return outputs if self.activation == "softmax" else ops.softmax(outputs)

    def activate(self, logits: Tensor) -> Tensor:
        """Apply the activation to what the model returns."""
        return ops.softmax(logits) if self.activation == "softmax" else logits

    def default_loss(self) -> MaskedCrossentropy:
        from_logits = self.activation != "softmax"
        return MaskedCrossentropy(name="crossentropy", from_logits=from_logits)

    def soft_loss(self) -> WeightedMeanLoss | None:
        return SoftCrossentropy(from_logits=self.activation != "softmax")

    def soft_targets(self, outputs: Tensor) -> Tensor:
        return self.probabilities(outputs)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [UnweightedAccuracy(name="accuracy")]

    @classmethod
    def _adapt_config(cls, config, kwargs):
        same = super()._adapt_config(config, kwargs)
        classes = ("num_classes", "label_names")
        given = {name: kwargs[name] for name in classes if name in kwargs}
        if given.get("label_names") is not None:
            given["label_names"] = check_labels(None, given["label_names"])[1]
        if all(config.get(name) == value for name, value in given.items()):
            return same
        for name in classes:
            config.pop(name, None)
        if config.get("preprocessor") is not None:
            config["preprocessor"].forget_classes()
        return False

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "label_names": self.label_names,
            "activation": self.activation,
        }


def settle_classes(
    preprocessor: Any, num_classes: int | None, label_names: Sequence[str] | None
) -> tuple[int, Sequence[str] | None]:
    """Give a task and its preprocessor the same classes: each takes missing ones over.

    Args:
        preprocessor: a `LabelledPreprocessor` or `None`.
        num_classes: int or `None`.
        label_names: sequence of strings or `None`.

    Returns:
        A tuple of the number of classes and the list of their names, or `None`.

    Raises:
        ValueError: if task and preprocessor contradict each other, or neither has
            classes.
    """
    num_classes, label_names = check_labels(num_classes, label_names)
    if preprocessor is not None:
        preprocessor.set_classes(num_classes, label_names)
        num_classes, label_names = preprocessor.num_classes, preprocessor.label_names
    if num_classes is None or num_classes < 1:
        raise ValueError(
            "`num_classes` must be a positive int, or `label_names` given. "
            f"Received: num_classes={num_classes}."
        )
    return num_classes, label_names


def check_activation(activation: str | None, known: str = "softmax") -> None:
    """Raise a `ValueError` for an activation for which this task has no loss."""
    if activation not in (None, known):
        raise ValueError(
            f'`activation` must be `None` or "{known}". '
            f"Received: activation={activation!r}."
        )


def ranked_labels(
    probabilities: np.ndarray, label_names: Sequence[str] | None
) -> list[list[tuple[str | int, float]]]:
    """Pair labels and probabilities of each row, the most probable first.

    Args:
        probabilities: float array `(rows, num_classes)`.
        label_names: list of strings, or `None` for the numbers of the classes.

    Returns:
        A list for each row.
    """
    names = label_names or range(probabilities.shape[-1])
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    return [
        [(names[k], float(row[k])) for k in ranks]
        for row, ranks in zip(probabilities, order, strict=True)
    ]


def open_answers_report(
    task: Model, x: Any, labels: Any, answers: list[dict[str, Any]], worst: int | None
) -> Report:
    """Report on questions, the ragged strings of their answers, and predictions."""
    y = [{"text": [text.decode() for text in row]} for row in labels.to_list()]
    title = report_title(task, len(y), "questions")
    return answer_report(
        title, {"question": _decoded(x.numpy().tolist())}, y, answers, worst
    )


def report_of_classes(
    task: Model, x: Any, y: Any, outputs: Tensor, names: Any, worst: int | None
) -> Report:
    """Report on tensors of strings and labels, and probabilities `outputs`."""
    probabilities = ops.convert_to_numpy(outputs)
    numbers = class_numbers(y, probabilities.shape[1], names).numpy()
    title = report_title(task, len(numbers))
    finite = np.isfinite(probabilities).all()
    error = calibration(probabilities, numbers)["error"] if finite else float("nan")
    scores = {"calibration_error": error}
    texts = texts_of(x)
    return class_report(title, texts, numbers, probabilities, names, worst, scores)


def report_of_sets(
    task: Model, x: Any, y: Any, outputs: Tensor, names: Any, worst: int | None
) -> Report:
    """Report on tensors of strings and sets of labels, and probabilities."""
    title = report_title(task, len(y))
    probabilities = ops.convert_to_numpy(outputs)
    return label_set_report(
        title, texts_of(x), y.numpy() > 0, probabilities, names, worst
    )


def report_of_numbers(
    task: Model, x: Any, y: Any, outputs: Tensor, worst: int | None
) -> Report:
    """Report on tensors of strings and numbers, and the predictions `outputs`."""
    predicted = ops.convert_to_numpy(outputs).astype(float)
    title = report_title(task, len(predicted))
    return number_report(title, texts_of(x), y.numpy().astype(float), predicted, worst)


def report_title(task: Model, count: int, what: str = "examples") -> str:
    """Give the title of a report."""
    return f"{type(task).__name__} on {count:,} {what}"


def texts_of(x: Any) -> dict[str, list[Any]]:
    """Turn what a preprocessor's `as_tensors` gives into named lists, choices last."""
    if isinstance(x, tuple):
        x = dict(zip(("text", "text_pair"), x, strict=True))
    named = x if isinstance(x, dict) else {"text": x}
    names = sorted(named, key=lambda name: name == "choices")
    return {name: _decoded(named[name].numpy().tolist()) for name in names}


def _decoded(texts):
    if isinstance(texts, list):
        return [_decoded(text) for text in texts]
    return texts.decode(errors="replace")
