"""Let several fine-tuned models answer together."""

from collections.abc import Iterator, Sequence
from typing import Any

from keras_bertfam.arguments import checked
from keras_bertfam.tasks.finetuning.fine_tuning import LabelledTask
from keras_bertfam.tasks.finetuning.merging import order_of_classes
from keras_bertfam.types import Model


@checked
class Ensemble:
    """Averages the answers of several fine-tuned models of one task.

    Probabilities of classes and choices are averaged, and so are numbers. For
    questions, the models' lists of answers are merged: an answer at a place gets the
    mean of the models' probabilities for it, where a model that doesn't list it counts
    as 0. The models may be of different families and sizes, since each reads texts with
    its own tokenizer.

    Args:
        models: sequence of models of one task, each with a preprocessor. The task
            predicts classes of texts, relations, numbers, choices, or spans as answers.

    Attributes:
        label_names: the names of the classes, in the first model's order, or `None`.
        text_columns: the columns of a table that `answers` reads by default.

    Raises:
        ValueError: for no models, models of different tasks or of a task that can't be
            averaged, a model without a preprocessor, models with different classes, or
            a `null_threshold` in only some of the models.

    Example:

    ```python
    first = keras_bertfam.tasks.TextClassifier.from_preset("my_bert", num_classes=2)
    second = keras_bertfam.tasks.TextClassifier.from_preset("my_bert", num_classes=2)
    both = keras_bertfam.tasks.Ensemble([first, second])
    both.predict(["a film", "a book"]).shape  # (2, 2): probabilities
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.2,
    whose ensemble is of seven models.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = [*models]
        names = [type(model).__name__ for model in self.models]
        merged = [getattr(model, "merged", None) for model in self.models]
        if len({*names}) != 1 or None in merged:
            raise ValueError(
                "`models` must be of one task, which predicts classes of texts, "
                f"relations, numbers, choices or answers. Received: {names}."
            )
        if None in [model.preprocessor for model in self.models]:
            raise ValueError("`models` must have preprocessors. Received: one without.")
        first = self.models[0]
        if isinstance(first, LabelledTask):
            for model in self.models:
                order_of_classes(first, model)  # or raises
        thresholds = [getattr(model, "null_threshold", None) for model in self.models]
        if len({threshold is None for threshold in thresholds}) > 1:
            raise ValueError(
                "`models` must all have a `null_threshold`, or none of them. Received: "
                f"{thresholds}."
            )
        self.label_names = getattr(first, "label_names", None)
        self.text_columns: tuple[str, ...] = first.text_columns

    @checked
    def predict(self, x: Any, batch_size: int = 32, verbose: int = 0) -> Any:
        """Average the models' predictions.

        Args:
            x: what `predict()` of the models takes, a batch of texts or dicts.
            batch_size: int.
            verbose: int, see `keras.Model.predict`.

        Returns:
            float32 array of probabilities, `(rows, classes)` in the order of
            `label_names`, or `(rows, choices)`; for numbers, their means `(rows,)`. For
            questions, a list of dicts as from `SpanQuestionAnswering.predict`, with two
            differences: `score` equals `probability`, and `no_answer_odds` is the mean
            over models of the odds minus the `null_threshold`. The answer is `""` if
            these odds are above 0.
        """
        outputs = [
            model.predict(x, batch_size=batch_size, verbose=verbose)
            for model in self.models
        ]
        return self.models[0].merged(self.models, outputs)

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        """Answer the rows of a table, in the form that the command `predict` writes.

        Args:
            columns: for each of `text_columns`, or of other columns given in their
                place, a sequence of the rows' values.

        Yields:
            For each row a dict, as a single model gives it.
        """
        first = self.models[0]
        yield from first.told(self.predict(first.inputs_of(columns)))
