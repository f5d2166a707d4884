"""ELMo's LSTMs, with projected outputs and clipped cells."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.types import Config, Shape, Tensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ProjectedLSTMCell(keras.layers.Layer):
    """A step of an LSTM with projection, for `keras.layers.RNN`.

    Its inputs are already projected to the gates, for all steps at once.

    Args:
        cell_dim: int. Width of the cell.
        projection_dim: int. Width of the output.
        cell_clip: float or `None`. The greatest magnitude in a cell.
        projection_clip: float or `None`. The greatest magnitude in an output.

    Call arguments:
        inputs: float tensor `(batch, 4 * cell_dim)`, the inputs' part of input gate,
            candidate, forget gate and output gate.
        states: list of two tensors: the output, `(batch, projection_dim)`, and the
            cell, `(batch, cell_dim)`.

    Returns:
        A tuple of the output and the list of states.

    Example:

    ```python
    from keras_bertfam.layers.recurrent.projected_lstm import ProjectedLSTMCell
    cell = ProjectedLSTMCell(cell_dim=32, projection_dim=8)
    layer = keras.layers.RNN(cell)
    layer(keras.random.normal((2, 5, 128))).shape  # (2, 8)
    ```

    Reference: [Sak et al., 2014](https://arxiv.org/abs/1402.1128).
    """

    def __init__(
        self,
        cell_dim: int,
        projection_dim: int,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cell_dim = cell_dim
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip
        self.state_size = [projection_dim, cell_dim]
        self.output_size = projection_dim

    def build(self, input_shape: Shape | None = None) -> None:
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel",
            shape=(self.projection_dim, 4 * self.cell_dim),
            initializer="glorot_uniform",
        )
        self.projection = self.add_weight(
            name="projection",
            shape=(self.cell_dim, self.projection_dim),
            initializer="glorot_uniform",
        )
        self.built = True

    def call(self, inputs: Tensor, states: Sequence[Tensor]) -> Any:
        output, cell = states
        gates = inputs + ops.matmul(output, self.recurrent_kernel)
        enter, new, forget, leave = ops.split(gates, 4, axis=-1)
        cell = ops.sigmoid(forget + 1.0) * cell + ops.sigmoid(enter) * ops.tanh(new)
        cell = _clipped(cell, self.cell_clip)
        output = ops.matmul(ops.sigmoid(leave) * ops.tanh(cell), self.projection)
        output = _clipped(output, self.projection_clip)
        return output, [output, cell]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "cell_dim": self.cell_dim,
            "projection_dim": self.projection_dim,
            "cell_clip": self.cell_clip,
            "projection_clip": self.projection_clip,
        }


def _clipped(x, limit):
    return x if limit is None else ops.clip(x, -limit, limit)


class ProjectedLSTM(keras.layers.Layer):
    """An LSTM with projection over sequences, for `BidirectionalLSTM`.

    Args:
        cell_dim, projection_dim, cell_clip, projection_clip: see `ProjectedLSTMCell`.
        backwards: bool. Whether it reads rows from their end.
    """

    def __init__(self, *args: Any, backwards: bool = False, **kwargs: Any) -> None:
        super().__init__(name=kwargs.pop("name"), dtype=kwargs.get("dtype"))
        self.backwards = backwards
        cell = ProjectedLSTMCell(*args, name="cell", **kwargs)
        self.recurrence = keras.layers.RNN(
            cell,
            return_sequences=True,
            return_state=True,
            name="recurrence",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Shape) -> None:
        gates = 4 * self.recurrence.cell.cell_dim
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1], gates),
            initializer="glorot_uniform",
        )
        self.bias = self.add_weight(name="bias", shape=(gates,), initializer="zeros")
        self.recurrence.build((None, None, gates))
        self.built = True

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        states: Sequence[Tensor] | None = None,
        as_it_comes: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        flip = self.backwards and not as_it_comes
        mask = None if padding_mask is None else ops.cast(padding_mask, "bool")
        gates = ops.matmul(x, ops.convert_to_tensor(self.kernel)) + self.bias
        if flip:
            gates = ops.flip(gates, axis=1)
            mask = None if mask is None else ops.flip(mask, axis=1)
        y, *after = self.recurrence(gates, initial_state=states, mask=mask)
        if mask is not None:
            y = y * ops.cast(ops.expand_dims(mask, -1), y.dtype)
        return (ops.flip(y, axis=1) if flip else y), after


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class BidirectionalLSTM(keras.layers.Layer):
    """ELMo's two stacks of LSTMs, one for each direction.

    From the second layer on, a layer's input is added to its output. Padding must be at
    the ends of rows; it doesn't change states.

    Args:
        num_layers: int.
        cell_dim: int. Width of the cells.
        projection_dim: int. Width of the inputs, and of each direction's outputs.
        cell_clip: float or `None`. The greatest magnitude in a cell.
        projection_clip: float or `None`. The greatest magnitude in a projection.
        dropout: float. Dropout rate of the inputs of each layer.

    Call arguments:
        x: float tensor `(batch, length, projection_dim)`.
        padding_mask: bool tensor `(batch, length)`, false for padding, or `None`.
        states: the states that an earlier call returned, to go on from them; or `None`.

    Returns:
        A tuple of two lists. The layers' outputs, each `(batch, length, 2 *
        projection_dim)`, with the forward direction first. And the states after the
        last token that each direction reads, `4 * num_layers` tensors `(batch,
        projection_dim or cell_dim)`, forward first.

    Example:

    ```python
    from keras_bertfam.layers.recurrent.projected_lstm import BidirectionalLSTM
    layer = BidirectionalLSTM(
        num_layers=2, cell_dim=32, projection_dim=8)
    outputs, states = layer(keras.random.normal((2, 5, 8)))
    outputs[1].shape  # (2, 5, 16)
    ```

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), section 3.1.
    """

    def __init__(
        self,
        num_layers: int,
        cell_dim: int,
        projection_dim: int,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.cell_dim = cell_dim
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip
        self.dropout_rate = dropout
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.forward_layers, self.backward_layers = (
            [
                ProjectedLSTM(
                    cell_dim,
                    projection_dim,
                    cell_clip,
                    projection_clip,
                    backwards=direction == "backward",
                    name=f"{direction}_{number}",
                    dtype=self.dtype_policy,
                )
                for number in range(num_layers)
            ]
            for direction in ("forward", "backward")
        )

    def build(self, input_shape: Shape | None = None) -> None:
        for layer in (*self.forward_layers, *self.backward_layers):
            layer.build((None, None, self.projection_dim))
        self.built = True

    @property
    def state_widths(self) -> list[int]:
        """Widths of the states of both directions."""
        return [self.projection_dim, self.cell_dim] * 2 * self.num_layers

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        states: Sequence[Tensor] | None = None,
        training: bool | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        half = 2 * self.num_layers
        forward, backward = (
            (None, None)
            if states is None
            else (
                states[:half],
                states[half:],
            )
        )
        common: Any = {"padding_mask": padding_mask, "training": training}
        ahead, after = self.run(x, "forward", states=forward, **common)
        back, before = self.run(x, "backward", states=backward, **common)
        outputs = [
            ops.concatenate(pair, axis=-1) for pair in zip(ahead, back, strict=True)
        ]
        return outputs, [*after, *before]

    def run(
        self,
        x: Tensor,
        direction: str,
        padding_mask: Tensor | None = None,
        states: Sequence[Tensor] | None = None,
        as_it_comes: bool = False,
        training: bool | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Compute the outputs of one direction.

        Args:
            x, padding_mask: see the call.
            direction: `"forward"` or `"backward"`.
            states: list of `2 * num_layers` tensors, or `None`.
            as_it_comes: bool. Whether rows are in the direction's reading order, for
                example reversed rows for the backward direction.
            training: bool or `None`.

        Returns:
            A tuple of the list of the layers' outputs, each `(batch, length,
            projection_dim)`, and the states.
        """
        outputs, after = [], []
        for number, layer in enumerate(getattr(self, f"{direction}_layers")):
            x = self.dropout(x, training=training)
            before = None if states is None else states[2 * number : 2 * number + 2]
            y, new = layer(
                x, padding_mask=padding_mask, states=before, as_it_comes=as_it_comes
            )
            x = x + y if number else y
            outputs.append(x)
            after += new
        return outputs, after

    def compute_output_shape(
        self, input_shape: Shape, *args: Any, **kwargs: Any
    ) -> Any:
        batch, length, width = input_shape
        outputs = [(batch, length, 2 * width)] * self.num_layers
        return outputs, [(batch, width) for width in self.state_widths]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "cell_dim": self.cell_dim,
            "projection_dim": self.projection_dim,
            "cell_clip": self.cell_clip,
            "projection_clip": self.projection_clip,
            "dropout": self.dropout_rate,
        }
