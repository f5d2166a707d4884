"""ELECTRA's heads, and how its generator's tokens are drawn."""

import math
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import flat_dense, get_activation
from keras_bertfam.layers.blocks.dropout import hash_bits
from keras_bertfam.layers.heads.heads import MaskedLMHead
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ReplacedTokenHead(keras.layers.Layer):
    """Tells for each token whether it was replaced: dense, activation, dense.

    Args:
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        initializer: initializer of the kernels.
        norm_epsilon: float or `None`. A number makes the head of DeBERTa's third
            version: each state is added to the state of its sequence's first token, and
            the sum is normalised with this epsilon before the first dense layer.

    Call arguments:
        x: float tensor of shape `(batch, length, hidden_dim)`.
        first: float tensor of shape `(batch, 1 or length, hidden_dim)`, the states of
            the first tokens; only with `norm_epsilon`.

    Returns:
        float32 tensor of shape `(batch, length)`: logits, positive for replaced.

    References: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2; for
    the sum the code of [He et al., 2021](https://arxiv.org/abs/2111.09543).

    Example:

    ```python
    from keras_bertfam.layers.heads.replaced_tokens import ReplacedTokenHead
    head = ReplacedTokenHead()
    head(keras.random.normal((2, 5, 8))).shape  # (2, 5)
    ```
    """

    def __init__(
        self,
        activation: str = "gelu",
        initializer: Initializer = "glorot_uniform",
        norm_epsilon: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        get_activation(activation)  # or an error
        self.activation = activation
        self.initializer = keras.initializers.get(initializer)
        self.norm_epsilon = norm_epsilon
        self.norm: Any = None

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        common = {"dtype": self.dtype_policy}
        if self.norm_epsilon is not None:
            self.norm = keras.layers.LayerNormalization(
                epsilon=self.norm_epsilon, name="norm", **common
            )
            self.norm.build((None, width))
        for name, units in (("dense", width), ("output_dense", 1)):
            kernel_initializer = self.initializer.clone()
            layer = keras.layers.Dense(
                units, kernel_initializer=kernel_initializer, name=name, **common
            )
            layer.build((None, width))
            setattr(self, name, layer)
        self.built = True

    def call(self, x: Tensor, first: Tensor | None = None) -> Tensor:
        if (first is None) != (self.norm is None):
            raise ValueError(
                "`first` must be given with `norm_epsilon`, and only then. Received: "
                f"norm_epsilon={self.norm_epsilon}, first of type "
                f"{type(first).__name__}."
            )
        if self.norm is not None:
            x = self.norm(x + first)
        x = get_activation(self.activation)(flat_dense(self.dense, x))
        logits = flat_dense(self.output_dense, x)
        return ops.cast(ops.squeeze(logits, -1), "float32")

    def compute_output_shape(self, input_shape: Shape, *args: Any) -> Shape:
        return input_shape[:-1]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "activation": self.activation,
            "initializer": keras.initializers.serialize(self.initializer),
            "norm_epsilon": self.norm_epsilon,
        }


@keras.saving.register_keras_serializable("keras_bertfam")
class CopyingMaskedLMHead(MaskedLMHead):
    """Masked LM head that can also copy its input token.

    The copy probability is `D = sigmoid(w·x + b)`. A token's probability is `1 - D`
    times its softmax probability, plus `D` if it is the input token.

    Takes the arguments of `MaskedLMHead`.

    Call arguments:
        x: float tensor of shape `(batch, count, hidden_dim)`.
        token_ids: int tensor of shape `(batch, count)`, the input tokens.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`: the logarithms
        of the probabilities.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555),
    "Efficiency Analysis", All-Tokens MLM.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    from keras_bertfam.layers.heads.replaced_tokens import CopyingMaskedLMHead
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    head = CopyingMaskedLMHead(embedding)
    head(keras.random.normal((1, 2, 8)), keras.ops.array([[7, 9]])).shape
    # (1, 2, 100)
    ```
    """

    def build(self, input_shape: Shape) -> None:
        self.copy_gate = keras.layers.Dense(
            1,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="copy_gate",
        )
        self.copy_gate.build((None, input_shape[-1]))
        super().build(input_shape)

    def call(  # type: ignore[override]
        self, x: Tensor, token_ids: Tensor
    ) -> Tensor:
        gate = ops.cast(flat_dense(self.copy_gate, x), "float32")
        spread = ops.log_sigmoid(-gate) + ops.log_softmax(super().call(x))
        vocabulary = ops.arange(self.token_embedding.input_dim, dtype="int32")
        ids = ops.expand_dims(ops.cast(token_ids, "int32"), -1)
        copied = ops.logaddexp(ops.log_sigmoid(gate), spread)
        return ops.where(ops.equal(vocabulary, ids), copied, spread)

    def compute_output_shape(self, input_shape: Shape, *args: Any) -> Shape:
        return super().compute_output_shape(input_shape)

    def compute_output_spec(  # type: ignore[override]
        self, x: Any, token_ids: Any
    ) -> keras.KerasTensor:
        return super().compute_output_spec(x)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SampleTokens(keras.layers.Layer):
    """Draws from `softmax(logits / temperature)` by the Gumbel-max trick.

    No gradient flows through a sample. The noise is a hash of the layer's
    `SeedGenerator` and a counter. So it is the same on every backend, and differs
    between the replicas of a `tf.distribute` strategy.

    Args:
        temperature: float, positive. Close to 0, samples are the most probable tokens.
        seed: int or `None`. Seed of the layer's own `SeedGenerator`.

    Call arguments:
        logits: float tensor of shape `(..., vocabulary_size)`.
        excluded_ids: int tensor of shape `(...)`, or `None`: for each position an id
            that is never drawn there.

    Returns:
        int32 tensor of shape `(...)`.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2.

    Example:

    ```python
    from keras_bertfam.layers.heads.replaced_tokens import SampleTokens
    layer = SampleTokens(seed=0)
    layer(keras.ops.zeros((2, 5, 100))).shape  # (2, 5)
    ```
    """

    def __init__(
        self, temperature: float = 1.0, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})
        if not temperature > 0:
            raise ValueError(
                f"`temperature` must be positive. Received: temperature={temperature}."
            )
        self.temperature = temperature
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, logits: Tensor, excluded_ids: Tensor | None = None) -> Tensor:
        scores = ops.cast(logits, "float32") / self.temperature
        scores += gumbel_noise(scores, self.seed_generator.next())
        if excluded_ids is not None:
            ids = ops.expand_dims(ops.cast(excluded_ids, "int32"), -1)
            vocabulary = ops.arange(logits.shape[-1], dtype="int32")
            scores = ops.where(ops.equal(vocabulary, ids), -math.inf, scores)
        return ops.cast(ops.argmax(scores, axis=-1), "int32")

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape[:-1]

    def compute_output_spec(
        self, logits: Tensor, excluded_ids: Tensor | None = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor(logits.shape[:-1], "int32")

    def get_config(self) -> Config:
        config = {"temperature": self.temperature, "seed": self.seed}
        return {**super().get_config(), **config}


def gumbel_noise(like: Tensor, seed: Tensor) -> Tensor:
    """Draw independent values from the standard Gumbel distribution.

    Args:
        like: tensor whose shape the noise has.
        seed: integer tensor of shape `(2,)`.

    Returns:
        float32 tensor.
    """
    shape = ops.shape(like)
    size = ops.size(like) if None in like.shape else math.prod(shape)
    bits = hash_bits(size, seed)
    # 23 random bits plus a half: float32 holds each exactly, and the result is never 0
    # or 1.
    bits = ops.bitwise_and(bits, ops.cast((1 << 23) - 1, bits.dtype))
    uniform = (ops.cast(ops.cast(bits, "int32"), "float32") + 0.5) / (1 << 23)
    return ops.reshape(-ops.log(-ops.log(uniform)), shape)


def replace_at(
    token_ids: Tensor, positions: Tensor, values: Tensor, where: Tensor
) -> Tensor:
    """Put values at given positions of each row.

    Args:
        token_ids: int tensor of shape `(batch, length)`.
        positions: int tensor of shape `(batch, count)`, distinct in a row where
            `where` is true.
        values: int tensor of shape `(batch, count)`.
        where: bool tensor of shape `(batch, count)`, false for slots that change
            nothing.

    Returns:
        int32 tensor of shape `(batch, length)`.
    """
    # Example: ids 5 6 7 8, positions 1 3, values 9 9 and `where` 1 0 (1 is true) give
    # 5 9 7 8.
    batch, length = ops.shape(token_ids)
    flat = ops.reshape(ops.cast(token_ids, "int32"), (-1,))
    rows = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)
    # Slots without effect write to an extra element at the end, which nothing reads.
    indices = ops.where(where, ops.cast(positions, "int32") + rows, batch * length)
    replaced = ops.scatter_update(
        ops.pad(flat, [[0, 1]]),
        ops.reshape(indices, (-1, 1)),
        ops.reshape(ops.cast(values, "int32"), (-1,)),
    )
    return ops.reshape(replaced[:-1], (batch, length))
