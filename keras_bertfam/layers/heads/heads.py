"""Heads on top of an encoder."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import flat_dense, get_activation
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.vocabulary_logits import TiedLogits
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class Pooler(keras.layers.Layer):
    """Summary of a sequence: dense and tanh on the state of its first token.

    Args:
        hidden_dim: int. Width of the output.
        initializer: initializer of the kernel.

    Example:

    ```python
    from keras_bertfam.layers.heads.heads import Pooler
    layer = Pooler(8)
    layer(keras.random.normal((2, 5, 8))).shape  # (2, 8)
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805),
    section 3.
    """

    def __init__(
        self,
        hidden_dim: int,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.initializer = keras.initializers.get(initializer)
        self.dense = keras.layers.Dense(
            hidden_dim,
            activation="tanh",
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="dense",
        )

    def build(self, input_shape: Shape) -> None:
        self.dense.build((None, input_shape[-1]))
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        return self.dense(x[:, 0])

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.hidden_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class PositionQueries(keras.layers.Layer):
    """Vectors of absolute positions, from which DeBERTa's mask decoder begins.

    They are what `EncoderBackbone` takes as `added_queries`.

    Args:
        max_positions: int. Rows of the table.
        hidden_dim: int.
        initializer: initializer of the table.

    Call arguments:
        position_ids: int tensor `(batch, count)`, counted from 0.

    Returns:
        Float tensor `(batch, count, hidden_dim)`.

    Reference: [He et al., 2020](https://arxiv.org/abs/2006.03654), section 3.2, and
    the released code.

    Example:

    ```python
    from keras_bertfam.layers.heads.heads import PositionQueries
    layer = PositionQueries(512, hidden_dim=8)
    layer(keras.ops.array([[4, 7]])).shape  # (1, 2, 8)
    ```
    """

    def __init__(
        self,
        max_positions: int,
        hidden_dim: int,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_positions = max_positions
        self.hidden_dim = hidden_dim
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: Shape) -> None:
        shape = (self.max_positions, self.hidden_dim)
        initializer = self.initializer.clone()
        self.table = self.add_weight(name="table", shape=shape, initializer=initializer)
        self.built = True

    def call(self, position_ids: Tensor) -> Tensor:
        # A reshape makes the gradient dense.
        table = ops.reshape(self.table, (self.max_positions, self.hidden_dim))
        return ops.cast(ops.take(table, position_ids, axis=0), self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.hidden_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_positions": self.max_positions,
            "hidden_dim": self.hidden_dim,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SentencePairHead(keras.layers.Layer):
    """Logits of a sentence objective from the summary of a pair of segments.

    Args:
        num_classes: int. Defaults to `2`, as for NSP and SOP.
        initializer: initializer of the kernel.

    Call arguments:
        x: float tensor of shape `(batch, hidden_dim)`, from a `Pooler`.

    Returns:
        float32 tensor of shape `(batch, num_classes)`.

    Example:

    ```python
    from keras_bertfam.layers.heads.heads import SentencePairHead
    head = SentencePairHead()
    head(keras.random.normal((3, 8))).shape  # (3, 2)
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.1.
    """

    def __init__(
        self,
        num_classes: int = 2,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.initializer = keras.initializers.get(initializer)
        self.dense = keras.layers.Dense(
            num_classes,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="dense",
        )

    def build(self, input_shape: Shape) -> None:
        self.dense.build(input_shape)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        return ops.cast(self.dense(x), "float32")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_classes)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLMHead(TiedLogits):
    """Vocabulary logits from hidden states: dense, activation, norm, tied table.

    Args:
        token_embedding: the `TokenEmbedding` whose table the logits are tied
            to. Its `output_dim` is the width of the dense layer, so factorised
            embeddings need no further argument.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        layer_norm_epsilon: float.
        initializer: initializer of the kernel.
        use_bias: bool. Whether dense layer and norm have biases. Logits always have.

    Call arguments:
        x: float tensor of shape `(batch, count, hidden_dim)`.
        targets: int tensor of shape `(batch, count)`, or `None`, see `TiedLogits`.
        statistics: bool, see `TiedLogits`.

    Returns:
        float32 tensor of shape `(batch, count, vocabulary_size)`, or with `targets`
        `(batch, count, 2 or 4)`, see `TiedLogits`.

    Example:

    ```python
    from keras_bertfam.layers.blocks.embedding import TokenEmbedding
    embedding = TokenEmbedding(100, 8)
    embedding.build()
    head = keras_bertfam.layers.MaskedLMHead(embedding)
    head(keras.random.normal((2, 5, 8))).shape  # (2, 5, 100)
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805),
    section 3.1.
    """

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        activation: str = "gelu",
        layer_norm_epsilon: float = 1e-12,
        initializer: Initializer = "glorot_uniform",
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_embedding, **kwargs)
        get_activation(activation)  # or an error
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        self.use_bias = use_bias
        self.dense = keras.layers.Dense(
            token_embedding.output_dim,
            use_bias=use_bias,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon,
            center=use_bias,
            dtype=self.dtype_policy,
            name="norm",
        )

    def build(self, input_shape: Shape) -> None:
        self.dense.build((None, input_shape[-1]))
        self.norm.build((None, None, self.dense.units))
        super().build(input_shape)

    def call(
        self, x: Tensor, targets: Tensor | None = None, statistics: bool = False
    ) -> Tensor:
        x = get_activation(self.activation)(flat_dense(self.dense, x))
        return super().call(self.norm(x), targets, statistics)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "activation": self.activation,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
            "use_bias": self.use_bias,
        }
