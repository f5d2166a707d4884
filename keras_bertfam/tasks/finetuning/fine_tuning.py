"""What every fine-tuning task shares: raw inputs, defaults and a report."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras

from keras_bertfam import optimizers
from keras_bertfam.analysis.report import Report
from keras_bertfam.layers.data.pipelines import (
    check_at_least,
    checked_batch_size,
    remember_count,
)
from keras_bertfam.layers.data.rows.batches import length_buckets
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.exported import row_specs
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.recipes import FineTuningRecipe
from keras_bertfam.tasks.finetuning.packed_preprocessor import check_packed
from keras_bertfam.tasks.inputs import (
    is_arrays,
    is_preprocessed,
    remember_shapes,
)
from keras_bertfam.tasks.resizing import with_new_tokens
from keras_bertfam.tasks.summary import (
    is_encoder_decoder,
)
from keras_bertfam.tasks.task import PretrainingTask
from keras_bertfam.types import Model


class FineTuningTask(PretrainingTask):
    """Base of the fine-tuning tasks, for any backbone of the library.

    `fit()`, `evaluate()` and `predict()` take raw inputs. Arrays and lists given to
    `fit()` go through `preprocessor.dataset`, shuffled and in batches of like
    length, unless `shuffle=False`; a `tf.data.Dataset` is taken as it comes. Default
    metrics count each example once: `class_weight` and `sample_weight` weigh the
    loss, and only examples of weight 0 are left out.

    Args:
        backbone: a backbone.
        preprocessor: a `FineTuningPreprocessor`, or `None` for data that is
            preprocessed already.
        **kwargs: arguments of `keras.Model`.

    Attributes:
        data_kind: kind of the tasks of `keras_bertfam.datasets` that it is fine-tuned
            on, `None` for none of them.
        usual_learning_rate: what `compile()` takes by default; `None` is the greatest
            rate that the backbone's family was tried with.
        one_row_each: whether each example is one row.
        pipeline: what model hubs call the thing that it does, or `None`.
        text_columns: the columns of a table that `answers` reads unless told others;
            none if it answers no tables.
    """

    backbone_cls = TokenBackbone
    data_kind: str | None = None
    pipeline: str | None = None
    text_columns: tuple[str, ...] = ()
    one_row_each = True
    usual_learning_rate: float | None = None

    def __init__(
        self, backbone: Model, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        check_packed(preprocessor, backbone)
        backbone = with_new_tokens(backbone, preprocessor)
        super().__init__(backbone, preprocessor, **kwargs)

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
            "epsilon": optimizers.fine_tuning_epsilon(self),
        }

    def published_recipe(self) -> FineTuningRecipe:
        record = self.backbone.record or FAMILIES["bert"]
        return record.fine_tuning_recipes(self.backbone.hidden_dim)[""]

    def make_optimizer(self, **arguments: Any) -> keras.optimizers.Optimizer:
        recipe = self.published_recipe()
        if recipe.layer_decay == 1:
            return super().make_optimizer(**arguments)
        return optimizers.fine_tuning_optimizer(
            self, **{**recipe.optimizer_arguments(), **arguments}
        )

    def unused_variables(self) -> list[keras.Variable]:
        # The state that XLNet's tokens to predict start from.
        query = getattr(self.backbone, "query_embedding", None)
        return [*super().unused_variables(), *(query.variables if query else [])]

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """Compile as other tasks do, with `metrics` in place of the default ones.

        `optimizer="auto"` is the family's fine-tuning: its greatest rate, its warm-up
        and weight decay, and its smaller rates of lower layers, if it has any.

        Metrics given as `weighted_metrics` leave out what has weight 0, such as the
        rows that fill up the last batch of `preprocessor.dataset`.
        """
        if metrics is not None:
            kwargs.setdefault("weighted_metrics", None)
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def _takes_raw(self, x):
        raw = is_arrays(x) and not is_preprocessed(x)
        return self.preprocessor is not None and raw

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
        if packed:  # it may have been set since
            check_packed(self.preprocessor, self.backbone)
        batches = self.preprocessor.dataset(data, batch_size, training=training)
        if self.one_row_each and not packed:
            remember_count(batches, -(-len(data) // batch_size))
        lengths = length_buckets(
            self.preprocessor.buckets, self.preprocessor.sequence_length
        )
        return remember_shapes(batches, len(lengths))

    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        if not self._takes_raw(x):
            return super().predict(x, batch_size=batch_size, **kwargs)
        batches, places = self.preprocessor.inputs(
            x, checked_batch_size(batch_size), kwargs.get("steps")
        )
        outputs = super().predict(batches, **kwargs)
        return keras.tree.map_structure(lambda part: part[places], outputs)

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        """Answer the rows of a table, as the command `predict` writes it.

        Args:
            columns: a sequence for each of `text_columns`, or for those that are
                given in their place, of what the rows have there.

        Yields:
            For each row a dict that JSON can hold.
        """
        raise TypeError(f"{type(self).__name__} must define `answers`.")

    def report(
        self, x: Any, y: Any, batch_size: int = 32, worst: int | None = 10
    ) -> Report:
        """Tell how good the model is on labelled examples, and where it is worst.

        Args:
            x: what `fit()` takes, a batch.
            y: the labels, as for `fit()`.
            batch_size: int.
            worst: int. How many errors the report has at most; `None` for all.

        Returns:
            A `keras_bertfam.analysis.Report`, with what fits the labels:

            - classes of texts and words, and choices: accuracy, macro F1 and
              Matthews correlation, with two classes the F1 of the second, with tags
              (`"B-PER"`) seqeval's F1 of entities, but for words the expected
              calibration error; a confusion matrix and a table of the classes. Words
              count alike, and all count, as in `tag()`.
            - lists of classes: micro and macro F1, the share of texts whose classes are
              all right, that of right decisions, and a table of the classes.
            - numbers, and the similarities that a `TextEmbedder` is trained on:
              Pearson's and Spearman's correlation, errors.
            - answers: SQuAD's scores.

        Raises:
            ValueError: if the task has no preprocessor, and for what `fit()` refuses.
            ImportError: without scikit-learn and SciPy, which the `evaluation` extra
                has.
        """
        if self.preprocessor is None:
            raise ValueError("`report` needs a task with a preprocessor.")
        check_at_least(0, worst=worst)
        rows = self.preprocessor.from_arrays(x, y)
        batches = self.preprocessor.batch(rows, len(rows))
        x, labels = batches.get_single_element()
        return self._report(x, labels, y, batch_size, worst)

    def _report(self, x, labels, given, batch_size, worst):
        """Make the report of strings and labels as tensors, which are checked."""
        raise TypeError(f"{type(self).__name__} must define `_report`.")


def inputs_of(columns: Sequence[Sequence[Any]]) -> Any:
    """Make of columns what `fit()` takes: texts, or a tuple with the parts of pairs."""
    return columns[0] if len(columns) == 1 else tuple(columns)
