"""Sums and means over replicas and processes, for training under `tf.distribute`.

With JAX and PyTorch arrays and gradients are global already, so there the trainer's
functions of this module change nothing.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.sharding import FullyShardedData as FullyShardedData
from keras_bertfam.sharding import ModelParallel as ModelParallel
from keras_bertfam.sharding import as_numpy as as_numpy
from keras_bertfam.sharding import gathered as gathered
from keras_bertfam.types import Model, Tensor

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
else:
    tf = None


def replica_context() -> Any:
    """Give the current replica's context; `None` without several replicas."""
    if tf is None or not tf.distribute.has_strategy():
        return None
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return None
    return tf.distribute.get_replica_context()


def replica_id() -> Any:
    """Give the number of the current replica, 0 outside of a replica.

    Fold it into seeds, since all replicas of a strategy have equal seed generators.

    Returns:
        An int, or an int32 scalar tensor inside of a replica.
    """
    context = replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def num_replicas() -> int:
    """Count the replicas of the current `tf.distribute` strategy; 1 without one."""
    return 1 if tf is None else tf.distribute.get_strategy().num_replicas_in_sync


def global_sum(x: Tensor) -> Tensor:
    """Sum a tensor over the replicas of the current strategy.

    Args:
        x: Tensor of any shape, the same on every replica.

    Returns:
        The sum, the same on every replica; outside of a replica `x` itself.

    Example:

    ```python
    losses, weights = keras.random.uniform((8,)), keras.ops.ones((8,))
    total = keras_bertfam.distribution.global_sum(keras.ops.sum(weights))
    share = keras.ops.sum(weights * losses) / total
    ```
    """
    context = replica_context()
    if context is None:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def rows_of_all(x: Tensor) -> tuple[Tensor, Tensor | None, Any]:
    """Gather the rows of all replicas; gradients flow back to each row's replica.

    Replicas may have different numbers of rows: smaller batches are filled up with rows
    of zeros. If rows are matrices, shorter ones are filled up with zeros too.

    Args:
        x: Float tensor `(rows, width)` or `(rows, length, width)`.

    Returns:
        A tuple: the rows of all replicas, one replica after the other; a bool tensor,
        false for rows that fill up, or `None` if there are none; and the number of this
        replica's first row. Outside of a replica `(x, None, 0)`.
    """
    context = replica_context()
    if context is None:
        return x, None, 0
    replicas, own = context.num_replicas_in_sync, context.replica_id_in_sync_group
    mine = tf.one_hot(own, replicas)
    shape = tf.shape(x)[:-1]
    # The length of each axis in each replica.
    sizes = global_sum(tf.tensordot(tf.cast(shape, "float32"), mine, 0))
    sizes = tf.cast(sizes, "int32")
    most = tf.reduce_max(sizes, 1)
    missing = tf.pad(tf.concat([most - shape, [0]], 0)[:, None], [[0, 0], [1, 0]])
    # A product of tensors would round floats on some GPUs.
    mine = tf.reshape(tf.cast(mine, x.dtype), [-1, *[1] * len(x.shape)])
    spread = mine * tf.pad(x, missing)[None]
    # The gradient of the sum is the sum of all replicas' gradients.
    rows = tf.reshape(global_sum(spread), [-1, *tf.unstack(most[1:]), x.shape[-1]])
    sizes, longest = sizes[0], most[0]
    inside = tf.reshape(tf.sequence_mask(sizes, longest), [-1])
    return rows, inside, own * longest


class MeansOfLoss:
    """Collects the means of which a loss consists, by their divisors.

    Attributes:
        weights: list of scalar tensors: the different divisors of this replica's means.
    """

    def __init__(self, factors: Tensor | None = None) -> None:
        self.weights: list[Tensor] = []
        self._factors = factors

    def take(self, mean: Tensor, weight: Tensor) -> Tensor:
        """Multiply a mean by its factor, if there are any."""
        known = [index for index, each in enumerate(self.weights) if each is weight]
        if not known:
            self.weights.append(weight)
        if self._factors is None:
            return mean
        number, count = (known or [len(self.weights) - 1])[0], self._factors.shape[0]
        if number >= count:
            raise ValueError(
                "A task's `loss_counts` must be the number of different divisors in "
                f"its loss. Expected at least {number + 1}. Received: {count}."
            )
        return mean * self._factors[number]


_means: contextvars.ContextVar[MeansOfLoss | None] = contextvars.ContextVar(
    "means", default=None
)


@contextlib.contextmanager
def means_of_loss(factors: Tensor | None = None) -> Iterator[MeansOfLoss]:
    """Record the divisors of `global_mean` within this context.

    Args:
        factors: float tensor `(count,)` or `None`. Factor `i` multiplies all means with
            the `i`-th divisor, in the order in which divisors come. The gradient by the
            factor is then these means' part of the loss.

    Yields:
        `MeansOfLoss`.
    """
    means = MeansOfLoss(factors)
    before = _means.set(means)
    try:
        yield means
    finally:
        _means.reset(before)


def global_mean(total: Tensor, weight: Tensor) -> Tensor:
    """Compute the global weighted mean, as the loss that a replica must return.

    Keras sums the replicas' gradients, and reports the loss times the number of
    replicas. The value returned here is the mean over all replicas, divided by their
    number; its gradient is the gradient of this replica's part. So gradients and
    reported loss equal those of a single device, even if weights (such as masked
    tokens) are spread unevenly.

    Args:
        total: Scalar tensor, the weighted sum on this replica.
        weight: Scalar tensor, the sum of the weights on this replica.

    Returns:
        Scalar tensor. Outside of a replica `total / weight`; 0 if all weights are 0.
    """
    mean, means = _global_mean(total, weight), _means.get()
    return mean if means is None else means.take(mean, weight)


def _global_mean(total, weight):
    context = replica_context()
    if context is None:
        return ops.divide_no_nan(total, weight)
    sums = ops.stop_gradient(ops.stack([total, weight]))
    global_total, global_weight = ops.unstack(global_sum(sums))
    part = ops.divide_no_nan(total, global_weight)
    mean = ops.divide_no_nan(global_total, global_weight)
    return part + ops.stop_gradient(mean / context.num_replicas_in_sync - part)


def own_variables(variable: keras.Variable) -> list[Any]:
    """List the replicas' variables behind a variable with values of its own on each.

    Args:
        variable: `keras.Variable`.

    Returns:
        A list with the variable of each replica of this process; empty for a
        variable that all replicas share, or whose replicas' values are summed.
    """
    value = variable.value
    if tf is None or not isinstance(value, tf.distribute.DistributedValues):
        return []
    first_only = value.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA
    on_read = value.synchronization == tf.VariableSynchronization.ON_READ
    return list(value.values) if first_only and on_read else []


def scope_of(model: Model) -> contextlib.AbstractContextManager[Any]:
    """Give the scope of the strategy in which a model was made.

    Usually `fit()` and its callbacks are called outside of it.

    Args:
        model: `keras.Model`.

    Returns:
        A context manager, which does nothing without such a strategy.
    """
    strategy = getattr(model, "distribute_strategy", None)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def may_compile_steps(model: Model) -> bool:
    """Tell whether TensorFlow can compile a model's steps by XLA.

    It can't under a strategy of several replicas, since XLA can't compile their
    communication.

    Args:
        model: `keras.Model`.

    Returns:
        bool. `False` with other backends.
    """
    with scope_of(model):
        return tf is not None and not tf.distribute.has_strategy()


def check_compilation(model: Model, jit_compile: Any) -> None:
    """Raise a `ValueError` for compiled steps in which TensorFlow would crash.

    Args:
        model: `keras.Model`.
        jit_compile: the argument of `compile()`.
    """
    if tf is None or jit_compile is not True:
        return
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            "`jit_compile` must be left out, or `False`, under a strategy of several "
            "replicas, because XLA can't compile their communication. Use the JAX "
            f"backend for compiled steps on {replicas} devices. Received: True."
        )


def is_chief() -> bool:
    """Tell whether this process is the one that writes files.

    The answer depends on the current strategy, so call it inside of `scope_of(model)`.

    Returns:
        `True` except in the second and further workers of a
        `tf.distribute.MultiWorkerMirroredStrategy`, or of a JAX cluster.
    """
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index() == 0
    return tf is None or tf.distribute.get_strategy().extended.should_checkpoint


def sum_over_processes(model: Model, values: Sequence[float]) -> list[float]:
    """Sum numbers over the processes that train a model together.

    All processes must call it at the same step. Each waits until all have called.

    Args:
        model: `keras.Model`.
        values: this process's numbers.

    Returns:
        List of floats; `values` themselves in a single process.
    """
    if keras.backend.backend() == "jax":
        import jax

        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            found = multihost_utils.process_allgather(np.array(values, "float32"))
            return [float(x) for x in found.sum(0)]
    strategy = getattr(model, "distribute_strategy", None)
    if tf is None or strategy is None or not across_workers(strategy):
        return [*values]
    with strategy.scope():
        # Each replica gets an equal part of the worker's numbers.
        here = len(strategy.extended.worker_devices)
        parts = tf.constant(values, "float32") / here
        given = strategy.experimental_distribute_values_from_function(lambda _: parts)
        return [float(x) for x in strategy.reduce("SUM", given, axis=None)]


def across_workers(strategy: Any) -> bool:
    """Tell whether a strategy of TensorFlow spans several processes."""
    multi_worker = tf.distribute.MultiWorkerMirroredStrategy
    # Keras asks the same. Without `TF_CONFIG` such a strategy is that of one process.
    return (
        isinstance(strategy, multi_worker) and strategy.extended._in_multi_worker_mode()
    )
