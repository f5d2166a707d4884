"""Splitting of weights over devices with JAX: model parallelism and FSDP."""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import check_number, checked
from keras_bertfam.types import Model

_BATCH, _MODEL = "batch", "model"
_COLUMNS, _ROWS, _VECTOR = (None, _MODEL), (_MODEL, None), (_MODEL,)
# Patterns for the ends of variables' paths, and ways to split such variables, of which
# the first possible one is taken. A sub-layer's first product is split by columns and
# its last by rows, and the parts are summed (Shoeybi et al., 2019, section 3).
LAYOUTS: dict[str, tuple[tuple[str | None, ...], ...]] = {
    r"(qkv|query|key_value|relative|(gated_)?intermediate)/kernel": (_COLUMNS,),
    r"relative_(key|query)/kernel": (_COLUMNS,),
    r"(qkv|query|key_value|(gated_)?intermediate|relative_query)/bias": (_VECTOR,),
    r"(attention|feed_forward)/output/kernel": (_ROWS,),
    # Token tables are split by tokens; by width if the vocabulary can't be divided.
    r"token_embedding/embeddings": (_ROWS, _COLUMNS),
    r"token_embedding/reverse_embeddings": (_COLUMNS, _ROWS),
    r"output_bias": (_VECTOR, (None,)),
}


class ModelParallel(keras.distribution.ModelParallel):
    """`keras.distribution.ModelParallel` with layouts for this library's backbones.

    The devices of one axis of a mesh share the token tables, attention and feed-forward
    layers of a backbone, and the optimizer's variables for these weights. Norms,
    position tables and heads are on each device. Batches are split over the other axis.
    Losses are the same as on one device, within float error.

    Make models in its scope. JAX only.

    Args:
        device_mesh: `keras.distribution.DeviceMesh` of two axes.
        model_parallel_dim_name: string. The axis over which weights are split. Its
            number of devices must divide the width of attention, `num_heads *
            head_dim`, and the `intermediate_dim`; and either the vocabulary or the
            width of the embeddings. Splitting the vocabulary costs less; for that
            `vocabulary_size` may be larger than the tokenizer's.
        auto_shard_dataset: bool. With several processes: if true, each is given whole
            batches and takes its rows; if false, each is given only its rows.

    Raises:
        ValueError: if the mesh has other axes; and when a model is made, for a weight
            that can't be divided.

    Example:

    ```python
    count = len(keras.distribution.list_devices())
    mesh = keras.distribution.DeviceMesh((1, count), ["batch", "model"])
    with keras_bertfam.distribution.ModelParallel(mesh).scope():
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
    ```

    Reference: [Shoeybi et al., 2019](https://arxiv.org/abs/1909.08053), section 3.
    """

    def __init__(
        self,
        device_mesh: keras.distribution.DeviceMesh,
        model_parallel_dim_name: str = _MODEL,
        auto_shard_dataset: bool = True,
    ) -> None:
        axes = getattr(device_mesh, "axis_names", None)
        if axes is None or len(axes) != 2 or model_parallel_dim_name not in axes:
            raise ValueError(
                "`device_mesh` must be a `keras.distribution.DeviceMesh` of two axes, "
                f"one of them {model_parallel_dim_name!r}. Received: {device_mesh}."
            )
        (batch,) = (name for name in axes if name != model_parallel_dim_name)
        super().__init__(
            layout_map=keras.distribution.LayoutMap(device_mesh),
            batch_dim_name=batch,
            auto_shard_dataset=auto_shard_dataset,
        )
        self.model_parallel_dim_name = model_parallel_dim_name

    def get_variable_layout(
        self, variable: keras.Variable
    ) -> keras.distribution.TensorLayout:
        """Give the layout of a variable, by its path."""
        for pattern, layouts in LAYOUTS.items():
            if re.search(rf"(^|[/_]){pattern}$", variable.path):
                return self._layout(variable, layouts)
        return super().get_variable_layout(variable)

    def _layout(self, variable, layouts):
        mesh, name = self.device_mesh, self.model_parallel_dim_name
        count = mesh.shape[mesh.axis_names.index(name)]
        for layout in layouts:
            pairs = zip(variable.shape, layout, strict=True)
            if all(axis is None or size % count == 0 for size, axis in pairs):
                axes = [axis and name for axis in layout]
                return keras.distribution.TensorLayout(axes, mesh)
        sizes = [variable.shape[layout.index(_MODEL)] for layout in layouts]
        raise ValueError(
            f"`device_mesh` must have a {name!r} axis that divides "
            f"{' or '.join(map(str, sizes))}, for {variable.path!r} of shape "
            f"{tuple(variable.shape)}. Received: {count} devices on that axis."
        )


@checked
class FullyShardedData(keras.distribution.ModelParallel):
    """Data parallelism in which devices also share the weights (FSDP, ZeRO).

    As with `keras.distribution.DataParallel` each device has its rows of a batch. It
    also holds only a part of each weight and of the optimizer's variables. When a step
    needs a layer's weights, XLA gathers them; gradients are summed into parts. So the
    memory for weights and optimizer falls with the number of devices, at the price of
    sending weights. Losses are the same as on one device, within float error. Saved
    files can be loaded with any number of devices.

    Make models in its scope. JAX only.

    Args:
        devices: list of names of devices, as `keras.distribution.list_devices` gives
            them, or `None` for all.
        least_size: int. Weights with fewer values are whole on each device, and so are
            weights without an axis that the number of devices divides. Defaults to
            1024.
        auto_shard_dataset: bool. See `ModelParallel`.

    Example:

    ```python
    with keras_bertfam.distribution.FullyShardedData().scope():
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
    ```

    Reference: [Rajbhandari et al., 2019](https://arxiv.org/abs/1910.02054), section 5.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        least_size: int = 1024,
        auto_shard_dataset: bool = True,
    ) -> None:
        check_number("least_size", least_size, 1)
        if devices is None:
            devices = keras.distribution.list_devices()
        mesh = keras.distribution.DeviceMesh((len(devices),), [_BATCH], [*devices])
        super().__init__(
            layout_map=keras.distribution.LayoutMap(mesh),
            batch_dim_name=_BATCH,
            auto_shard_dataset=auto_shard_dataset,
        )
        self.least_size = least_size

    def get_variable_layout(
        self, variable: keras.Variable
    ) -> keras.distribution.TensorLayout:
        """Split a variable along its longest axis that the devices divide."""
        if getattr(variable, "_layout", None) is not None:  # such as a memory's
            return super().get_variable_layout(variable)
        shape, (count,) = variable.shape, self.device_mesh.shape
        axes: list[str | None] = [None] * len(shape)
        fitting = [axis for axis, size in enumerate(shape) if size % count == 0]
        if fitting and math.prod(shape) >= self.least_size:
            axes[max(fitting, key=lambda axis: shape[axis])] = _BATCH
        return keras.distribution.TensorLayout(axes, self.device_mesh)


def as_numpy(variable: keras.Variable) -> np.ndarray:
    """Give the values of a variable, even if other processes hold parts of it.

    All processes must call it at the same time.

    Args:
        variable: `keras.Variable`.

    Returns:
        A NumPy array of the variable's shape.
    """
    if _is_spread(variable):
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(variable.value, tiled=True)
    return ops.convert_to_numpy(variable)


def _is_spread(variable):
    """Tell whether this process lacks, or may lack, parts of a variable."""
    if keras.backend.backend() != "jax":
        return False
    value = variable.value
    return not (value.is_fully_addressable or value.is_fully_replicated)


@contextlib.contextmanager
def gathered(model: Model) -> Iterator[None]:
    """Gather all weights of a model in each process, so that it can be saved.

    All processes must enter this context. It does nothing unless weights are split over
    several processes.

    Args:
        model: `keras.Model`.
    """
    spread = [variable for variable in model.variables if _is_spread(variable)]
    before = [(variable, variable._layout, variable.value) for variable in spread]
    try:
        for variable in spread:
            whole = as_numpy(variable)
            variable._layout = None  # with it Keras would split the variable again
            variable.assign(whole)
        yield
    finally:
        for variable, layout, value in before:
            variable._layout = layout
            variable.assign(value)
