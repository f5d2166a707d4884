"""Several fine-tuned models that answer together."""

from collections.abc import Iterator, Sequence
from typing import Any

from keras_bertfam.arguments import checked
from keras_bertfam.tasks.finetuning.fine_tuning import LabelledTask
from keras_bertfam.tasks.finetuning.merging import order_of_classes
from keras_bertfam.types import Model


@checked
class Ensemble:
    """Answers as several fine-tuned models of one task do on average.

    Probabilities of classes and choices are averaged, and numbers. Of questions the
    models' lists of answers are merged: an answer at a place has the mean of the
    probabilities that the models give it, 0 where a model doesn't list it. The models
    may be of different families and sizes, since each reads texts by its own tokenizer.

    Args:
        models: sequence of models of one task, each with a preprocessor: one that
            tells classes of texts or relations, numbers, choices or spans that are
            answers.

    Attributes:
        label_names: the names of the classes, in the first model's order, or `None`.
        text_columns: the columns of a table that `answers` reads unless told others.

    Raises:
        ValueError: for no models, models of another task or of different ones or
            without a preprocessor, other classes in one than in another, and a
            `null_threshold` in some of the models only.

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
                "`models` must be of one task, which tells classes of texts or "
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
        """Predict as the models do on average.

        Args:
            x: what `predict()` of the models takes, a batch of texts or dicts.
            batch_size: int.
            verbose: int, see `keras.Model.predict`.

        Returns:
            float32 array `(rows, classes)` of probabilities in the order of
            `label_names`, or `(rows, choices)`; of numbers `(rows,)`, the means. Of
            questions a list of dicts as `SpanQuestionAnswering.predict` gives, in
            which a `score` is the `probability`, and `no_answer_odds` the mean of each
            model's odds less its `null_threshold`; the answer is `""` where these are
            above 0.
        """
        outputs = [
            model.predict(x, batch_size=batch_size, verbose=verbose)
            for model in self.models
        ]
        return self.models[0].merged(self.models, outputs)

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        """Answer the rows of a table, as the command `predict` writes it.

        Args:
            columns: a sequence for each of `text_columns`, or for those that are given
                in their place, of what the rows have there.

        Yields:
            For each row a dict of what a single model gives.
        """
        first = self.models[0]
        yield from first.told(self.predict(first.inputs_of(columns)))
