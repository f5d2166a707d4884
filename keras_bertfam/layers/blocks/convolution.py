"""A convolution beside the first block of an encoder."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dense import (
    flat_dense,
    get_activation,
    take_positions,
)
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.sublayers import normed
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class EmbeddingConvolution(keras.layers.Layer):
    """DeBERTa's convolution over the embeddings, added to the first block's states.

    The output is `norm(states + activation(dropout(convolution(embeddings))))`, and
    zeros for padding. In a packed row the convolution stays within a sequence.

    Args:
        kernel_size: int. Odd number of tokens: a token, and equally many on both sides.
        activation: see `FeedForward`.
        dropout: float.
        layer_norm_epsilon: float.
        initializer: initializer of the kernel.

    Call arguments:
        states: float tensor of shape `(batch, length or count, width)`, the output of
            the first block.
        embeddings: float tensor of shape `(batch, length, width)`, the input of the
            first block.
        padding_mask: bool tensor `(batch, length)`, false for padding, or `None`.
        sequence_ids: int tensor `(batch, length)`, or `None`.
        positions: int tensor `(batch, count)`, the positions of the `states` if these
            are of some tokens only, or `None`.

    Returns:
        Float tensor of the shape of `states`.

    Reference: the released code of [DeBERTa](https://github.com/microsoft/DeBERTa),
    second version.

    Example:

    ```python
    from keras_bertfam.layers.blocks.convolution import EmbeddingConvolution
    x = keras.random.normal((1, 5, 8))
    EmbeddingConvolution(3)(x, embeddings=x).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        kernel_size: int,
        activation: str = "gelu",
        dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-7,
        initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if kernel_size < 1 or not kernel_size % 2:
            raise ValueError(
                f"`kernel_size` must be odd and positive. Received: {kernel_size}."
            )
        self.kernel_size = kernel_size
        self.activation = activation
        self.dropout_rate = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer = keras.initializers.get(initializer)
        common: dict[str, Any] = {"dtype": self.dtype_policy}
        self.dropout = Dropout(dropout, name="dropout", **common)
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, name="norm", **common
        )

    def build(self, states_shape: Shape, embeddings_shape: Shape | None = None) -> None:
        width = states_shape[-1]
        # Its inputs are the neighbours' embeddings side by side.
        self.dense = keras.layers.Dense(
            width,
            kernel_initializer=self.initializer.clone(),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build((None, self.kernel_size * width))
        self.norm.build((None, None, width))
        self.built = True

    def call(
        self,
        states: Tensor,
        embeddings: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        x = flat_dense(self.dense, self._neighbours(embeddings, sequence_ids))
        x = ops.cast(x, states.dtype)  # a `DTypePolicyMap` can make them differ
        kept = None
        if padding_mask is not None:
            kept = ops.expand_dims(ops.cast(padding_mask, x.dtype), -1)
            x = x * kept
        if positions is not None:
            x = take_positions(x, positions)
            kept = None if kept is None else take_positions(kept, positions)
        x = get_activation(self.activation)(self.dropout(x, training=training))
        x = normed(self.norm, states + x)
        return x if kept is None else x * ops.cast(kept, x.dtype)

    def _neighbours(self, x, sequence_ids):
        """Put the neighbours of each token side by side, zeros where there are none."""
        half, length = self.kernel_size // 2, ops.shape(x)[1]
        padded = ops.pad(x, [[0, 0], [half, half], [0, 0]])
        parts = [padded[:, k : k + length] for k in range(self.kernel_size)]
        if sequence_ids is not None:
            ids = ops.cast(sequence_ids, "int32")
            # -1 is no sequence's number: beyond the ends there is no neighbour.
            there = ops.pad(ids, [[0, 0], [half, half]], constant_values=-1)
            same = [there[:, k : k + length] == ids for k in range(self.kernel_size)]
            parts = [
                part * ops.expand_dims(ops.cast(each, part.dtype), -1)
                for part, each in zip(parts, same, strict=True)
            ]
        return ops.concatenate(parts, axis=-1)

    def compute_output_shape(self, states_shape: Shape, **kwargs: Any) -> Shape:
        return states_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "activation": self.activation,
            "dropout": self.dropout_rate,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "initializer": keras.initializers.serialize(self.initializer),
        }
