"""Losses of vectors: for pairs, with or without similarities, and for distillation.

`TextEmbedder` gives a vector for each text of an example: a query, the passage that
belongs to it, and any number of negatives, which don't. A loss gives a number for each
example.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.tasks.losses import WeightedMeanLoss, without_last
from keras_bertfam.types import Config, Tensor

_MASKED = -1e9


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Compute the cosine of the angle between vectors, along the last axis."""
    return ops.sum(unit(a) * unit(b), axis=-1)


def unit(x: Tensor) -> Tensor:
    """Give vectors length 1, along the last axis."""
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))


@dataclasses.dataclass(frozen=True)
class Examples:
    """Hold a batch of examples as a loss of vectors reads it.

    Attributes:
        vectors: float32 tensor `(batch, columns, width)`: for each example, the vectors
            of its query, its passage and its negatives.
        labels: float32 tensor `(batch, ...)`, or `None`.
        text_ids: int tensor `(batch, columns)`: equal texts have equal ids. `None` if
            there are labels.
        weights: float32 tensor `(batch,)`.
    """

    vectors: Tensor
    labels: Tensor | None
    text_ids: Tensor | None
    weights: Tensor

    @property
    def columns(self) -> int:
        """int: how many texts an example has."""
        return self.vectors.shape[1]

    def labels_of(self, loss: Any, *shape: int) -> Tensor:
        """Give the labels, after checking the shape of each example's.

        Raises:
            ValueError: for no labels, or labels of another shape.
        """
        name = type(loss).__name__
        expected = ", ".join(map(str, ("batch", *shape)))
        if self.labels is None:
            raise ValueError(
                f"`y` must be numbers of the shape ({expected}) for {name}. "
                "Received: None."
            )
        labels = without_last(self.labels, 1 + len(shape))
        if tuple(labels.shape)[1:] != shape:
            received = tuple(labels.shape)[1:]
            raise ValueError(
                f"`y` must be numbers of the shape ({expected}) for {name}. Received: "
                f"shape ({', '.join(map(str, ('batch', *received)))})."
            )
        return labels

    def refuse_labels(self, loss: Any) -> None:
        """Raise a `ValueError` if a loss that reads no labels is given some."""
        if self.labels is not None:
            raise ValueError(
                f"`y` must be `None` for {type(loss).__name__}, which reads no labels. "
                f"Received: labels of the shape {tuple(self.labels.shape)}."
            )

    def need_columns(self, loss: Any, least: int, most: int | None = None) -> None:
        """Raise a `ValueError` if examples have too few or too many texts."""
        if self.columns < least or (most is not None and self.columns > most):
            raise ValueError(
                f"`x` must be tuples of {'' if most == least else 'at least '}{least} "
                f"texts for {type(loss).__name__}. Received: of {self.columns}."
            )


class EmbeddingLoss(WeightedMeanLoss):
    """Base class of the losses of vectors; a subclass defines `losses`.

    The loss of a batch is the weighted mean of its examples' losses, over all replicas.

    Attributes:
        has_roles: whether the first text of an example is a query and the others are
            passages, so that they get different prompts.
        of_similarities: whether labels are cosines, from -1 to 1.
    """

    has_roles = True
    of_similarities = False

    def losses(self, examples: Examples) -> Tensor:
        """Compute the loss of each example, float32 `(batch,)`."""
        raise TypeError(f"{type(self).__name__} must define `losses`.")

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        examples = as_examples(y_true, y_pred, sample_weight)
        total = ops.sum(self.losses(examples) * examples.weights)
        return distribution.global_mean(total, ops.sum(examples.weights))

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return self.losses(as_examples(y_true, y_pred, None))


def as_examples(
    y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None
) -> Examples:
    """Make `Examples` from the arguments of a loss's call.

    Args:
        y_true: ids of texts, int `(..., columns)`, or labels, float `(..., *)`.
        y_pred: float tensor `(..., columns, width)`; `(batch, width)` for single texts.
        sample_weight: float tensor `(...)`, or `None`.
    """
    vectors = ops.cast(ops.convert_to_tensor(y_pred), "float32")
    if len(vectors.shape) == 2:
        vectors = ops.expand_dims(vectors, 1)
        axes = 1
    else:
        axes = len(vectors.shape) - 2
    columns, width = vectors.shape[-2:]
    y = ops.convert_to_tensor(y_true)
    is_int = keras.backend.is_int_dtype(keras.backend.standardize_dtype(y.dtype))
    are_ids = is_int and tuple(y.shape[axes:]) == (columns,)
    y = ops.reshape(y, (-1, *y.shape[axes:]))
    vectors = ops.reshape(vectors, (-1, columns, width))
    if sample_weight is None:
        weights = ops.ones_like(vectors[:, 0, 0])
    else:
        weights = without_last(sample_weight, axes)
        weights = ops.cast(ops.reshape(weights, (-1,)), "float32")
    if are_ids:
        return Examples(vectors, None, y, weights)
    return Examples(vectors, ops.cast(y, "float32"), None, weights)


@keras.saving.register_keras_serializable("keras_bertfam")
class CosineSimilarityError(EmbeddingLoss):
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

    has_roles = False
    of_similarities = True

    def __init__(self, name: str = "cosine_similarity_error") -> None:
        super().__init__(name=name)

    def losses(self, examples: Examples) -> Tensor:
        if examples.columns != 2:
            raise ValueError(
                "`x` must be pairs of texts, `(batch, 2, length)`, if `y` has their "
                f"similarities. Received: {examples.columns} texts for each."
            )
        a, b = ops.unstack(examples.vectors, axis=1)
        return ops.square(examples.labels_of(self) - cosine(a, b))


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class InBatchNegatives(EmbeddingLoss):
    """The cross-entropy of choosing a query's passage among all passages of the batch.

    Examples are `(query, passage)`, or `(query, passage, negative, ...)` with any
    number of negatives: passages that don't answer the query. A query's candidates are
    the passages and negatives of all examples, on all replicas of a `tf.distribute`
    strategy. Some candidates are left out: those of examples of weight 0, and those
    that are known to be no negatives, because their text is the query's or its
    passage's, or because they are passages of an equal query.

    The score of a candidate is `scale` times the cosine. Also known as InfoNCE, NT-Xent
    and `MultipleNegativesRankingLoss`.

    Args:
        scale: float. Cosines are multiplied by it: 1 / temperature.
        symmetric: bool. Whether a passage also chooses its query among all queries. The
            loss is then the mean of both directions.
        normalize: bool. Whether scores are cosines; otherwise they are inner products,
            for which `scale` is usually 1.
        margin: float. It is subtracted from the cosine of the right passage, which then
            has to exceed the others by it.
        hard_negative_weight: float. It is added to the scores of an example's own
            negatives.

    Call arguments:
        y_true: ids of texts, int `(batch, columns)`, from the preprocessor. Equal texts
            have equal ids.
        y_pred: float tensor `(batch, columns, width)`.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar, in nats.

    Raises:
        ValueError: for a scale that isn't positive; if called with labels.

    Example:

    ```python
    loss = keras_bertfam.tasks.InBatchNegatives(scale=1.0)
    vectors = [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]
    loss([[0, 1], [2, 3]], vectors)  # ln(1 + 1 / e) = 0.313
    ```

    References: [Henderson et al., 2017](https://arxiv.org/abs/1705.00652), section 4.4;
    [Gao et al., 2021](https://arxiv.org/abs/2104.08821), sections 3 and 4; the margin
    of [Yang et al., 2019](https://arxiv.org/abs/1902.08564), section 2.
    """

    def __init__(
        self,
        scale: float = 20.0,
        symmetric: bool = False,
        normalize: bool = True,
        margin: float = 0.0,
        hard_negative_weight: float = 0.0,
        name: str = "in_batch_negatives",
    ) -> None:
        super().__init__(name=name)
        self.scale = _positive(scale)
        self.symmetric = symmetric
        self.normalize = normalize
        self.margin = margin
        self.hard_negative_weight = hard_negative_weight

    def losses(self, examples: Examples) -> Tensor:
        examples.refuse_labels(self)
        examples.need_columns(self, 2)
        if self.normalize:
            vectors = unit(examples.vectors)
            examples = dataclasses.replace(examples, vectors=vectors)
        batch = _Candidates(examples)
        scores = self.scale * ops.matmul(batch.own[:, 0], ops.transpose(batch.passages))
        scores = scores - self.scale * self.margin * batch.right_ones
        if self.hard_negative_weight:
            scores = scores + self.hard_negative_weight * batch.own_negatives
        losses = _crossentropy(scores, batch.candidates(), batch.right_ones)
        if not self.symmetric:
            return losses
        right = batch.right_ones[:, : batch.count]
        scores = self.scale * ops.matmul(batch.own[:, 1], ops.transpose(batch.queries))
        scores = scores - self.scale * self.margin * right
        back = _crossentropy(scores, batch.candidates(of_passages=True), right)
        return (losses + back) / 2

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "scale": self.scale,
            "symmetric": self.symmetric,
            "normalize": self.normalize,
            "margin": self.margin,
            "hard_negative_weight": self.hard_negative_weight,
        }


def _positive(scale):
    if not scale > 0:
        raise ValueError(f"`scale` must be greater than 0. Received: {scale}.")
    return scale


def _crossentropy(scores, candidates, right):
    """Compute the cross-entropy of the right candidate of each row."""
    among = ops.logsumexp(ops.where(candidates, scores, _MASKED), axis=1)
    return among - ops.sum(scores * right, axis=1)


class _Candidates:
    """Hold the examples of all replicas, as candidates for this replica's examples.

    Two examples with a negative each, in letters `(q, p, n)` and `(q, r, p)`, share
    their query, and the second one's negative is the first one's passage. Then

        passages         p, r, n, p
        right_ones       [[1, 0, 0, 0], [0, 1, 0, 0]]
        own_negatives    [[0, 0, 1, 0], [0, 0, 0, 1]]
        candidates()     [[1, 0, 1, 0], [0, 1, 1, 1]]

    The first query doesn't choose among its own passage's copy, nor among `r`, which
    is right for the same query. The second keeps `p`: it was given as its negative.

    Attributes:
        own: float tensor `(batch, columns, width)`, the vectors of this replica.
        count: int or int tensor, the number of examples on all replicas.
        queries: float tensor `(count, width)`.
        passages: float tensor `(count * (columns - 1), width)`: the right passages of
            all examples, then all first negatives, and so on.
        right_ones: float tensor `(batch, count * (columns - 1))`, 1 at the example's
            own passage.
        own_negatives: float tensor of that shape, 1 at the example's own negatives.
    """

    def __init__(self, examples):
        self.own = examples.vectors
        columns, width = self.own.shape[1:]
        self._ids, weights = examples.text_ids, examples.weights[:, None]
        parts = [ops.reshape(self.own, (-1, columns * width)), weights]
        if self._ids is not None:
            # Ids are below 2 ** 24, which float32 holds.
            parts.append(ops.cast(self._ids, "float32"))
        rows, inside, first = distribution.rows_of_all(ops.concatenate(parts, axis=1))
        vectors = ops.reshape(rows[:, : columns * width], (-1, columns, width))
        rest = ops.stop_gradient(rows[:, columns * width :])
        self._there = rest[:, 0] > 0
        if inside is not None:
            self._there = ops.logical_and(self._there, inside)
        self._all_ids = None
        if self._ids is not None:
            self._all_ids = ops.cast(rest[:, 1:], self._ids.dtype)
        self.columns, self.count = columns, ops.shape(vectors)[0]
        self.queries, self.rights = vectors[:, 0], vectors[:, 1]
        self.passages = _by_column(vectors[:, 1:])
        places = ops.arange(ops.shape(self.own)[0], dtype="int32") + first
        same = ops.equal(places[:, None], ops.arange(self.count, dtype="int32")[None])
        same = ops.cast(same, "float32")
        blank = ops.zeros_like(same)
        self.right_ones = ops.concatenate([same, *[blank] * (columns - 2)], axis=1)
        self.own_negatives = ops.concatenate([blank, *[same] * (columns - 2)], axis=1)

    def candidates(self, of_passages=False):
        """Mark which passages each query has to choose among, or the reverse."""
        if of_passages:
            there, right = self._there, self.right_ones[:, : self.count]
        else:
            there = ops.concatenate([self._there] * (self.columns - 1), axis=0)
            right = self.right_ones
        candidates = ops.broadcast_to(there[None], ops.shape(right))
        if self._ids is not None:
            known = self._known(of_passages)
            candidates = ops.logical_and(candidates, ops.logical_not(known))
        return ops.logical_or(candidates, right > 0)

    def _known(self, of_passages):
        """Mark the candidates that are no negatives, by their texts."""

        def equal(ids, others):
            return ops.equal(ids[:, None], others[None])

        query, right = self._ids[:, 0], self._ids[:, 1]
        queries, rights = self._all_ids[:, 0], self._all_ids[:, 1]
        if of_passages:
            same_text = ops.logical_or(equal(query, queries), equal(right, queries))
            return ops.logical_or(same_text, equal(right, rights))
        texts = _by_column(self._all_ids[:, 1:, None])[:, 0]
        same_text = ops.logical_or(equal(query, texts), equal(right, texts))
        same_query = equal(query, queries)
        blank = ops.zeros_like(same_query)
        same_query = [same_query, *[blank] * (self.columns - 2)]
        return ops.logical_or(same_text, ops.concatenate(same_query, axis=1))


def _by_column(x):
    """Order vectors by column: first those of all examples' first texts, and so on."""
    return ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, x.shape[-1]))


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class GuidedNegatives(EmbeddingLoss):
    """In-batch negatives, except those that a guide finds closer than the passage.

    `y` has the guide's vectors of the same texts: `guide.predict(x)`, or vectors from
    any other library. The candidates of a query are the passages and negatives of all
    examples, and the other queries. Its passage is also compared with the other
    passages.

    Args:
        scale: float. Cosines are multiplied by it: 1 / temperature.
        margin: float. A candidate is left out if its cosine by the guide exceeds the
            right passage's cosine minus `margin`.
        contrast_queries: bool. Whether other queries are candidates.
        contrast_passages: bool. Whether a query's passage is compared with other
            passages.

    Call arguments:
        y_true: float tensor `(batch, columns, guide_width)`.
        y_pred: float tensor `(batch, columns, width)`.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar, in nats.

    Raises:
        ValueError: for a scale that isn't positive; if called with other labels.

    Example:

    ```python
    loss = keras_bertfam.tasks.GuidedNegatives()
    x = (["What is a cat?", "And a dog?"], ["An animal.", "Also one."])
    model = keras_bertfam.tasks.TextEmbedder.from_preset("my_bert")
    guide = keras_bertfam.tasks.TextEmbedder.from_preset("my_bert")
    model.compile(loss=loss)
    model.fit(x, guide.predict(x))
    ```

    Reference: [Solatorio, 2024](https://arxiv.org/abs/2402.16829), section 3.
    """

    def __init__(
        self,
        scale: float = 100.0,
        margin: float = 0.0,
        contrast_queries: bool = True,
        contrast_passages: bool = True,
        name: str = "guided_negatives",
    ) -> None:
        super().__init__(name=name)
        self.scale = _positive(scale)
        self.margin = margin
        self.contrast_queries = contrast_queries
        self.contrast_passages = contrast_passages

    def losses(self, examples: Examples) -> Tensor:
        examples.need_columns(self, 2)
        guide = examples.labels
        if guide is None or tuple(guide.shape)[1:-1] != (examples.columns,):
            received = "None" if guide is None else f"shape {tuple(guide.shape)}"
            raise ValueError(
                "`y` must be a guide's vectors of `x`, of the shape (batch, "
                f"{examples.columns}, width), for GuidedNegatives. "
                f"Received: {received}."
            )
        ours = _Candidates(
            dataclasses.replace(examples, vectors=unit(examples.vectors))
        )
        theirs = _Candidates(dataclasses.replace(examples, vectors=unit(guide)))
        guided_right = cosine(guide[:, 0], guide[:, 1])[:, None]
        right = ours.right_ones
        scores, candidates, rights = [], [], []

        def add(first, second, among, right):
            ours_, theirs_ = (
                ops.matmul(first(batch), ops.transpose(second(batch)))
                for batch in (ours, theirs)
            )
            # Another example's copy of the text isn't a negative. Its cosine may differ
            # in the last bits.
            closer = theirs_ > guided_right - self.margin - 1e-6
            scores.append(self.scale * ours_)
            candidates.append(ops.logical_and(among, ops.logical_not(closer)))
            rights.append(right)

        among = ours.candidates()
        add(lambda b: b.own[:, 0], lambda b: b.passages, among, right)
        candidates[0] = ops.logical_or(candidates[0], right > 0)
        itself = right[:, : ours.count]
        others = ops.logical_and(among[:, : ours.count], ops.logical_not(itself > 0))
        nothing = ops.zeros_like(itself)
        if self.contrast_queries:
            add(lambda b: b.own[:, 0], lambda b: b.queries, others, nothing)
        if self.contrast_passages:
            add(lambda b: b.own[:, 1], lambda b: b.rights, others, nothing)
        return _crossentropy(
            *(ops.concatenate(x, axis=1) for x in (scores, candidates, rights))
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "scale": self.scale,
            "margin": self.margin,
            "contrast_queries": self.contrast_queries,
            "contrast_passages": self.contrast_passages,
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class CoSENT(EmbeddingLoss):
    """Learn to order a batch's pairs by cosine as their labels order them.

    The loss is `ln(1 + sum exp(scale * (cosine_j - cosine_i)))`; the sum is over all
    pairs `i` and `j` where the label of `i` is greater. Only the order of labels
    counts, so that they may have any range. The terms of the sum are weighted by the
    examples' weights.

    Args:
        scale: float. Cosines are multiplied by it.

    Call arguments:
        y_true: float tensor `(batch,)`.
        y_pred: float tensor `(batch, 2, width)`.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar, in nats.

    Example:

    ```python
    loss = keras_bertfam.tasks.CoSENT(scale=1.0)
    same, other = [[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]
    loss([5.0, 1.0], [same, other])  # ln(1 + 1 / e) = 0.313
    ```

    Reference: [Su, 2022](https://kexue.fm/archives/8847).
    """

    has_roles = False

    def __init__(self, scale: float = 20.0, name: str = "cosent") -> None:
        super().__init__(name=name)
        self.scale = _positive(scale)

    def losses(self, examples: Examples) -> Tensor:
        examples.need_columns(self, 2, 2)
        labels = examples.labels_of(self)
        a, b = ops.unstack(examples.vectors, axis=1)
        scores = self.scale * cosine(a, b)
        rows = ops.stack([scores, labels, examples.weights], axis=1)
        rows, inside, _ = distribution.rows_of_all(rows)
        scores, labels, weights = ops.unstack(rows, 3, axis=1)
        if inside is not None:
            weights = weights * ops.cast(inside, "float32")
        # Entries of row i and column j.
        differences = scores[None] - scores[:, None]
        both = weights[:, None] * weights[None]
        counts = ops.logical_and(labels[:, None] > labels[None], both > 0)
        differences = differences + ops.log(ops.where(counts, both, 1.0))
        terms = ops.reshape(ops.where(counts, differences, _MASKED), (-1,))
        terms = ops.concatenate([ops.zeros((1,)), terms], axis=0)
        return ops.logsumexp(terms) * ops.ones_like(examples.weights)

    def get_config(self) -> Config:
        return {**super().get_config(), "scale": self.scale}


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class TripletMargin(EmbeddingLoss):
    """`max(0, distance to the passage - distance to a negative + margin)`.

    Examples are `(query, passage, negative, ...)`; the loss is the mean over the
    negatives.

    Args:
        margin: float.
        distance: `"cosine"`, which is 1 minus the cosine, or `"euclidean"`.

    Call arguments:
        y_true: ids of texts, int `(batch, columns)`. They aren't read.
        y_pred: float tensor `(batch, columns, width)`, with three columns or more.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar.

    Raises:
        ValueError: for an unknown distance; if called with labels.

    Example:

    ```python
    loss = keras_bertfam.tasks.TripletMargin(margin=0.5)
    loss([[0, 1, 2]], [[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])  # 0.0
    ```

    Reference: [Reimers and Gurevych, 2019](https://arxiv.org/abs/1908.10084),
    section 3.
    """

    def __init__(
        self,
        margin: float = 0.5,
        distance: str = "cosine",
        name: str = "triplet_margin",
    ) -> None:
        super().__init__(name=name)
        if distance not in ("cosine", "euclidean"):
            raise ValueError(
                '`distance` must be "cosine" or "euclidean". '
                f"Received: distance={distance!r}."
            )
        self.margin = margin
        self.distance = distance

    def losses(self, examples: Examples) -> Tensor:
        examples.refuse_labels(self)
        examples.need_columns(self, 3)
        queries, passages = examples.vectors[:, :1], examples.vectors[:, 1:]
        if self.distance == "cosine":
            distances = 1 - cosine(queries, passages)
        else:
            squares = ops.sum(ops.square(queries - passages), axis=-1)
            distances = ops.sqrt(ops.maximum(squares, 1e-12))
        over = distances[:, :1] - distances[:, 1:] + self.margin
        return ops.mean(ops.relu(over), axis=1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "margin": self.margin,
            "distance": self.distance,
        }


class _OfScores(EmbeddingLoss):
    """Base class of losses that learn a teacher's scores for a query's passages."""

    def __init__(self, normalize: bool, name: str) -> None:
        super().__init__(name=name)
        self.normalize = normalize

    def scores(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """Give our scores and the teacher's, both `(batch, columns - 1)`."""
        examples.need_columns(self, 3)
        labels = examples.labels_of(self, examples.columns - 1)
        vectors = unit(examples.vectors) if self.normalize else examples.vectors
        return ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1), labels

    def get_config(self) -> Config:
        return {**super().get_config(), "normalize": self.normalize}


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MarginError(_OfScores):
    """Learn from a teacher by how much the passage's score exceeds the negatives'.

    The loss is the mean of `((s_p - s_n) - (t_p - t_n)) ** 2` over an example's
    negatives, with our scores `s` and the teacher's `t`. It is also known as MarginMSE.
    Make the `TextEmbedder` with `normalize=False`: teachers' scores have no bounds.

    Args:
        normalize: bool. Whether our scores are cosines, and not inner products.

    Call arguments:
        y_true: float tensor `(batch, columns - 1)`, the teacher's scores of the passage
            and the negatives.
        y_pred: float tensor `(batch, columns, width)`, of three columns or more.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar.

    Example:

    ```python
    loss = keras_bertfam.tasks.MarginError()
    loss([[5.0, 1.0]], [[[1.0, 0.0], [10.0, 0.0], [9.0, 0.0]]])  # (1 - 4) ** 2 = 9
    ```

    Reference: [Hofstätter et al., 2020](https://arxiv.org/abs/2010.02666), section 3.
    """

    def __init__(self, normalize: bool = False, name: str = "margin_error") -> None:
        super().__init__(normalize, name)

    def losses(self, examples: Examples) -> Tensor:
        scores, labels = self.scores(examples)
        errors = scores[:, :1] - scores[:, 1:] - (labels[:, :1] - labels[:, 1:])
        return ops.mean(ops.square(errors), axis=1)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ScoreDistillation(_OfScores):
    """The Kullback-Leibler divergence from a teacher's distribution over the passages.

    Args:
        temperature: float. The scores of both models are divided by it, and the loss is
            multiplied by its square.
        normalize: bool. Whether scores are cosines, and not inner products.

    Call arguments:
        y_true: float tensor `(batch, columns - 1)`, the teacher's scores.
        y_pred: float tensor `(batch, columns, width)`, of three columns or more.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar, in nats.

    Raises:
        ValueError: for a temperature that isn't positive.

    Example:

    ```python
    loss = keras_bertfam.tasks.ScoreDistillation()
    loss([[5.0, 4.0]], [[[1.0, 0.0], [10.0, 0.0], [9.0, 0.0]]])  # 0.0
    ```

    Reference: [Lin et al., 2020](https://arxiv.org/abs/2010.11386), section 3.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        normalize: bool = False,
        name: str = "score_distillation",
    ) -> None:
        super().__init__(normalize, name)
        if not temperature > 0:
            raise ValueError(
                f"`temperature` must be greater than 0. Received: {temperature}."
            )
        self.temperature = temperature

    def losses(self, examples: Examples) -> Tensor:
        ours, theirs = (
            ops.log_softmax(scores / self.temperature, axis=1)
            for scores in self.scores(examples)
        )
        divergence = ops.sum(ops.exp(theirs) * (theirs - ours), axis=1)
        return divergence * self.temperature**2

    def get_config(self) -> Config:
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable("keras_bertfam")
class VectorDistillation(EmbeddingLoss):
    """The mean squared difference from a teacher's vectors of the same texts.

    Examples are single texts, or tuples of texts, such as a sentence and its
    translation.

    Call arguments:
        y_true: float tensor as `y_pred`.
        y_pred: float tensor `(batch, width)`, or `(batch, columns, width)`.
        sample_weight: float tensor `(batch,)`; all one if missing.

    Returns:
        float32 scalar.

    Example:

    ```python
    loss = keras_bertfam.tasks.VectorDistillation()
    loss([[1.0, 0.0]], [[0.0, 0.0]])  # 0.5
    ```

    Reference: [Reimers and Gurevych, 2020](https://arxiv.org/abs/2004.09813).
    """

    has_roles = False

    def __init__(self, name: str = "vector_distillation") -> None:
        super().__init__(name=name)

    def losses(self, examples: Examples) -> Tensor:
        vectors = examples.vectors
        if examples.columns == 1:
            vectors = vectors[:, 0]
        labels = examples.labels_of(self, *vectors.shape[1:])
        errors = ops.square(vectors - labels)
        return ops.mean(errors, axis=tuple(range(1, len(vectors.shape))))


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class Matryoshka(EmbeddingLoss):
    """Sum another loss over several lengths to which vectors are cut.

    After such training, the first numbers of vectors can be used alone, as with
    `TextEmbedder(truncate_dim=64)`. Cut vectors need length 1 again for an index, which
    compares inner products.

    Args:
        loss: another loss of this module.
        dims: list of ints, the lengths. The full length counts only if it is among
            them.
        weights: list of floats, one for each length's loss; all 1 if `None`.

    Call arguments: those of `loss`.

    Returns:
        float32 scalar.

    Raises:
        ValueError: for a `loss` that can't be used so, or more or fewer weights than
            lengths; if called with vectors that are shorter than a length.

    Example:

    ```python
    loss = keras_bertfam.tasks.Matryoshka(
        keras_bertfam.tasks.InBatchNegatives(), dims=[128, 64, 32])
    ```

    Reference: [Kusupati et al., 2022](https://arxiv.org/abs/2205.13147), section 3.
    """

    def __init__(
        self,
        loss: EmbeddingLoss,
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
        name: str = "matryoshka",
    ) -> None:
        super().__init__(name=name)
        if not isinstance(loss, EmbeddingLoss) or isinstance(loss, VectorDistillation):
            raise ValueError(
                "`loss` must be a loss of vectors that compares texts, such as "
                f"`InBatchNegatives()`. Received: {type(loss).__name__}."
            )
        dims = list(dims)
        if not dims or min(dims) < 1:
            raise ValueError(f"`dims` must be at least 1. Received: {dims}.")
        weights = [1.0] * len(dims) if weights is None else list(weights)
        if len(weights) != len(dims):
            raise ValueError(
                "`weights` must be as many as `dims`. Received: "
                f"weights={weights}, dims={dims}."
            )
        self.loss, self.dims, self.weights = loss, dims, weights
        self.has_roles = loss.has_roles
        self.of_similarities = loss.of_similarities

    def losses(self, examples: Examples) -> Tensor:
        width = examples.vectors.shape[-1]
        if max(self.dims) > width:
            raise ValueError(
                f"`dims` must be at most {width}, the width of vectors. "
                f"Received: {self.dims}."
            )
        cut = (
            dataclasses.replace(examples, vectors=examples.vectors[..., :dim])
            for dim in self.dims
        )
        pairs = zip(self.weights, cut, strict=True)
        return sum(weight * self.loss.losses(part) for weight, part in pairs)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "loss": keras.saving.serialize_keras_object(self.loss),
            "dims": self.dims,
            "weights": self.weights,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        loss = keras.saving.deserialize_keras_object(config["loss"])
        return cls(**{**config, "loss": loss})


@keras.saving.register_keras_serializable("keras_bertfam")
class NegativesOrSimilarities(EmbeddingLoss):
    """`InBatchNegatives()` of texts alone, `CosineSimilarityError()` with similarities.

    `TextEmbedder` is compiled with it by default.
    """

    of_similarities = True

    def __init__(self, name: str = "negatives_or_similarities") -> None:
        super().__init__(name=name)

    def losses(self, examples: Examples) -> Tensor:
        has_labels = examples.labels is not None
        loss = CosineSimilarityError() if has_labels else InBatchNegatives()
        return loss.losses(examples)
