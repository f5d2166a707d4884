"""A learned mix of the states of all layers."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ScalarMix(keras.layers.Layer):
    """A mix of a backbone's states: `gamma * sum(softmax(w)[k] * states[k])`.

    Args:
        num_states: int. Number of states to mix, the embeddings included.
        layer_norm: bool. Whether each state is normalised first, as in bilm-tf: over
            all tokens that aren't padding, and without weights. Defaults to `False`.
        regularizer: regularizer of `w`, such as `keras.regularizers.L2(1e-3)`, which
            keeps the mix near the mean. Defaults to none.

    Call arguments:
        states: list of `num_states` float tensors `(..., width)`, such as
            `hidden_states` of a backbone.
        padding_mask: bool tensor `(...)`, false for padding; read only with
            `layer_norm`.

    Returns:
        Float tensor `(..., width)`.

    Raises:
        ValueError: for another number of states.

    Example:

    ```python
    from keras_bertfam.layers.heads.scalar_mix import ScalarMix
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    inputs = {"token_ids": keras.ops.array([[101, 7592, 102]])}
    states = backbone(inputs, return_hidden_states=True)["hidden_states"]
    ScalarMix(len(states))(states).shape  # (1, 3, 128)
    ```

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), equation 1.
    """

    def __init__(
        self,
        num_states: int,
        layer_norm: bool = False,
        regularizer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(num_states, int) or num_states < 1:
            raise ValueError(
                f"`num_states` must be a positive int. Received: {num_states!r}."
            )
        self.num_states = num_states
        self.layer_norm = layer_norm
        self.regularizer = keras.regularizers.get(regularizer)

    def build(self, input_shape: Shape | None = None) -> None:
        self.mix = self.add_weight(
            name="mix",
            shape=(self.num_states,),
            initializer="zeros",
            regularizer=self.regularizer,
        )
        self.gamma = self.add_weight(name="gamma", shape=(), initializer="ones")
        self.built = True

    def call(
        self, states: Sequence[Tensor], padding_mask: Tensor | None = None
    ) -> Tensor:
        if len(states) != self.num_states:
            raise ValueError(
                f"`states` must be a list of num_states={self.num_states} tensors. "
                f"Received: {len(states)}."
            )
        shares = ops.softmax(ops.cast(self.mix, "float32"), axis=-1)
        shares = ops.cast(shares, self.compute_dtype)
        if self.layer_norm:
            states = [_normalized(state, padding_mask) for state in states]
        mixed = sum(shares[k] * state for k, state in enumerate(states))
        return ops.cast(self.gamma, self.compute_dtype) * mixed

    def compute_output_shape(
        self, states_shape: Sequence[Shape], *args: Any, **kwargs: Any
    ) -> Shape:
        return states_shape[0]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_states": self.num_states,
            "layer_norm": self.layer_norm,
            "regularizer": keras.regularizers.serialize(self.regularizer),
        }


def _normalized(x, padding_mask):
    """Give states mean 0 and variance 1 over all tokens that aren't padding."""
    wide = ops.cast(x, "float32")
    kept = ops.ones_like(wide)
    if padding_mask is not None:
        kept = kept * ops.expand_dims(ops.cast(padding_mask, "float32"), -1)
    count = ops.maximum(ops.sum(kept), 1.0)
    mean = ops.sum(wide * kept) / count
    variance = ops.sum(ops.square((wide - mean) * kept)) / count
    return ops.cast((wide - mean) * ops.rsqrt(variance + 1e-12), x.dtype)
