"""Share code among tasks that find passages for queries."""

import functools
from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.layers.heads.token_scores import crossentropy
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.encoder_decoder import side_of
from keras_bertfam.models.exported import row_specs
from keras_bertfam.tasks.inputs import is_preprocessed, known_shapes, remember_shapes
from keras_bertfam.tasks.losses import UnweightedAccuracy
from keras_bertfam.tasks.task import PretrainingTask, pooler_variables
from keras_bertfam.tasks.vectors import TextVectors
from keras_bertfam.types import Tensor

SIDES = ("query", "passage")


class Retriever(TextVectors, PretrainingTask):
    """Base class of the tasks that find passages for queries.

    The loss is the cross-entropy of choosing the right passage among all passages of
    the batch: those of all queries on all replicas of a `tf.distribute` strategy, and
    hard negatives. Passages of other rows aren't chosen from if they equal the right
    one, if they answer an equal query, or if their rows have weight 0.

    A subclass defines `query_vectors`, `passage_vectors`, `score` and `towers`.

    Attributes:
        text_axes: int. How many axes the vectors of one text have.
    """

    backbone_cls = TokenBackbone
    has_global_tokens = True
    text_axes = 1

    def query_vectors(
        self, inputs: dict[str, Tensor], training: bool | None = False
    ) -> Tensor:
        """Compute vectors of queries."""
        raise TypeError(f"{type(self).__name__} must define `query_vectors`.")

    def passage_vectors(
        self, inputs: dict[str, Tensor], training: bool | None = False
    ) -> Tensor:
        """Compute vectors of passages."""
        raise TypeError(f"{type(self).__name__} must define `passage_vectors`.")

    def score(self, queries: Tensor, passages: Tensor) -> Tensor:
        """Score each query for each passage: float32 tensor `(queries, passages)`."""
        raise TypeError(f"{type(self).__name__} must define `score`.")

    def towers(self) -> list[Any]:
        """List the backbones."""
        return [self.backbone]

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        make = {"query": self.query_vectors, "passage": self.passage_vectors}
        sides = {side: side_of(inputs, side) for side in SIDES}
        return {
            side: make[side](rows, training)
            for side, rows in sides.items()
            if "token_ids" in rows
        }

    def _scores(
        self, x: dict[str, Tensor], y_pred: dict[str, Tensor], sample_weight: Any
    ) -> tuple[Tensor, Tensor, int]:
        """Score the queries of a batch for all passages.

        Args:
            x: the rows of the batch.
            y_pred: what `call` returned.
            sample_weight: numbers `(batch,)`, or `None`. The passages of a row of
                weight 0 have the score -1e9, except for its own query.

        Returns:
            A tuple of float32 scores `(batch, passages)`; the column of each query's
            first passage, int32 `(batch,)`; and the number of each query's passages.
        """
        queries, passages = y_pred["query"], y_pred["passage"]
        grouped = len(passages.shape) > self.text_axes + 1
        count = passages.shape[1] if grouped else 1
        if grouped:
            shape = ops.shape(passages)[2:]
            passages = ops.reshape(passages, (-1, *shape))
        passages, inside, first = distribution.rows_of_all(passages)
        scores = self.score(queries, passages)
        if inside is not None:
            scores = ops.where(ops.expand_dims(inside, 0), scores, -1e9)
        rows = ops.arange(ops.shape(queries)[0], dtype="int32")
        right = first + rows * count
        scores = ops.where(_are_right(x, right, count), -1e9, scores)
        if sample_weight is not None:
            weights = ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1))
            weights, *_ = distribution.rows_of_all(ops.repeat(weights, count, axis=0))
            columns = ops.arange(ops.shape(scores)[1], dtype="int32")
            own = ops.equal(columns, ops.expand_dims(right, 1))
            counted = ops.logical_or(own, ops.reshape(weights, (1, -1)) > 0)
            scores = ops.where(counted, scores, -1e9)
        return scores, right, count

    def _query_losses(
        self, y: Any, scores: Tensor, right: Tensor, count: int
    ) -> Tensor:
        """Compute the losses of queries: float tensor `(batch,)`.

        Args:
            y: the labels of the batch. By default they aren't read.
            scores, right, count: what `_scores` gives.
        """
        return crossentropy(right, scores)

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        losses = self._query_losses(y, *self._scores(x, y_pred, sample_weight))
        weights = ops.ones_like(losses)
        if sample_weight is not None:
            weights = ops.cast(ops.reshape(sample_weight, (-1,)), "float32")
        total, weight = ops.sum(losses * weights), ops.sum(weights)
        return distribution.global_mean(total, weight) + self.added_losses()

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        scores, right, _ = self._scores(x, y_pred, sample_weight)
        return super().compute_metrics(x, right, scores, sample_weight)

    def default_loss(self) -> None:
        return None

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [UnweightedAccuracy(name="accuracy")]

    def _batched(self, data, batch_size, position=None):
        batches = super()._batched(data, batch_size, position)
        x, *_ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
        known = known_shapes(batches)
        if known and not is_preprocessed(x):
            remember_shapes(batches, known * self.preprocessor.count_shapes())
        return batches

    def unused_variables(self) -> list[keras.Variable]:
        unused = super().unused_variables()
        towers = self.towers()
        for tower in towers:  # XLNet's tokens to be predicted start from this state
            query = getattr(tower, "query_embedding", None)
            unused = [*unused, *(query.variables if query else [])]
        for tower in towers[1:]:
            unused += [*pooler_variables(tower), *self.unread_output_table(tower)]
        return unused

    def input_signature(self) -> dict[str, keras.InputSpec]:
        names = super().input_signature()
        return row_specs(f"{side}_{name}" for side in SIDES for name in names)


def _are_right(x, right, count):
    """Tell which passages of other rows answer a query, too: `(queries, passages)`.

    Such are copies of its right passage, and right passages of equal queries. For
    example, of the rows `("a", "1"), ("b", "1"), ("a", "2")`, the first query is
    answered by all three passages, the second one by the first two.
    """
    queries, passages = (_fingerprints(side_of(x, side)) for side in SIDES)
    own = ops.reshape(passages, (-1, count, passages.shape[-1]))[:, 0]
    passages, *_ = distribution.rows_of_all(
        ops.reshape(passages, (-1, passages.shape[-1]))
    )
    asked, *_ = distribution.rows_of_all(ops.repeat(queries, count, axis=0))
    columns = ops.arange(ops.shape(passages)[0], dtype="int32")
    others = ops.floor_divide(columns, count) != ops.expand_dims(right // count, 1)
    answers = _equal(queries, asked) & (ops.mod(columns, count) == 0)
    return others & (_equal(own, passages) | answers)


def _equal(a, b):
    """Compare each row of `a` with each row of `b`."""
    # A column at a time, so that no tensor has more than a number for each pair.
    columns = [a[:, None, k] == b[None, :, k] for k in range(a.shape[-1])]
    return functools.reduce(ops.logical_and, columns)


def _fingerprints(rows):
    """Make four numbers of each row that are equal for equal texts, and hardly else.

    Two hashes of 32 bits, in halves: floats hold these exactly, and can be gathered
    from all replicas. Padding has no part in them.
    """
    ids = ops.cast(rows["token_ids"], "int32")
    if "padding_mask" in rows:
        ids = ops.where(ops.cast(rows["padding_mask"], "bool"), ids, 0)
    places = 2 * ops.arange(ops.shape(ids)[-1], dtype="int32") + 1
    halves = []
    for factor in (0x2C1B3C6D, 0x297A2D39):  # odd; products wrap round at 32 bits
        mixed = ids * factor
        mixed = ops.bitwise_xor(mixed, ops.bitwise_right_shift(mixed, 15))
        total = ops.sum(mixed * factor * places, axis=-1)
        halves += [total % 2**16, ops.bitwise_right_shift(total, 16) % 2**16]
    return ops.cast(ops.stack(halves, axis=-1), "float32")
