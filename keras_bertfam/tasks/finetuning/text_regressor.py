"""A number for a text or a pair of texts."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.tasks.finetuning.fine_tuning import inputs_of
from keras_bertfam.tasks.finetuning.labelled import check_activation
from keras_bertfam.tasks.finetuning.reporting import report_of_numbers
from keras_bertfam.tasks.finetuning.summary_task import SummaryTask
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    TextRegressorPreprocessor,
)
from keras_bertfam.tasks.losses import (
    DetectionCrossentropy,
    UnweightedError,
    WeightedMeanSquaredError,
)
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TextRegressor(SummaryTask):
    """Predicts a number for a text, or for a pair of texts as in STS-B.

    Call `fit()` to train, `predict()` for numbers, and `report()` for scores and
    errors.

    Args:
        backbone: a backbone.
        preprocessor: `TextRegressorPreprocessor`, or `None` for data that is
            preprocessed already.
        head_style: see `TextClassifier`.
        dropout: see `TextClassifier`.
        lm_weight: see `TextClassifier`.
        activation: `None`, or `"sigmoid"` for scores between 0 and 1, as of
            cross-encoders. These are trained on labels from 0 to 1, by the binary
            cross-entropy.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, see `TextClassifier`.

    Returns:
        float32 tensor `(batch,)`, of packed rows `(batch, max_sequences)`.

    `fit()`, `evaluate()` and `predict()` take lists of strings, or tuples of two
    lists for pairs. `compile()` without arguments is BERT's fine-tuning with the
    mean squared error.

    `from_preset()` takes cross-encoders: `activation` is what their config says, for
    `sentence-transformers`; where it says nothing, that library means `"sigmoid"`.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    4.1.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.TextRegressorPreprocessor(tokenizer)
    model = keras_bertfam.tasks.TextRegressor(backbone, preprocessor)
    pairs = (["A cat sits.", "A dog."], ["A cat is sitting.", "No, a car."])
    model.fit(pairs, [4.8, 0.4])
    model.predict(pairs).shape  # (2,)
    ```
    """

    preprocessor_cls = TextRegressorPreprocessor
    data_kind = "regression"
    pipeline = "text-classification"
    text_columns = ("text",)
    label_kind = "number"

    def __init__(
        self,
        backbone: Model,
        preprocessor: TextRegressorPreprocessor | None = None,
        head_style: str | None = None,
        dropout: float | None = None,
        lm_weight: float | None = None,
        activation: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_activation(activation, "sigmoid")
        arguments = (preprocessor, head_style, dropout, lm_weight)
        super().__init__(backbone, 1, *arguments, **kwargs)
        self.activation = activation
        self.compile_by_default()

    def as_outputs(self, scores: Tensor) -> Tensor:
        scores = scores[..., 0]
        return ops.sigmoid(scores) if self.activation else scores

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        for score in self.predict(inputs_of(columns), verbose=0).reshape(-1):
            yield {"score": float(score)}

    def default_loss(self) -> Any:
        if self.activation:
            return DetectionCrossentropy("crossentropy", from_logits=False)
        return WeightedMeanSquaredError()

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [UnweightedError(name="rmse")]

    def _report(self, x, labels, given, batch_size, worst):
        outputs = self.predict(x, batch_size=batch_size, verbose=0)
        return report_of_numbers(self, x, labels, outputs, worst)

    def get_config(self) -> Config:
        return {**super().get_config(), "activation": self.activation}
