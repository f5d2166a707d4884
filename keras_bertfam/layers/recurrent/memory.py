"""Memory that models carry from batch to batch."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.types import Config, Shape, Tensor


class _Memory(keras.layers.Layer):
    """Base of layers whose variables last from batch to batch and aren't saved."""

    def _variable(self, name, shape, dtype):
        devices = keras.distribution.distribution()
        # `add_weight` can't make a variable with a separate value on each replica.
        return keras.Variable(
            "zeros",
            shape=shape,
            dtype=dtype,
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",
            synchronization="on_read",
            layout=None if devices is None else devices.get_data_layout(shape),
            name=name,
        )

    @contextlib.contextmanager
    def put_aside(self) -> Iterator[None]:
        """Set the memory aside in this context, and restore it at the end."""
        variables = [
            part
            for variable in self.variables
            for part in distribution.own_variables(variable) or [variable]
        ]
        before = [np.array(distribution.as_numpy(part)) for part in variables]
        try:
            yield
        finally:
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)

    def save_own_variables(self, store: Any) -> None:
        """Save nothing: memory belongs to a run over data, not to the model."""

    def load_own_variables(self, store: Any) -> None:
        """Load nothing."""


def without_padding(inputs: Mapping[str, Tensor]) -> Tensor:
    """Tell which tokens of a backbone's inputs aren't padding: `(batch, length)`."""
    mask = inputs.get("padding_mask")
    return ops.ones_like(inputs["token_ids"]) if mask is None else mask


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SegmentMemory(_Memory):
    """Keeps each layer's inputs for earlier tokens: the memory of a Transformer.

    `fit()` carries it from batch to batch. In each batch the data says which rows go on
    from the batch before. Other rows begin with an empty memory, and so do all rows in
    the first batch of a pass. Saved files don't contain the memory;
    `keras_bertfam.callbacks.BackupAndResume` keeps it.

    Under `tf.distribute` and `keras.distribution` each replica has the memory of its
    own rows.

    Args:
        num_layers: int.
        batch_size: int. Rows of a batch; under `tf.distribute` the rows of a replica.
        memory_length: int. Tokens remembered.
        width: int. Width of the states.

    Call arguments:
        continues: bool tensor `(batch_size,)`.

    Returns:
        Dict of `memory` and `memory_mask`, inputs of `XLNetBackbone`.

    Example:

    ```python
    from keras_bertfam.layers.recurrent.memory import SegmentMemory
    layer = SegmentMemory(
        num_layers=2, batch_size=4, memory_length=8, width=16)
    layer(keras.ops.zeros((4,), "bool"))["memory_mask"].shape  # (4, 8)
    ```

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    def __init__(
        self,
        num_layers: int,
        batch_size: int,
        memory_length: int,
        width: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.batch_size = batch_size
        self.memory_length = memory_length
        self.width = width

    def build(self, input_shape: Shape | None = None) -> None:
        shape = (self.batch_size, self.memory_length, self.width)
        self.states = [
            self._variable(f"states_{index}", shape, self.compute_dtype)
            for index in range(self.num_layers)
        ]
        self.seen = self._variable("seen", shape[:2], "int32")
        self.built = True

    def call(self, continues: Tensor) -> dict[str, Any]:
        return {
            "memory": [ops.convert_to_tensor(state) for state in self.states],
            "memory_mask": self._seen(continues),
        }

    def _seen(self, continues):
        """Tell which states can be read: not those of padding, or of other texts."""
        seen = ops.convert_to_tensor(self.seen) > 0
        return ops.logical_and(ops.expand_dims(continues, 1), seen)

    def remember(
        self, memory: Sequence[Tensor], continues: Tensor, new: Tensor
    ) -> None:
        """Replace the memory.

        Args:
            memory: list of `num_layers` float tensors `(batch_size,
                memory_length, width)`.
            continues: bool tensor `(batch_size,)`.
            new: bool or int tensor `(batch_size, count)`. Which of the tokens that were
                added can be read; those of padding can't.
        """
        for state, value in zip(self.states, memory, strict=True):
            state.assign(ops.cast(value, state.dtype))
        seen = ops.concatenate([self._seen(continues), ops.cast(new, "bool")], axis=1)
        self.seen.assign(ops.cast(seen[:, -self.memory_length :], "int32"))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "batch_size": self.batch_size,
            "memory_length": self.memory_length,
            "width": self.width,
        }


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class StateMemory(_Memory):
    """Keeps the states of LSTMs, from which the next batch goes on.

    As with `SegmentMemory`, the data says which rows go on from the batch before.

    Args:
        batch_size: int. Rows of a batch, on each replica.
        widths: sequence of ints. The widths of the states.

    Call arguments:
        continues: bool tensor `(batch_size,)`.

    Returns:
        List of tensors `(batch_size, width)`; zeros where a row doesn't go on.

    Example:

    ```python
    from keras_bertfam.layers.recurrent.memory import StateMemory
    layer = StateMemory(batch_size=4, widths=[8, 16])
    layer(keras.ops.zeros((4,), "bool"))[1].shape  # (4, 16)
    ```

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), released code.
    """

    def __init__(self, batch_size: int, widths: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batch_size = batch_size
        self.widths = [int(width) for width in widths]

    def build(self, input_shape: Shape | None = None) -> None:
        self.states = [
            self._variable(f"state_{k}", (self.batch_size, width), self.compute_dtype)
            for k, width in enumerate(self.widths)
        ]
        self.built = True

    def call(self, continues: Tensor) -> list[Tensor]:
        goes_on = ops.expand_dims(ops.cast(continues, "bool"), -1)
        states = [ops.convert_to_tensor(state) for state in self.states]
        return [ops.where(goes_on, state, ops.zeros_like(state)) for state in states]

    def remember(self, states: Sequence[Tensor]) -> None:
        """Replace the states; no gradient flows through them.

        Args:
            states: list of float tensors `(batch_size, width)`.
        """
        for state, value in zip(self.states, states, strict=True):
            state.assign(ops.cast(ops.stop_gradient(value), state.dtype))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "batch_size": self.batch_size,
            "widths": self.widths,
        }
