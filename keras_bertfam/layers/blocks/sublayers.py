"""The feed-forward sub-layer, norms and residual connections of a block."""

import functools
from typing import Any, Self

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import (
    flat_dense,
    get_activation,
    mark_matrices,
    take_positions,
)
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network: dense, activation, dense.

    Args:
        intermediate_dim: int. Width between the two dense layers.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        initializer: initializer of the kernels.
        dropout: float. Dropout rate between the two dense layers.
        use_bias: bool. Whether the dense layers have biases.
        gated: bool. Multiply the activations by a second, linear projection
            ([Shazeer, 2020](https://arxiv.org/abs/2002.05202)). Both projections are
            one dense layer, `gated_intermediate`, with the activated half first.
        wide_output: bool. Whether the second dense layer computes in float32 if the
            layer's dtype is float16. T5 needs it, because its states are large.

    Example:

    ```python
    layer = keras_bertfam.layers.FeedForward(32)
    layer(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: str = "gelu",
        initializer: Initializer = "glorot_uniform",
        dropout: float = 0.0,
        use_bias: bool = True,
        gated: bool = False,
        wide_output: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.use_bias = use_bias
        self.gated = gated
        self.wide_output = wide_output
        get_activation(activation)  # or an error
        self.activation = activation
        self.initializer = keras.initializers.get(initializer)
        self.dropout_rate = dropout
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        def dense(units, width, name, dtype=self.dtype_policy):
            layer = keras.layers.Dense(
                units,
                use_bias=self.use_bias,
                kernel_initializer=self.initializer.clone(),
                dtype=dtype,
                name=name,
            )
            layer.build((None, width))
            mark_matrices(layer)
            return layer

        width = input_shape[-1]
        # Different names, so that checkpoints tell the two kinds apart.
        if self.gated:
            units = 2 * self.intermediate_dim
            self.gated_intermediate = dense(units, width, "gated_intermediate")
            mark_matrices(self.gated_intermediate, *[self.intermediate_dim] * 2)
        else:
            self.intermediate = dense(self.intermediate_dim, width, "intermediate")
        wide = self.wide_output and self.compute_dtype == "float16"
        dtype = "float32" if wide else self.dtype_policy
        self.output_dense = dense(width, self.intermediate_dim, "output", dtype)
        self.built = True

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        activate = get_activation(self.activation)
        if self.gated:
            x = flat_dense(self.gated_intermediate, x)
            size = self.intermediate_dim
            x = activate(x[..., :size]) * x[..., size:]
        else:
            x = activate(flat_dense(self.intermediate, x))
        x = self.dropout(x, training=training)
        return flat_dense(self.output_dense, x)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": self.activation,
            "initializer": keras.initializers.serialize(self.initializer),
            "dropout": self.dropout_rate,
            "use_bias": self.use_bias,
            "gated": self.gated,
            "wide_output": self.wide_output,
        }


def is_wide(norm: str, dtype: str) -> bool:
    """Tell whether states are float32 although sub-layers compute in float16.

    This is so in T5, whose norm is `"rms"`: its states exceed float16's range.
    `transformers` computes T5's second feed-forward matrix in float32 for this reason,
    and so all states after it.
    """
    return norm == "rms" and dtype == "float16"


def in_range(x: Tensor) -> Tensor:
    """Cast float16 to float32; infinities become float16's largest number."""
    x = ops.cast(x, "float32")
    return ops.where(ops.isfinite(x), x, ops.clip(x, -65504.0, 65504.0))


NO_NORM = "none"


def make_norm(
    kind: str,
    epsilon: float,
    name: str = "norm",
    dtype: Any = None,
    bias: bool = True,
) -> keras.layers.Layer:
    """Make a norm: `"layer"`, or a root-mean-square norm, `"rms"` or `"plain_rms"`.

    The latter two never have a bias. The norm itself is the same for both, but states
    around an `"rms"` norm can be float32, see `is_wide`.

    Raises:
        ValueError: for another kind.
    """
    kinds = {
        "layer": functools.partial(keras.layers.LayerNormalization, center=bias),
        "rms": keras.layers.RMSNormalization,
        "plain_rms": keras.layers.RMSNormalization,
    }
    if kind not in kinds:
        raise ValueError(f"`norm` must be one of {(*kinds,)}. Received: norm={kind!r}.")
    return kinds[kind](epsilon=epsilon, name=name, dtype=dtype)


def normed(norm: keras.layers.Layer, x: Tensor) -> Tensor:
    """Apply a norm, with PyTorch without Keras's code around a call.

    With PyTorch that code takes longer than the norm itself, in each step. It isn't
    needed: a layer norm doesn't cast its inputs.
    """
    plain = type(norm) is keras.layers.LayerNormalization and norm.built
    if plain and keras.backend.backend() == "torch":
        return norm.call(x)
    return norm(x)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ResidualSublayer(keras.layers.Layer):
    """A sub-layer with its dropout, residual connection and norm.

    Post-norm: `norm(x + dropout(sublayer(x)))`. Pre-norm:
    `x + dropout(sublayer(norm(x)))`. The norm belongs to the sub-layer: blocks that
    share the sub-layer share its norm.

    Args:
        sublayer: `keras.layers.Layer` that keeps the shape of its input.
        norm_first: bool. Pre-norm if true, else post-norm.
        dropout: float. Dropout rate on the sub-layer's output.
        layer_norm_epsilon: float.
        norm: `"layer"`, `"rms"`, `"plain_rms"`, or `"none"` for no norm.
        norm_bias: bool. Whether the norm has a bias.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        positions: int tensor of shape `(batch, count)`, or `None`. The sub-layer gets
            it if it isn't `None`, and computes its output at these positions only.
        return_scores: bool. The sub-layer gets it if it is true.
        attention_mask: a mask, `VisibleKeys`, `NearbyKeys` or `None`. The sub-layer
            gets it if it isn't `None`.
        **kwargs: the sub-layer's other arguments, see `SelfAttention`,
            `CrossAttention` and `RelativeAttention`. Pre-norm doesn't normalise them.

    Returns:
        What the sub-layer returns. Its output, or the first of several, has the
        residual added.

    Example:

    ```python
    from keras_bertfam.layers.blocks.sublayers import ResidualSublayer
    layer = ResidualSublayer(
        keras_bertfam.layers.FeedForward(32))
    layer(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        sublayer: keras.layers.Layer,
        norm_first: bool = False,
        dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-12,
        norm: str = "layer",
        norm_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sublayer = sublayer
        self.norm_first = norm_first
        self.dropout_rate = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.norm_kind = norm
        self.norm_bias = norm_bias
        self._is_wide = is_wide(norm, self.compute_dtype)
        # With autocast Keras would cast the inputs to float16.
        self.autocast = not self._is_wide
        common: dict[str, Any] = {
            "dtype": "float32" if self._is_wide else self.dtype_policy
        }
        self.norm = None
        if norm != NO_NORM:
            self.norm = make_norm(norm, layer_norm_epsilon, bias=norm_bias, **common)
        self.dropout = Dropout(dropout, name="dropout", **common)

    def build(self, input_shape: Shape) -> None:
        for layer in (self.sublayer, self.norm):
            if layer is not None and not layer.built:
                layer.build(input_shape)
        self.built = True

    def call(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        return_scores: bool = False,
        attention_mask: Any = None,
        training: bool | None = None,
        **kwargs: Tensor,
    ) -> Any:
        residual = x
        if positions is not None:
            residual = take_positions(x, positions)
            kwargs["positions"] = positions
        if return_scores:
            kwargs["return_scores"] = True
        # An argument of its own: Keras takes no dict that mixes tensors and others,
        # which it would be among `kwargs`.
        if attention_mask is not None:
            kwargs["attention_mask"] = attention_mask
        if self.norm_first and self.norm is not None:
            x = normed(self.norm, x)
        output = self.sublayer(x, **kwargs)
        output, *rest = output if isinstance(output, tuple) else (output,)
        if self._is_wide:
            residual, output = ops.cast(residual, "float32"), in_range(output)
        output = residual + self.dropout(output, training=training)
        if not self.norm_first and self.norm is not None:
            output = normed(self.norm, output)
        return (output, *rest) if rest else output

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "sublayer": keras.layers.serialize(self.sublayer),
            "norm_first": self.norm_first,
            "dropout": self.dropout_rate,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "norm": self.norm_kind,
            "norm_bias": self.norm_bias,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        sublayer = keras.layers.deserialize(config["sublayer"])
        return cls(**{**config, "sublayer": sublayer})
