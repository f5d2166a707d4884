"""Losses over selected positions or examples of a batch."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.layers.heads.token_scores import crossentropy
from keras_bertfam.types import Config, Mixin, Tensor


def without_last(values: Tensor, rank: int) -> Tensor:
    """Drop a last axis of size 1 from labels or weights with more axes than `rank`.

    Keras's own losses take `(batch, 1)` for `(batch,)`. Without this, subtracting or
    multiplying the two would broadcast to `(batch, batch)`.
    """
    values = ops.convert_to_tensor(values)
    more = len(values.shape) == rank + 1 and values.shape[-1] == 1
    return ops.squeeze(values, -1) if more else values


def weights_of(values: Tensor, sample_weight: Any) -> Tensor:
    """Give each value its weight; weights with fewer axes are those of whole rows.

    Args:
        values: float tensor.
        sample_weight: weights, or `None` for 1.

    Returns:
        Tensor of the shape and dtype of `values`.

    Raises:
        ValueError: for weights with more axes than the values.
    """
    ones = ops.ones_like(values)
    if sample_weight is None:
        return ones
    weights = without_last(sample_weight, len(values.shape))
    fewer = len(values.shape) - len(weights.shape)
    if fewer < 0:
        raise ValueError(
            "`sample_weight` must be a weight for each row or for each loss, of shape "
            f"{tuple(values.shape)}. Received: shape={tuple(weights.shape)}."
        )
    weights = ops.reshape(weights, (*ops.shape(weights), *[1] * fewer))
    return ones * ops.cast(weights, values.dtype)


def token_crossentropy(token_ids: Tensor, logits: Tensor) -> Tensor:
    """Compute the cross-entropy of each position, in nats and float32.

    Args:
        token_ids: int tensor of shape `(...)`.
        logits: float tensor of shape `(..., vocabulary_size)`; or the tokens' scores,
            `(..., 1, 2 or 4)`, see `ScoredTokens`.

    Returns:
        float32 tensor of shape `(...)`.
    """
    logits = ops.cast(logits, "float32")
    if _are_scores(token_ids, logits):
        return logits[..., 0, 0]
    token_ids = without_last(token_ids, len(logits.shape) - 1)
    if len(token_ids.shape) != len(logits.shape) - 1:
        raise ValueError(
            "`y_true` must be an id for each position of `y_pred`. Received: "
            f"y_true.shape={tuple(token_ids.shape)}, "
            f"y_pred.shape={tuple(logits.shape)}."
        )
    return crossentropy(ops.cast(token_ids, "int32"), logits)


def logit_statistics(token_ids: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log-sum-exp and mean of each position's logits, in float32.

    Takes the arguments of `token_crossentropy`. Scores must include these statistics.
    """
    logits = ops.cast(logits, "float32")
    if _are_scores(token_ids, logits):
        return logits[..., 0, 2], logits[..., 0, 3]
    return ops.logsumexp(logits, axis=-1), ops.mean(logits, axis=-1)


def _are_scores(token_ids, predictions):
    # The whole shape is compared: labels with too few axes must not make logits count
    # as scores.
    rank, shape = len(token_ids.shape), tuple(predictions.shape)
    return len(shape) == rank + 2 and shape[-2] == 1 and shape[-1] in (2, 4)


class WeightedMeanLoss(keras.losses.Loss):
    """Base class of losses that are `sum(weight * loss) / sum(weight)` over all slots.

    A subclass defines `call`, which gives each slot's loss. Under a
    `tf.distribute` strategy the sum of the weights is taken over all replicas.
    A batch whose weights are all 0 has loss 0.

    Args:
        name: str.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name, reduction=None, dtype="float32")

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        losses = self.call(y_true, y_pred)
        weights = weights_of(losses, sample_weight)
        total, count = ops.sum(losses * weights), self.count(y_true, weights)
        return distribution.global_mean(total, count)

    def count(self, y_true: Tensor, weights: Tensor) -> Tensor:
        """Give the divisor of the sum; by default, the sum of the weights."""
        return ops.sum(weights)

    def get_config(self) -> Config:
        return {"name": self.name}


@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedCrossentropy(WeightedMeanLoss):
    """`sum(weight * crossentropy) / sum(weight)` over the whole batch.

    Under a `tf.distribute` strategy the sum of the weights is taken over all
    replicas, so that uneven numbers of masked tokens give the loss and the
    gradients of one device with the same batch. A batch without a masked token
    has loss 0.

    Args:
        from_logits: bool. `False` if `y_pred` are probabilities.

    Call arguments:
        y_true: int tensor `(batch, count)` or `(batch,)`, the ids to predict.
        y_pred: float tensor of that shape with one more axis, the vocabulary: logits.
        sample_weight: float tensor as `y_true`; 0 leaves a slot out. All one if
            missing.

    Returns:
        float32 scalar, in nats.

    Example:

    ```python
    loss = keras_bertfam.tasks.MaskedCrossentropy()
    loss([[1, 0]], keras.ops.zeros((1, 2, 4)), sample_weight=[[1.0, 0.0]])  # ln 4
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805),
    appendix A.2.
    """

    reads_scores = True

    def __init__(
        self, name: str = "masked_crossentropy", from_logits: bool = True
    ) -> None:
        super().__init__(name=name)
        self.from_logits = from_logits

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if not self.from_logits:
            y_pred = ops.log(ops.maximum(ops.cast(y_pred, "float32"), 1e-12))
        return token_crossentropy(y_true, y_pred)

    def get_config(self) -> Config:
        return {**super().get_config(), "from_logits": self.from_logits}


@keras.saving.register_keras_serializable("keras_bertfam")
class DiffusionBound(WeightedMeanLoss):
    """`sum(weight * crossentropy)`, divided by the number of tokens, masked or not.

    With the weights of `MaskedDiffusionLMPreprocessor` its mean over many batches is an
    upper bound on the negative log-likelihood of a token. Like `MaskedCrossentropy`, it
    is the same on one device and on several.

    Call arguments:
        y_true: int tensor `(batch, length)`, ids, and -1 for positions that aren't
            counted.
        y_pred: float tensor `(batch, length, vocabulary_size)`, logits.
        sample_weight: float tensor as `y_true`; 0 for tokens that aren't masked.

    Returns:
        float32 scalar, in nats.

    Example:

    ```python
    from keras_bertfam.tasks.losses import DiffusionBound
    loss = DiffusionBound()
    loss([[1, 0, -1]], keras.ops.zeros((1, 3, 4)), [[2.0, 0.0, 0.0]])  # ln 4
    ```

    Reference: [Nie et al., 2025](https://arxiv.org/abs/2502.09992), equation 3.
    """

    reads_scores = True

    def __init__(self, name: str = "diffusion_bound") -> None:
        super().__init__(name=name)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return token_crossentropy(ops.maximum(y_true, 0), y_pred)

    def count(self, y_true: Tensor, weights: Tensor) -> Tensor:
        return ops.sum(ops.cast(ops.greater_equal(y_true, 0), weights.dtype))


@keras.saving.register_keras_serializable("keras_bertfam")
class DetectionCrossentropy(WeightedMeanLoss):
    """`sum(weight * binary_crossentropy) / sum(weight)` over the whole batch.

    For models that answer yes or no for each token, such as ELECTRA's discriminator.
    Like `MaskedCrossentropy`, it is the same on one device and on several.

    Args:
        from_logits: bool. `False` if `y_pred` are probabilities.

    Call arguments:
        y_true: int, float or bool tensor `(batch, length)` or `(batch,)`: 1 for
            tokens to be detected, 0 for others.
        y_pred: float tensor of that shape, logits.
        sample_weight: float tensor as `y_true`; 0 leaves a token out, as padding.
            All one if missing.

    Returns:
        float32 scalar, in nats.

    Example:

    ```python
    from keras_bertfam.tasks.losses import DetectionCrossentropy
    loss = DetectionCrossentropy()
    loss([[1, 0]], [[0.0, 9.0]], sample_weight=[[1.0, 0.0]])  # ln 2
    ```

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2.
    """

    def __init__(
        self,
        name: str = "detection_crossentropy",
        from_logits: bool = True,
    ) -> None:
        super().__init__(name=name)
        self.from_logits = from_logits

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_true = without_last(y_true, len(y_pred.shape))
        y_true, y_pred = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        if not self.from_logits:
            y_pred = ops.clip(y_pred, 1e-7, 1 - 1e-7)
            y_pred = ops.log(y_pred) - ops.log(1 - y_pred)
        return ops.softplus(y_pred) - y_pred * y_true

    def get_config(self) -> Config:
        return {**super().get_config(), "from_logits": self.from_logits}


@keras.saving.register_keras_serializable("keras_bertfam")
class LabelSetCrossentropy(DetectionCrossentropy):
    """The binary cross-entropy of an example's classes, any number of which may hold.

    `sum(weight * mean over labels) / sum(weight)` over the whole batch.

    Args:
        from_logits: bool. `False` if `y_pred` are probabilities.

    Call arguments:
        y_true: float tensor `(batch, num_classes)`, 1 for classes that hold, 0 for
            others.
        y_pred: float tensor of that shape.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar, in nats.

    Example:

    ```python
    from keras_bertfam.tasks.losses import LabelSetCrossentropy
    loss = LabelSetCrossentropy()
    loss([[1.0, 0.0, 1.0]], keras.ops.zeros((1, 3)))  # ln 2
    ```
    """

    def __init__(
        self,
        name: str = "label_set_crossentropy",
        from_logits: bool = True,
    ) -> None:
        super().__init__(name, from_logits)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if tuple(y_true.shape)[1:] != tuple(y_pred.shape)[1:]:
            raise ValueError(
                "`y_true` must have a 0 or 1 for each class. Received: "
                f"y_true.shape={tuple(y_true.shape)}, "
                f"y_pred.shape={tuple(y_pred.shape)}."
            )
        return ops.mean(super().call(y_true, y_pred), axis=-1)


@keras.saving.register_keras_serializable("keras_bertfam")
class WeightedMeanSquaredError(WeightedMeanLoss):
    """`sum(weight * (y_true - y_pred) ** 2) / sum(weight)` over the whole batch.

    Like `MaskedCrossentropy`, it is the same on one device and on several.

    Call arguments:
        y_true: float tensor `(batch,)`.
        y_pred: float tensor `(batch,)`.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar.

    Example:

    ```python
    from keras_bertfam.tasks.losses import WeightedMeanSquaredError
    loss = WeightedMeanSquaredError()
    loss([1.0, 0.0], [3.0, 0.0], sample_weight=[1.0, 3.0])  # 1.0
    ```
    """

    def __init__(self, name: str = "mean_squared_error") -> None:
        super().__init__(name=name)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_true = without_last(y_true, len(y_pred.shape))
        y_true, y_pred = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        return ops.square(y_true - y_pred)


def _update_by_slot(metric, values, sample_weight):
    """Update a mean by the values of all slots, which count alike in every batch.

    Keras takes the mean over a row's slots first, so that those of narrow batches would
    count more than those of wide ones.
    """
    weights = weights_of(values, sample_weight)
    values, weights = (ops.reshape(x, (-1,)) for x in (values, weights))
    keras.metrics.Mean.update_state(metric, values, weights)


@keras.saving.register_keras_serializable("keras_bertfam")
class Perplexity(keras.metrics.Mean):
    """The exponential of the weighted mean cross-entropy over all batches.

    Takes the call arguments of `MaskedCrossentropy`.

    Example:

    ```python
    from keras_bertfam.tasks.losses import Perplexity
    metric = Perplexity()
    metric.update_state([[1, 0]], keras.ops.zeros((1, 2, 4)))
    metric.result()  # 4.0
    ```
    """

    reads_scores = True

    def __init__(self, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        losses = token_crossentropy(y_true, y_pred)
        _update_by_slot(self, losses, sample_weight)

    def result(self) -> Tensor:
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_bertfam")
class TokenAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """The share of tokens that are predicted correctly.

    Takes the call arguments of `MaskedCrossentropy`.

    Example:

    ```python
    from keras_bertfam.tasks.losses import TokenAccuracy
    metric = TokenAccuracy()
    metric.update_state([[1, 0]], [[[0.1, 0.9], [0.2, 0.8]]])
    metric.result()  # 0.5
    ```
    """

    reads_scores = True

    def __init__(self, name: str = "accuracy", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        if _are_scores(y_true, y_pred):
            right = y_pred[..., 0, 1]
        else:
            right = keras.metrics.sparse_categorical_accuracy(y_true, y_pred)
        _update_by_slot(self, right, sample_weight)


def token_metrics() -> list[keras.metrics.Metric]:
    """Make metrics of predicted tokens: accuracy and perplexity."""
    return [TokenAccuracy(), Perplexity()]


class _CountingOnce(Mixin):
    """Mixin of metrics that count every example with a weight above 0 once.

    Keras's `metrics` ignore weights, too. Here a weight of 0 means that there is no
    example: a row that fills up a batch, or a word beyond the end of a row.
    """

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        if sample_weight is not None:
            sample_weight = ops.cast(ops.not_equal(sample_weight, 0), self.dtype)
        super().update_state(y_true, y_pred, sample_weight)


@keras.saving.register_keras_serializable("keras_bertfam", name="AccuracyOfEach")
class UnweightedAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """The share of correct classes; examples count once if their weight isn't 0."""

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        right = keras.metrics.sparse_categorical_accuracy(y_true, y_pred)
        weights = ops.not_equal(weights_of(right, sample_weight), 0)
        _update_by_slot(self, right, weights)


@keras.saving.register_keras_serializable("keras_bertfam", name="ErrorOfEach")
class UnweightedError(_CountingOnce, keras.metrics.RootMeanSquaredError):
    """The root mean squared error; examples count once if their weight isn't 0."""


class _OnLabelSets(_CountingOnce):
    """Mixin of metrics that read probabilities; outputs may be logits."""

    from_logits = True

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        y_true = ops.cast(y_true, "float32")
        if self.from_logits:
            y_pred = ops.sigmoid(ops.cast(y_pred, "float32"))
        super().update_state(y_true, y_pred, sample_weight)

    def get_config(self) -> Config:
        return {"name": self.name, "from_logits": self.from_logits}


@keras.saving.register_keras_serializable("keras_bertfam", name="AccuracyOfLabels")
class LabelSetAccuracy(_OnLabelSets, keras.metrics.BinaryAccuracy):
    """The share of correct decisions, one for each class of each example."""

    def __init__(self, name: str = "accuracy", from_logits: bool = True) -> None:
        super().__init__(name=name)
        self.from_logits = from_logits


@keras.saving.register_keras_serializable("keras_bertfam", name="F1OfLabels")
class LabelSetF1(_OnLabelSets, keras.metrics.F1Score):
    """The F1 of all classes of all examples together."""

    def __init__(self, name: str = "micro_f1", from_logits: bool = True) -> None:
        super().__init__(average="micro", threshold=0.5, name=name)
        self.from_logits = from_logits
