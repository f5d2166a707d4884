"""Updates of several batches, each of which counts by its weight."""

import contextlib
from collections.abc import Iterator

import keras
from keras import ops

from keras_bertfam.optimizers.weight_decay import inner
from keras_bertfam.types import Tensor


def accumulates(optimizer: keras.optimizers.Optimizer | None) -> bool:
    """Whether an update is of several batches."""
    return bool(getattr(inner(optimizer), "gradient_accumulation_steps", None))


def weigh_batches(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes an update of several batches the one of all their tokens.

    Keras takes the mean of the batches' gradients. Here each counts by its weight,
    which `weighed` tells. What is accumulated is the weighted mean so far, times the
    number of batches, by which Keras divides in the end.

    Args:
        optimizer: A `keras.optimizers.Optimizer` with `gradient_accumulation_steps`,
            or a `LossScaleOptimizer` around one. It gets a variable more.
    """
    core = inner(optimizer)
    if hasattr(core, "_accumulated_weight"):
        return
    core._accumulated_weight = core.add_variable(
        (), dtype="float32", aggregation="only_first_replica", name="accumulated_weight"
    )
    core._batch_weight = None
    # Keras has no public hook between the gradients and their sum.
    apply = core._backend_apply_gradients

    def apply_weighed(grads, trainable_variables):
        keep, share = shares(core, core._accumulated_weight)
        sums = [
            core._accumulated_gradients[core._get_variable_index(variable)]
            for variable in trainable_variables
        ]
        less = [ops.cast(keep - 1.0, x.dtype) * ops.convert_to_tensor(x) for x in sums]
        core._backend_increment_gradient_accumulators(less, sums)
        total = _weight(core) + ops.convert_to_tensor(core._accumulated_weight)
        done = ops.equal((core._iterations + 1) % core.gradient_accumulation_steps, 0)
        core._accumulated_weight.assign(ops.where(done, 0.0, total))
        apply([x * ops.cast(share, x.dtype) for x in grads], trainable_variables)

    core._backend_apply_gradients = apply_weighed


@contextlib.contextmanager
def weighed(optimizer: keras.optimizers.Optimizer, weight: Tensor) -> Iterator[None]:
    """Tells what the batch of the step within weighs; else all batches are alike.

    Args:
        optimizer: One that `weigh_batches` was called with.
        weight: Float scalar tensor, what the batch's loss is divided by.
    """
    core = inner(optimizer)
    core._batch_weight = weight
    try:
        yield
    finally:
        core._batch_weight = None


def weight_of_batch(optimizer: keras.optimizers.Optimizer) -> Tensor | None:
    """What `weighed` tells now, `None` outside of it."""
    return inner(optimizer)._batch_weight


def shares(core: keras.optimizers.Optimizer, before: Tensor) -> tuple[Tensor, Tensor]:
    """What sums of gradients, and the gradient of a batch, are multiplied by.

    Args:
        core: An optimizer that `weigh_batches` was called with.
        before: Float scalar, the weight of the update's batches so far.

    Returns:
        A pair of float scalars.
    """
    before, weight = ops.convert_to_tensor(before), _weight(core)
    total = before + weight
    share = ops.divide_no_nan(weight, total) * core.gradient_accumulation_steps
    return ops.divide_no_nan(before, total), share


def _weight(core):
    weight = 1.0 if core._batch_weight is None else core._batch_weight
    return ops.convert_to_tensor(weight, "float32")
