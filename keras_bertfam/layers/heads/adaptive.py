"""Adaptive embeddings and softmax: frequent tokens have wider vectors."""

from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.heads.token_scores import in_chunks
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class AdaptiveEmbedding(keras.layers.Layer):
    """Embeddings whose width falls from one cluster of tokens to the next.

    Ids must be in the order of frequency. Cluster `i` has vectors of width `output_dim
    // divisor**i`, and a projection to `output_dim` if this width is another.

    Args:
        input_dim: int. Number of tokens.
        output_dim: int.
        cutoffs: sequence of ints, ascending: the first ids of the second, third, ...
            cluster.
        divisor: int. `1` for the full width everywhere.
        embeddings_initializer: initializer of all weights.

    Call arguments:
        token_ids: int tensor `(batch, length)`.

    Returns:
        Float tensor `(batch, length, output_dim)`.

    Raises:
        ValueError: for cutoffs that don't ascend within the vocabulary, or a divisor
            by which a cluster's width becomes 0.

    Example:

    ```python
    from keras_bertfam.layers.heads.adaptive import AdaptiveEmbedding
    layer = AdaptiveEmbedding(100, 8, cutoffs=[10, 40], divisor=2)
    layer(keras.ops.array([[3, 20, 99]])).shape  # (1, 3, 8)
    ```

    Reference: [Baevski and Auli, 2018](https://arxiv.org/abs/1809.10853), section 3.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        cutoffs: Sequence[int],
        divisor: int = 1,
        embeddings_initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        bounds = [0, *(int(cutoff) for cutoff in cutoffs), input_dim]
        if sorted({*bounds}) != bounds:
            raise ValueError(
                f"`cutoffs` must ascend from above 0 to below {input_dim}. "
                f"Received: cutoffs={list(cutoffs)}."
            )
        if divisor < 1 or output_dim // divisor ** len(cutoffs) < 1:
            raise ValueError(
                "`divisor` must be at least 1, and give the last cluster a width of at "
                f"least 1 for output_dim={output_dim}. Received: divisor={divisor}."
            )
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.cutoffs = bounds[1:-1]
        self.divisor = divisor
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.clusters = list(zip(bounds[:-1], bounds[1:], strict=True))

    def build(self, input_shape: Shape | None = None) -> None:
        def weight(name, *shape):
            initializer = self.embeddings_initializer.clone()
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        self.tables, self.projections = [], []
        for k, (first, last) in enumerate(self.clusters):
            width = self.output_dim // self.divisor**k
            self.tables.append(weight(f"table_{k}", last - first, width))
            if width != self.output_dim:
                name = f"projection_{k}"
                self.projections.append(weight(name, width, self.output_dim))
        self.built = True

    def parts(self) -> list[tuple[Tensor, Tensor | None]]:
        """Give the table and projection of each cluster; `None` for no projection."""
        tables = [self._cast(table) for table in self.tables]
        projections = [self._cast(projection) for projection in self.projections]
        whole = len(tables) - len(projections)
        return list(zip(tables, [None] * whole + projections, strict=True))

    def _cast(self, weight):
        # The gradient of a reshape is dense, whatever arrives at it.
        return ops.cast(ops.reshape(weight, weight.shape), self.compute_dtype)

    def call(self, token_ids: Tensor) -> Tensor:
        ids = ops.cast(token_ids, "int32")
        total = None
        for (first, last), (table, projection) in zip(
            self.clusters, self.parts(), strict=True
        ):
            inside = ops.logical_and(ids >= first, ids < last)
            x = ops.take(table, ops.where(inside, ids - first, 0), axis=0)
            x = x * ops.cast(ops.expand_dims(inside, -1), x.dtype)
            x = x if projection is None else ops.matmul(x, projection)
            total = x if total is None else total + x
        return total

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.output_dim)

    def get_config(self) -> Config:
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "cutoffs": self.cutoffs,
            "divisor": self.divisor,
            "embeddings_initializer": initializer,
        }


@keras.saving.register_keras_serializable("keras_bertfam")
class AdaptiveSoftmax(keras.layers.Layer):
    """Log-probabilities by clusters, tied to the tables of an `AdaptiveEmbedding`.

    The first softmax is over the tokens of the first cluster and the other clusters.
    The probability of a token of another cluster is its cluster's probability times its
    own probability within the cluster.

    Args:
        embedding: `AdaptiveEmbedding`.

    Call arguments:
        x: float tensor `(batch, count, output_dim)`.
        targets: int tensor `(batch, count)`, the right tokens, or `None`.

    Returns:
        float32 log-probabilities `(batch, count, input_dim)`. With `targets` a tensor
        `(batch, count, 2)`: the cross-entropy in nats, and 1 if the likeliest token is
        the right one, else 0. They are computed in chunks if there would be too many
        logits.

    Example:

    ```python
    from keras_bertfam.layers.heads.adaptive import (
        AdaptiveEmbedding,
        AdaptiveSoftmax,
    )
    embedding = AdaptiveEmbedding(100, 8, [10, 40], divisor=2)
    embedding.build()
    layer = AdaptiveSoftmax(embedding)
    layer(keras.random.normal((2, 5, 8))).shape  # (2, 5, 100)
    ```

    References: [Grave et al., 2016](https://arxiv.org/abs/1609.04309);
    [Dai et al., 2019](https://arxiv.org/abs/1901.02860), released code.
    """

    def __init__(self, embedding: AdaptiveEmbedding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embedding = embedding

    def build(self, input_shape: Shape | None = None) -> None:
        embedding = self.embedding
        others = len(embedding.clusters) - 1
        self.bias = self.add_weight(
            name="output_bias", shape=(embedding.input_dim,), initializer="zeros"
        )
        self.cluster_kernel = self.add_weight(
            name="cluster_kernel",
            shape=(others, embedding.output_dim),
            initializer="zeros",
        )
        self.cluster_bias = self.add_weight(
            name="cluster_bias", shape=(others,), initializer="zeros"
        )
        self.built = True

    def call(
        self, x: Tensor, targets: Tensor | None = None, statistics: bool = False
    ) -> Tensor:
        if statistics:
            raise ValueError(
                "`statistics` must be `False` for an adaptive softmax. Received: True."
            )
        shape = ops.shape(x)
        x = ops.reshape(x, (-1, shape[-1]))
        parameters = self._flat_weights()
        if targets is None:
            found = self._log_probabilities(x, *parameters)
            found = ops.concatenate(found, axis=-1)
            return ops.reshape(found, (*shape[:-1], self.embedding.input_dim))
        size = self.embedding.input_dim + len(self.embedding.cutoffs)
        ids = ops.reshape(targets, (-1,))
        scores = in_chunks(self._scores, x, ids, parameters, size)
        return ops.reshape(scores, (*shape[:-1], 2))

    def _flat_weights(self):
        """List all weights, in the order of `_log_probabilities`."""
        weights = (self.cluster_kernel, self.cluster_bias, self.bias)
        flat = [ops.cast(w, self.compute_dtype) for w in weights]
        for table, projection in self.embedding.parts():
            flat += [table] if projection is None else [table, projection]
        return flat

    def _log_probabilities(self, x, kernel, cluster_bias, bias, *tables):
        """Compute log-probabilities of each cluster's tokens, `(positions, size)`."""
        embedding, tables = self.embedding, list(tables)
        found, of_clusters = [], None
        for k, (first, last) in enumerate(embedding.clusters):
            table = tables.pop(0)
            whole = table.shape[1] == embedding.output_dim
            y = x if whole else ops.matmul(x, ops.transpose(tables.pop(0)))
            logits = ops.matmul(y, ops.transpose(table)) + bias[first:last]
            if k:
                logits = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
                found.append(logits + of_clusters[:, k - 1 : k])
            else:
                more = ops.matmul(x, ops.transpose(kernel)) + cluster_bias
                logits = ops.concatenate([logits, more], axis=-1)
                logits = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
                found.append(logits[:, :last])
                of_clusters = logits[:, last:]
        return found

    def _scores(self, x, token_ids, *parameters):
        own, best = None, None
        found = self._log_probabilities(x, *parameters)
        for (first, last), each in zip(self.embedding.clusters, found, strict=True):
            inside = ops.logical_and(token_ids >= first, token_ids < last)
            index = ops.expand_dims(ops.where(inside, token_ids - first, 0), -1)
            picked = ops.take_along_axis(each, index, axis=-1)[:, 0]
            picked = ops.where(inside, picked, 0.0)
            highest = ops.max(each, axis=-1)
            own = picked if own is None else own + picked
            best = highest if best is None else ops.maximum(best, highest)
        return ops.stack([-own, ops.cast(own >= best, "float32")], axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.embedding.input_dim)

    def compute_output_spec(
        self, x: Any, targets: Any = None, statistics: bool = False
    ) -> keras.KerasTensor:
        shape = self.compute_output_shape(x.shape)
        shape = shape if targets is None else (*shape[:-1], 2)
        return keras.KerasTensor(shape, "float32")

    def get_config(self) -> Config:
        embedding = keras.layers.serialize(self.embedding)
        return {**super().get_config(), "embedding": embedding}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        embedding = keras.layers.deserialize(config["embedding"])
        return cls(**{**config, "embedding": embedding})
