"""Choose the right one of several choices, as in RACE and SWAG."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.presets.converting.heads import Counterpart
from keras_bertfam.tasks.finetuning.adversarial import SoftCrossentropy
from keras_bertfam.tasks.finetuning.fine_tuning import report_of_classes
from keras_bertfam.tasks.finetuning.merging import mean_choices, told_classes
from keras_bertfam.tasks.finetuning.multiple_choice_preprocessor import (
    MultipleChoicePreprocessor,
    choice_signatures,
)
from keras_bertfam.tasks.finetuning.summary_task import SummaryTask
from keras_bertfam.tasks.losses import MaskedCrossentropy, UnweightedAccuracy
from keras_bertfam.types import Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class MultipleChoice(SummaryTask):
    """Scores the choices of a question, each in a row of its own.

    Call `fit()` to train, `choose()` for answers, and `report()` for scores and errors.

    Args:
        backbone: a backbone.
        preprocessor: `MultipleChoicePreprocessor`, or `None` for data that is
            preprocessed already.
        head_style: see `TextClassifier`.
        dropout: see `TextClassifier`.
        lm_weight: see `TextClassifier`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone, each `(batch, choices,
            length)`.

    Returns:
        float32 tensor `(batch, choices)`: logits. The loss applies a softmax over the
        choices.

    `fit()`, `evaluate()` and `predict()` take a dict of the lists `context`, `choices`
    and optionally `question`; or a list of dicts, one for each question. See
    `MultipleChoicePreprocessor`. `predict()` returns arrays, `choose()` answers.
    `compile()` without arguments sets up BERT's fine-tuning: AdamW at 5e-5 with 10 %
    linear warm-up and linear decay, cross-entropy, accuracy.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.4;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 5.3; Radford et
        al., 2018, section 3.3.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.MultipleChoicePreprocessor(tokenizer, 128)
    model = keras_bertfam.tasks.MultipleChoice(backbone, preprocessor)
    x = {"context": ["The cat sat."], "choices": [["On a mat.", "In a hat."]]}
    model.fit(x, [0])
    model.choose(x)  # [(0, 0.6)]
    ```
    """

    preprocessor_cls = MultipleChoicePreprocessor
    data_kind = "multiple_choice"
    pipeline = "multiple-choice"
    text_columns = ("context", "choices")
    counterpart = Counterpart(
        "ForMultipleChoice", {"choice": "head"}, poolers=("head",), styled=True
    )
    serving_signatures = choice_signatures
    merged = staticmethod(mean_choices)
    label_kind = "choice"
    choices = True

    def __init__(
        self,
        backbone: Model,
        preprocessor: MultipleChoicePreprocessor | None = None,
        head_style: str | None = None,
        dropout: float | None = None,
        lm_weight: float | None = None,
        **kwargs: Any,
    ) -> None:
        arguments = (preprocessor, head_style, dropout, lm_weight)
        super().__init__(backbone, 1, *arguments, **kwargs)
        self.compile_by_default()

    def as_outputs(self, scores: Tensor) -> Tensor:
        return scores[..., 0]

    def inputs_of(self, columns: Sequence[Sequence[Any]]) -> Any:
        return dict(zip(("context", "choices", "question"), columns, strict=False))

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        outputs = self.predict(self.inputs_of(columns), verbose=0)
        yield from self.told(ops.convert_to_numpy(ops.softmax(outputs)))

    def told(self, probabilities: Any) -> Iterator[dict[str, Any]]:
        """Turn what `merged` gives into answers, in the form that `predict` writes."""
        return told_classes(probabilities, self.preprocessor.label_names, "choice")

    def default_loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy(name="crossentropy")

    def soft_loss(self) -> SoftCrossentropy:
        return SoftCrossentropy()

    def soft_targets(self, outputs: Tensor) -> Tensor:
        return ops.softmax(outputs)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [UnweightedAccuracy(name="accuracy")]

    @checked
    def choose(
        self, x: dict[str, Any], batch_size: int = 32
    ) -> list[tuple[Any, float]]:
        """Find the most probable choices.

        Args:
            x: dict of `context`, `choices` and optionally `question`, a batch.
            batch_size: int.

        Returns:
            For each question a pair: the choice, as a name of the preprocessor's
            `label_names` or else as a number, and its probability.

        Raises:
            ValueError: if the task has no preprocessor.
        """
        if self.preprocessor is None:
            raise ValueError("`choose` needs a task with a preprocessor.")
        logits = self.predict(x, batch_size=batch_size, verbose=0)
        probabilities = ops.convert_to_numpy(ops.softmax(logits))
        names = self.preprocessor.label_names or range(probabilities.shape[1])
        best = probabilities.argmax(axis=1)
        return [
            (names[k], float(p))
            for k, p in zip(best, np.max(probabilities, axis=1), strict=True)
        ]

    def _report(self, x, labels, given, batch_size, worst):
        logits = self.predict(x, batch_size=batch_size, verbose=0)
        names = self.preprocessor.label_names
        return report_of_classes(self, x, labels, ops.softmax(logits), names, worst)
