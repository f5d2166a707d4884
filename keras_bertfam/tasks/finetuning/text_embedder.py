"""A vector for each text."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.tasks.finetuning.fine_tuning import FineTuningTask
from keras_bertfam.tasks.finetuning.reporting import report_of_numbers, texts_of
from keras_bertfam.tasks.finetuning.text_embedder_preprocessor import (
    TextEmbedderPreprocessor,
)
from keras_bertfam.tasks.losses import WeightedMeanLoss, without_last
from keras_bertfam.tasks.summary import (
    check_layout,
    flat_rows,
    states_of,
    summary_states,
    summary_token,
)
from keras_bertfam.tasks.vectors import TextVectors
from keras_bertfam.types import Config, Model, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class CosineSimilarityError(WeightedMeanLoss):
    """Weighted mean of `(y_true - cosine) ** 2`, the cosine of two vectors.

    Call arguments:
        y_true: float tensor `(batch,)`, or `(batch, slots)`.
        y_pred: float tensor of that shape with axes `(2, width)` besides.
        sample_weight: float tensor as `y_true`; all one if missing.

    Returns:
        float32 scalar.

    Example:

    ```python
    loss = keras_bertfam.tasks.CosineSimilarityError()
    loss([1.0], [[[1.0, 0.0], [0.0, 1.0]]])  # 1.0
    ```

    Reference: [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084),
    section 3.
    """

    def __init__(self, name: str = "cosine_similarity_error", **kwargs: Any) -> None:
        super().__init__(name=name)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if len(y_pred.shape) not in (3, 4) or y_pred.shape[-2] not in (None, 2):
            raise ValueError(
                "`x` must be pairs of texts, `(batch, 2, length)`, where `y` has their "
                f"similarities. Received: vectors of the shape {tuple(y_pred.shape)}."
            )
        y_true = without_last(y_true, len(y_pred.shape) - 2)
        y_true, y_pred = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        return ops.square(y_true - cosine(y_pred[..., 0, :], y_pred[..., 1, :]))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of the angle between vectors, along the last axis."""
    return ops.sum(_unit(a) * _unit(b), axis=-1)


def _unit(x):
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))


@keras.saving.register_keras_serializable("keras_bertfam")
class TextEmbedder(TextVectors, FineTuningTask):
    """Turns texts into vectors, with any backbone of the library.

    Call `fit()` to train, `predict()` for vectors, `similarity()` to compare texts, and
    `report()` for scores and errors.

    Args:
        backbone: a backbone.
        preprocessor: `TextEmbedderPreprocessor`, or `None` for data that is
            preprocessed already.
        pooling: `"mean"` of the states of all tokens, special ones included, or
            `"cls"`, the state of the first token, XLNet's last.
        normalize: bool. Whether vectors get length 1.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, those of the backbone, `(batch, length)`, or
            `(batch, 2, length)` of pairs; of packed rows `(batch, length)` with
            `sequence_starts`, int `(batch, max_sequences, 2)`: where the texts of
            each pair begin, which `sequence_ids` number in that order from 1.

    Returns:
        float32 tensor `(batch, hidden_dim)`, of pairs `(batch, 2, hidden_dim)`, of
        packed rows `(batch, max_sequences, 2, hidden_dim)`.

    Raises:
        ValueError: for an unknown `pooling`.

    `predict()` takes a list of strings and returns their vectors; `encode()` does so
    for `retrieval.Index`, with a title before its text; `similarity()` compares texts.
    `fit()` takes tuples of two lists, with the similarity of each pair: `compile()`
    without arguments is Sentence-BERT's regression objective, the mean squared error of
    the cosine, with AdamW at 2e-5.

    Reference: [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084),
    section 3.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.TextEmbedderPreprocessor(tokenizer)
    model = keras_bertfam.tasks.TextEmbedder(backbone, preprocessor)
    model.predict(["A cat sits.", "A dog."]).shape  # (2, 128)
    model.similarity(["A cat sits."], ["A cat is sitting."])  # [0.97]
    ```
    """

    preprocessor_cls = TextEmbedderPreprocessor
    label_kind = "number"
    # Section 3.1 of the Sentence-BERT paper.
    usual_learning_rate = 2e-5

    def __init__(
        self,
        backbone: Model,
        preprocessor: TextEmbedderPreprocessor | None = None,
        pooling: str = "mean",
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        if pooling not in ("mean", "cls"):
            raise ValueError(
                f'`pooling` must be "mean" or "cls". Received: pooling={pooling!r}.'
            )
        if pooling == "cls":
            check_layout(preprocessor, summary_token(backbone))
        super().__init__(backbone, preprocessor, **kwargs)
        self.pooling = pooling
        self.normalize = normalize
        self.built = True
        self.compile()

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        shape: Any = (-1,)
        if "sequence_starts" in inputs:
            shape = (-1, *inputs["sequence_starts"].shape[1:])
        elif len(inputs["token_ids"].shape) == 3:
            inputs, shape = flat_rows(inputs)
        if self.pooling == "cls":
            token = summary_token(self.backbone)
            states = summary_states(self.backbone, inputs, token, training)
            vectors = ops.cast(states, "float32")
        else:
            vectors = self._means(inputs, training)
        vectors = ops.reshape(vectors, (*shape, self.backbone.hidden_dim))
        return _unit(vectors) if self.normalize else vectors

    def _means(self, inputs, training):
        """Means of the states of each sequence's tokens."""
        inputs = dict(inputs)
        starts = inputs.pop("sequence_starts", None)
        states = states_of(self.backbone, inputs, training=training)
        states = ops.cast(states, "float32")
        if starts is not None:
            numbers = ops.arange(1, math.prod(starts.shape[1:]) + 1, dtype="int32")
            numbers = ops.reshape(numbers, (1, -1, 1))
            inside = ops.equal(ops.expand_dims(inputs["sequence_ids"], 1), numbers)
            weights = ops.cast(inside, "float32")
            total = ops.maximum(ops.sum(weights, axis=2, keepdims=True), 1.0)
            return ops.matmul(weights, states) / total
        mask = inputs.get("padding_mask")
        if mask is None:
            return ops.mean(states, axis=1)
        weights = ops.expand_dims(ops.cast(mask, "float32"), -1)
        total = ops.maximum(ops.sum(weights, axis=1), 1.0)
        return ops.sum(states * weights, axis=1) / total

    def default_loss(self) -> CosineSimilarityError:
        return CosineSimilarityError()

    def similarity(
        self,
        first: str | Sequence[str],
        second: str | Sequence[str],
        batch_size: int = 32,
    ) -> Any:
        """Cosine similarities of the texts of two lists, pair by pair.

        Args:
            first: list of str, or a str.
            second: list of str, as many, or a str.
            batch_size: int.

        Returns:
            float32 NumPy array of shape `(len(first),)`, from -1 to 1; a float for
            two strings.

        Raises:
            ValueError: if the task has no preprocessor, the lists are of unequal
                length, or one is a list and the other isn't.
        """
        if self.preprocessor is None:
            raise ValueError("`similarity` needs a task with a preprocessor.")
        if not (hasattr(first, "__len__") and hasattr(second, "__len__")):
            raise ValueError(
                "`first` and `second` must be texts. Received: "
                f"first={first!r}, second={second!r}."
            )
        if isinstance(first, str) and isinstance(second, str):
            return float(self.similarity([first], [second])[0])
        if isinstance(first, str) or isinstance(second, str):
            raise ValueError(
                "`first` and `second` must both be lists, or both strings. "
                f"Received: first={first!r}, second={second!r}."
            )
        if len(first) != len(second):
            raise ValueError(
                "`first` and `second` must be of the same length. Received: "
                f"{len(first)} and {len(second)} texts."
            )
        texts = [*first, *second]
        vectors = self.predict(texts, batch_size=batch_size, verbose=0)
        vectors = ops.convert_to_tensor(vectors)
        a, b = vectors[: len(first)], vectors[len(first) :]
        return ops.convert_to_numpy(cosine(a, b))

    def _encode(self, texts, kind, batch_size, too_long):
        texts = [" ".join(x).strip() if isinstance(x, tuple) else x for x in texts]
        if too_long == "error":
            self.preprocessor.check_lengths(texts)
        return self.predict(texts, batch_size=batch_size, verbose=0)

    def _passage_parts(self):
        settings = {"pooling": self.pooling, "normalize": self.normalize}
        return [self.backbone], settings

    def _report(self, x, labels, given, batch_size, worst):
        cosines = self.similarity(*texts_of(x).values(), batch_size)
        return report_of_numbers(self, x, labels, cosines, worst)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "pooling": self.pooling,
            "normalize": self.normalize,
        }
