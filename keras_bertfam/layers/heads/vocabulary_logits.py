"""Vocabulary logits: tied to the token table, for causal models, and sampled."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import flat_dense
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.token_scores import scores_of_logits, token_scores
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TiedLogits(keras.layers.Layer):
    """Vocabulary logits: states times the table of the token embedding, plus a bias.

    Args:
        token_embedding: the `TokenEmbedding` whose table the logits are tied to.

    Call arguments:
        x: float tensor of shape `(batch, count, width)`.
        targets: int tensor of shape `(batch, count)`, the right tokens, or `None`.
        statistics: bool. Whether to return two more numbers for each target.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`. With `targets` a
        tensor of shape `(batch, count, 2)`: the cross-entropy in nats, and 1 if the
        likeliest token is the right one, else 0. With `statistics` the last axis has
        two more numbers, the logits' log-sum-exp and mean. With `targets`, logits are
        computed in chunks, and again for the gradient, if there would be too many.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.vocabulary_logits import TiedLogits
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    layer = TiedLogits(embedding)
    layer(keras.random.normal((2, 5, 8))).shape  # (2, 5, 100)
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), section 2.3.
    """

    def __init__(self, token_embedding: TokenEmbedding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.bias = None

    def build(self, input_shape: Shape) -> None:
        self.bias = self.add_weight(
            name="output_bias",
            shape=(self.token_embedding.input_dim,),
            initializer="zeros",
        )
        self.built = True

    def call(
        self, x: Tensor, targets: Tensor | None = None, statistics: bool = False
    ) -> Tensor:
        shape, x_shape = ops.shape(x), tuple(x.shape)
        x = ops.reshape(x, (-1, shape[-1]))
        if targets is None:
            logits = self._logits(x)
            return ops.reshape(logits, (*shape[:-1], self.token_embedding.input_dim))
        pairs = zip(targets.shape, x_shape[:-1], strict=False)
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise ValueError(
                "`targets` must be a token for each state of `x`. Received: "
                f"targets.shape={tuple(targets.shape)}, x.shape={x_shape}."
            )
        scores = self._scores(x, ops.reshape(targets, (-1,)), statistics)
        return ops.reshape(scores, (*shape[:-1], scores.shape[-1]))

    def _logits(self, x):
        logits = ops.cast(self.token_embedding(x, reverse=True), "float32")
        return logits if self.bias is None else logits + ops.cast(self.bias, "float32")

    def _scores(self, x, targets, statistics):
        embedding = self.token_embedding
        if embedding.quantization_mode is not None:  # has its own products
            return scores_of_logits(targets, self._logits(x), statistics)
        tied = embedding.tie_weights
        table = embedding.embeddings if tied else embedding.reverse_embeddings
        table = ops.cast(table, self.compute_dtype)
        bias = None if self.bias is None else ops.convert_to_tensor(self.bias)
        return token_scores(
            x, table if tied else ops.transpose(table), bias, targets, statistics
        )

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.token_embedding.input_dim)

    def compute_output_spec(
        self, x: Any, targets: Any = None, statistics: bool = False
    ) -> keras.KerasTensor:
        shape = self.compute_output_shape(x.shape)
        if targets is not None:
            shape = (*shape[:-1], 4 if statistics else 2)
        return keras.KerasTensor(shape, "float32")

    def get_config(self) -> Config:
        embedding = keras.layers.serialize(self.token_embedding)
        return {**super().get_config(), "token_embedding": embedding}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        embedding = keras.layers.deserialize(config["token_embedding"])
        return cls(**{**config, "token_embedding": embedding})


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class LanguageModelHead(TiedLogits):
    """Vocabulary logits: states times the output table of the token embedding.

    The output table is the token table, or a table of its own if the embedding has
    `tie_weights=False`. There is no bias. The head's only weight is a projection of
    states to the width of a factorised embedding, if the embedding is factorised.

    Args:
        token_embedding: `TokenEmbedding`.
        scale: float. States are multiplied by it first.
        initializer: initializer of the projection.

    Call arguments:
        x: float tensor of shape `(batch, count, width)`.
        targets: int tensor of shape `(batch, count)`, or `None`, see `TiedLogits`.
        statistics: bool, see `TiedLogits`.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`, or with `targets`
        `(batch, count, 2 or 4)`, see `TiedLogits`.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.vocabulary_logits import LanguageModelHead
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    head = LanguageModelHead(embedding, scale=8**-0.5)
    head(keras.random.normal((2, 5, 8))).shape  # (2, 5, 100)
    ```

    References: Radford et al., 2018, section 3.1; scale:
    [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), its released code.
    """

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        scale: float = 1.0,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(token_embedding, **kwargs)
        self.scale = scale
        self.initializer = keras.initializers.get(initializer)
        self.projection: Any = None

    def build(self, input_shape: Shape) -> None:
        width = self.token_embedding.output_dim
        if input_shape[-1] != width:
            self.projection = keras.layers.Dense(
                width,
                use_bias=False,
                kernel_initializer=self.initializer.clone(),
                dtype=self.dtype_policy,
                name="projection",
            )
            self.projection.build((None, input_shape[-1]))
        self.built = True

    def call(
        self, x: Tensor, targets: Tensor | None = None, statistics: bool = False
    ) -> Tensor:
        if self.projection is not None:
            x = flat_dense(self.projection, x)
        return super().call(x * self.scale, targets, statistics)

    def get_config(self) -> Config:
        initializer = keras.initializers.serialize(self.initializer)
        own = {"scale": self.scale, "initializer": initializer}
        return {**super().get_config(), **own}


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SampledLogits(TiedLogits):
    """`TiedLogits` with the cross-entropy of a sampled softmax in training.

    All positions are compared with the same `num_sampled` tokens. They are drawn with
    replacement from `p(k) = log((k + 2) / (k + 1)) / log(vocabulary_size + 1)`, so ids
    must be in the order of frequency. `log(num_sampled * p(k))` is subtracted from the
    logits of drawn tokens: the sum of their exponentials is then, on average, the sum
    over the whole vocabulary. At a position whose own token is drawn, that draw is left
    out.

    Args:
        token_embedding: see `TiedLogits`.
        num_sampled: int, or `None` for the full softmax.
        seed: int or `None`.

    Call arguments:
        x, targets, statistics: see `TiedLogits`. In training the likeliest token is the
            likeliest among the sampled ones and the target.

    Returns:
        See `TiedLogits`.

    Raises:
        ValueError: for a `num_sampled` that isn't positive, or for `statistics` of
            sampled logits.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.vocabulary_logits import SampledLogits
    embedding = TokenEmbedding(1000, 8)
    embedding.build()
    layer = SampledLogits(embedding, num_sampled=64)
    x, targets = keras.random.normal((2, 5, 8)), keras.ops.ones((2, 5), "int32")
    layer(x, targets=targets, training=True).shape  # (2, 5, 2)
    ```

    References: [Jean et al., 2014](https://arxiv.org/abs/1412.2007), section 3;
    [Peters et al., 2018](https://arxiv.org/abs/1802.05365), released code.
    """

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        num_sampled: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_embedding, **kwargs)
        if num_sampled is not None and num_sampled < 1:
            raise ValueError(
                "`num_sampled` must be positive, or `None` for the full softmax. "
                f"Received: num_sampled={num_sampled}."
            )
        self.num_sampled = num_sampled
        self.seed = seed
        self.seed_generator = None
        if num_sampled is not None:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(
        self,
        x: Tensor,
        targets: Tensor | None = None,
        statistics: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        if targets is None or self.num_sampled is None or not training:
            return super().call(x, targets, statistics)
        if statistics:
            raise ValueError(
                "`statistics` must be `False` for sampled logits. Received: True."
            )
        shape = ops.shape(x)
        x = ops.reshape(x, (-1, shape[-1]))
        targets = ops.reshape(ops.cast(targets, "int32"), (-1,))
        return ops.reshape(self._sampled_scores(x, targets), (*shape[:-1], 2))

    def _sampled_scores(self, x, targets):
        size = self.token_embedding.input_dim
        drawn = keras.random.uniform((self.num_sampled,), seed=self.seed_generator)
        drawn = ops.exp(drawn * float(np.log(size + 1.0))) - 1
        drawn = ops.clip(ops.cast(drawn, "int32"), 0, size - 1)
        table = self.token_embedding.embeddings
        # A reshape makes the gradient dense.
        table = ops.cast(ops.reshape(table, ops.shape(table)), x.dtype)
        bias = ops.cast(ops.convert_to_tensor(self.bias), "float32")

        right = ops.sum(x * ops.take(table, targets, axis=0), axis=-1)
        right = ops.cast(right, "float32") + ops.take(bias, targets, axis=0)
        others = ops.matmul(x, ops.transpose(ops.take(table, drawn, axis=0)))
        others = ops.cast(others, "float32") + ops.take(bias, drawn, axis=0)
        hit = ops.equal(ops.expand_dims(targets, -1), drawn)
        others = ops.where(hit, ops.cast(-1e30, "float32"), others)
        right = ops.expand_dims(right, -1)
        expected = others - self._log_expected(drawn)
        total = ops.logsumexp(ops.concatenate([right, expected], axis=-1), axis=-1)
        best = ops.cast(ops.max(others, axis=-1) <= right[:, 0], "float32")
        return ops.stack([total - right[:, 0], best], axis=-1)

    def _log_expected(self, ids):
        """Compute the logarithm of the expected number of draws of each id."""
        ids = ops.cast(ids, "float32")
        share = ops.log1p(1 / (ids + 1)) / float(
            np.log(self.token_embedding.input_dim + 1.0)
        )
        return ops.log(share * self.num_sampled)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_sampled": self.num_sampled,
            "seed": self.seed,
        }
