"""Losses of scores: for single passages, for pairs, and for whole lists.

`CrossEncoder` gives a score for each passage of a query. For example, a list has four
passages with scores 2, 1, 0 and -1, and the first one is relevant. Then each loss
measures something else:

    PointwiseCrossentropy  how far each score is from its own label
    PairwiseLogistic       how little 2 exceeds 1, 0 and -1
    ListwiseCrossentropy   how much of softmax(2, 1, 0, -1) the first one lacks
    LambdaLoss             the pairs' losses, weighted by what a swap costs in nDCG
    ScoreMargins           how far 2 - 1, 2 - 0 and 2 + 1 are from the teacher's
"""

import math

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.tasks.finetuning.cross_encoder_preprocessor import GAP
from keras_bertfam.tasks.losses import WeightedMeanLoss
from keras_bertfam.types import Config, Tensor

_MASKED = -1e9


class RankingLoss(WeightedMeanLoss):
    """Base class of the losses of scores; a subclass defines `losses`.

    The loss of a batch is the weighted mean of its queries' losses, over all replicas.

    Attributes:
        needs_lists: whether a query must have more than one passage.
    """

    needs_lists = True

    def label_range(self, single: bool) -> tuple[float, float]:
        """Give the least and the greatest label, for single passages or for lists."""
        return 0.0, math.inf

    def losses(self, labels: Tensor, scores: Tensor, there: Tensor) -> Tensor:
        """Compute the loss of each query, float32 `(batch,)`.

        Args:
            labels: float32 tensor `(batch, passages)`, 0 in empty places.
            scores: float32 tensor of that shape.
            there: float32 tensor of that shape: 1 for passages, 0 for empty places.
        """
        raise TypeError(f"{type(self).__name__} must define `losses`.")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        labels, scores = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        if self.needs_lists and scores.shape[1] == 1:
            raise ValueError(
                "`x` must have a list of passages for each query for "
                f"{type(self).__name__}. Received: one passage for each."
            )
        there = ops.cast(labels > GAP / 2, "float32")
        return self.losses(labels * there, scores, there)


@keras.saving.register_keras_serializable("keras_bertfam")
class PointwiseCrossentropy(RankingLoss):
    """The mean binary cross-entropy of a query's passages.

    Labels are 0 or 1, or a teacher's probabilities between. Call arguments are those of
    `ListwiseCrossentropy`; a query may have a single passage.

    Example:

    ```python
    loss = keras_bertfam.tasks.PointwiseCrossentropy()
    loss([[1.0, 0.0]], [[0.0, 0.0]])  # ln 2
    ```

    Reference: [Nogueira and Cho, 2019](https://arxiv.org/abs/1901.04085), section 3.
    """

    needs_lists = False

    def __init__(self, name: str = "pointwise_crossentropy") -> None:
        super().__init__(name=name)

    def label_range(self, single: bool) -> tuple[float, float]:
        return 0.0, 1.0

    def losses(self, labels: Tensor, scores: Tensor, there: Tensor) -> Tensor:
        losses = ops.softplus(scores) - scores * labels
        return _mean(losses, there)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ListwiseCrossentropy(RankingLoss):
    """The cross-entropy between the labels of a list and the softmax of its scores.

    If one passage is relevant, it is the negative log-likelihood of that passage.

    Args:
        softmax_labels: bool. Whether a softmax turns labels into a distribution, as in
            ListNet. Otherwise labels are divided by their sum, so that passages of
            label 0 have no share, and a list without a relevant passage has loss 0.

    Call arguments:
        y_true: float tensor `(batch, passages)`, the relevance of each passage, at
            least 0. If queries have unequal numbers of passages, the preprocessor marks
            empty places by -1e30.
        y_pred: float tensor of that shape: logits.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar, in nats.

    Raises:
        ValueError: for queries with a single passage.

    Example:

    ```python
    loss = keras_bertfam.tasks.ListwiseCrossentropy()
    loss([[1.0, 0.0]], [[0.0, 0.0]])  # ln 2
    ```

    References: [Cao et al., 2007](https://dl.acm.org/doi/10.1145/1273496.1273513),
    section 4; [Gao et al., 2021](https://arxiv.org/abs/2101.08751), section 3.
    """

    def __init__(
        self,
        softmax_labels: bool = False,
        name: str = "listwise_crossentropy",
    ) -> None:
        super().__init__(name=name)
        self.softmax_labels = softmax_labels

    def losses(self, labels: Tensor, scores: Tensor, there: Tensor) -> Tensor:
        gap = (1 - there) * _MASKED
        if self.softmax_labels:
            shares = ops.softmax(labels + gap)
        else:
            total = ops.sum(labels, axis=-1, keepdims=True)
            shares = labels / ops.where(total > 0, total, 1.0)
        return -ops.sum(shares * ops.log_softmax(scores + gap), axis=-1)

    def get_config(self) -> Config:
        return {**super().get_config(), "softmax_labels": self.softmax_labels}


@keras.saving.register_keras_serializable("keras_bertfam")
class PairwiseLogistic(RankingLoss):
    """The mean of `ln(1 + exp(lower - higher))` over pairs of a list.

    A pair is a passage and another one with a lower label. A list without such a pair
    has loss 0. The loss is also known as RankNet. Call arguments and errors are those
    of `ListwiseCrossentropy`.

    Example:

    ```python
    loss = keras_bertfam.tasks.PairwiseLogistic()
    loss([[2.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]])  # ln 2
    ```

    Reference: [Burges et al., 2005](https://dl.acm.org/doi/10.1145/1102351.1102363),
    section 3.
    """

    def __init__(self, name: str = "pairwise_logistic") -> None:
        super().__init__(name=name)

    def losses(self, labels: Tensor, scores: Tensor, there: Tensor) -> Tensor:
        pairs = _pairs(labels, there)
        losses = ops.softplus(-_differences(scores))
        return _mean(losses, pairs, axis=(1, 2))


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LambdaLoss(RankingLoss):
    """The losses of `PairwiseLogistic`'s pairs, weighted by their effect on nDCG.

    Passages are sorted by their scores. A pair at the places `i` and `j` has the weight

        |gain_i - gain_j| * (mu * near + |1 / D(i) - 1 / D(j)|)
        near = |1 / D(|i-j|) - 1 / D(|i-j|+1)|

    where `D(i) = log2(1 + i)`, and a passage's gain is `2 ** label - 1` divided by the
    list's greatest possible DCG. Labels are from 0 to 30, and logarithms have base 2.
    It is the paper's NDCG-Loss2++, except that it is the mean over a list's pairs
    instead of their sum.

    Args:
        mu: float. The weight of the first of the two terms.
        sigma: float. Differences of scores are multiplied by it.

    Call arguments and errors are those of `ListwiseCrossentropy`.

    Example:

    ```python
    loss = keras_bertfam.tasks.LambdaLoss()
    # A pair at the places 1 and 2, gains 1 and 0: (10 + 1) * (1 - 1 / log2(3)).
    loss([[1.0, 0.0]], [[0.0, 0.0]])  # 4.06
    ```

    Reference: [Wang et al., 2018](https://dl.acm.org/doi/10.1145/3269206.3271784),
    sections 4 and 5.
    """

    def __init__(
        self,
        mu: float = 10.0,
        sigma: float = 1.0,
        name: str = "lambda_loss",
    ) -> None:
        super().__init__(name=name)
        self.mu = mu
        self.sigma = sigma

    def label_range(self, single: bool) -> tuple[float, float]:
        return 0.0, 30.0  # powers of two

    def losses(self, labels: Tensor, scores: Tensor, there: Tensor) -> Tensor:
        gains = ops.power(2.0, labels) - 1
        places = ops.cumsum(ops.ones_like(labels), axis=-1)
        best = ops.flip(ops.sort(gains, axis=-1), axis=-1)
        ideal = ops.sum(best / _discount(places), axis=-1, keepdims=True)
        gains = gains / ops.where(ideal > 0, ideal, 1.0)
        # Empty places come last, so that they don't move passages.
        order = ops.argsort(ops.stop_gradient(-scores) - (1 - there) * _MASKED, axis=-1)
        rank = ops.cast(ops.argsort(order, axis=-1) + 1, "float32")
        apart = ops.abs(_differences(rank))
        # For a pair of a passage with itself this value doesn't matter: its gains are
        # equal.
        apart = ops.maximum(apart, 1.0)
        by_distance = 1 / _discount(apart) - 1 / _discount(apart + 1)
        by_place = ops.abs(_differences(1 / _discount(rank)))
        weights = ops.abs(_differences(gains)) * (self.mu * by_distance + by_place)
        losses = weights * ops.softplus(-self.sigma * _differences(scores))
        return _mean(losses, _pairs(labels, there), axis=(1, 2)) / math.log(2)

    def get_config(self) -> Config:
        return {**super().get_config(), "mu": self.mu, "sigma": self.sigma}


@keras.saving.register_keras_serializable("keras_bertfam")
class ScoreMargins(RankingLoss):
    """The mean squared error of a list's differences from its first passage.

    Labels are a teacher's scores, of any sign. Only their differences count. Call
    arguments and errors are those of `ListwiseCrossentropy`.

    Example:

    ```python
    loss = keras_bertfam.tasks.ScoreMargins()
    loss([[9.0, 5.0]], [[1.0, 0.0]])  # (4 - 1) ** 2
    ```

    Reference: [Hofstätter et al., 2020](https://arxiv.org/abs/2010.02666), section 3.
    """

    def __init__(self, name: str = "score_margins") -> None:
        super().__init__(name=name)

    def label_range(self, single: bool) -> tuple[float, float]:
        return -math.inf, math.inf

    def losses(self, labels: Tensor, scores: Tensor, there: Tensor) -> Tensor:
        errors = scores[:, :1] - scores[:, 1:] - (labels[:, :1] - labels[:, 1:])
        return _mean(ops.square(errors), there[:, 1:])


@keras.saving.register_keras_serializable("keras_bertfam")
class PointwiseOrListwise(RankingLoss):
    """`PointwiseCrossentropy` for single passages, `ListwiseCrossentropy` for lists.

    `CrossEncoder` is compiled with it by default.
    """

    needs_lists = False

    def __init__(self, name: str = "pointwise_or_listwise") -> None:
        super().__init__(name=name)

    def label_range(self, single: bool) -> tuple[float, float]:
        return 0.0, 1.0 if single else math.inf

    def losses(self, labels: Tensor, scores: Tensor, there: Tensor) -> Tensor:
        # A TensorFlow graph for both doesn't know the number of passages before it
        # runs.
        return ops.where(
            ops.shape(scores)[1] == 1,
            PointwiseCrossentropy().losses(labels, scores, there),
            ListwiseCrossentropy().losses(labels, scores, there),
        )


def _mean(values, weights, axis=-1):
    total = ops.sum(weights, axis=axis)
    return ops.sum(values * weights, axis=axis) / ops.maximum(total, 1.0)


def _differences(values):
    """Subtract a row's numbers from each other: `(batch, n)` becomes `(batch, n, n)`.

    `[[5, 3]]` gives `[[[0, 2], [-2, 0]]]`.
    """
    return ops.expand_dims(values, 2) - ops.expand_dims(values, 1)


def _pairs(labels, there):
    """Mark with 1 where a passage's label is greater than another's."""
    greater = ops.cast(_differences(labels) > 0, "float32")
    return greater * ops.expand_dims(there, 2) * ops.expand_dims(there, 1)


def _discount(places):
    return ops.log2(1 + places)
