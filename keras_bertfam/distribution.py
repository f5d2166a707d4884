"""What Keras's trainer needs to run under `tf.distribute`, and processes have to know.

Under JAX and PyTorch, whose arrays and gradients are global already, what is here for
the trainer is the identity.
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
    """Give the context of one of several replicas, or `None`."""
    if tf is None or not tf.distribute.has_strategy():
        return None
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return None
    return tf.distribute.get_replica_context()


def replica_id() -> Any:
    """Give the number of the current replica, 0 outside of a replica.

    Fold it into seeds: the replicas of a strategy hold equal seed generators.

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
    """Gather the rows of all replicas, with gradients to where they come from.

    Replicas may have unequally many; rows of zeros fill the smaller batches up. Where
    rows are matrices, zeros fill up the shorter ones, too.

    Args:
        x: Float tensor `(rows, width)` or `(rows, length, width)`.

    Returns:
        A tuple of the rows of all replicas, one replica's after the other's; a bool
        tensor of which are there, or `None` if all are; and where those of this replica
        begin. Outside of a replica `(x, None, 0)`.
    """
    context = replica_context()
    if context is None:
        return x, None, 0
    replicas, own = context.num_replicas_in_sync, context.replica_id_in_sync_group
    mine = tf.one_hot(own, replicas)
    shape = tf.shape(x)[:-1]
    # Of each axis, how long it is in each replica.
    sizes = global_sum(tf.tensordot(tf.cast(shape, "float32"), mine, 0))
    sizes = tf.cast(sizes, "int32")
    most = tf.reduce_max(sizes, 1)
    missing = tf.pad(tf.concat([most - shape, [0]], 0)[:, None], [[0, 0], [1, 0]])
    spread = tf.tensordot(tf.cast(mine, x.dtype), tf.pad(x, missing), 0)
    # The gradient of the sum is the sum of all replicas' gradients.
    rows = tf.reshape(global_sum(spread), [-1, *tf.unstack(most[1:]), x.shape[-1]])
    sizes, longest = sizes[0], most[0]
    inside = tf.reshape(tf.sequence_mask(sizes, longest), [-1])
    return rows, inside, own * longest


class MeansOfLoss:
    """Collect the means of which a loss is made, by what they are divided by.

    Attributes:
        weights: list of scalar tensors, the weights of this replica, each of one or
            more means.
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
                "A task's `loss_counts` must be the number of tensors that its loss "
                f"divides by. Expected at least {number + 1}. Received: {count}."
            )
        return mean * self._factors[number]


_means: contextvars.ContextVar[MeansOfLoss | None] = contextvars.ContextVar(
    "means", default=None
)


@contextlib.contextmanager
def means_of_loss(factors: Tensor | None = None) -> Iterator[MeansOfLoss]:
    """Note what `global_mean` divides by within this context.

    Args:
        factors: float tensor `(count,)` or `None`. What all means of one weight are
            multiplied by, the weights numbered in the order in which they come. The
            gradient by a factor is then these means' part of the loss.

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
    """Compute the global weighted mean, as the loss that a replica has to return.

    Keras sums the replicas' gradients and reports the loss times the number of
    replicas. The value returned here is the mean over all replicas divided by
    their number, while its gradient is that of this replica's part: gradients
    and the reported loss equal those of a single device, however unevenly the
    weights (masked tokens) are spread.

    Args:
        total: Scalar tensor, the weighted sum on this replica.
        weight: Scalar tensor, the sum of the weights on this replica.

    Returns:
        Scalar tensor. Outside of a replica `total / weight`; 0 where all
        weights are 0.
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
    """List the variables behind one of which each replica keeps its own values.

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
    """Give the scope of the strategy that a model was made in.

    `fit()` is most often called outside of it, and so are its callbacks.

    Args:
        model: `keras.Model`.

    Returns:
        A context manager, which does nothing where there is no such strategy.
    """
    strategy = getattr(model, "distribute_strategy", None)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def may_compile_steps(model: Model) -> bool:
    """Tell whether TensorFlow can compile a model's steps by XLA.

    It can't compile what replicas exchange, so not under a strategy.

    Args:
        model: `keras.Model`.

    Returns:
        `False` under other backends.
    """
    with scope_of(model):
        return tf is not None and not tf.distribute.has_strategy()


def check_compilation(model: Model, jit_compile: Any) -> None:
    """Raise a `ValueError` for steps that TensorFlow would crash in.

    Args:
        model: `keras.Model`.
        jit_compile: what `compile()` is given.
    """
    if tf is None or jit_compile is not True:
        return
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas > 1:
        raise ValueError(
            "`jit_compile` must be left out, or `False`, under a strategy of several "
            "replicas: XLA can't compile what they exchange. Train under JAX for "
            f"compiled steps on {replicas} devices. Received: True."
        )


def is_chief() -> bool:
    """Tell whether this process is the one that writes files.

    Asked of the current strategy: call it in the scope of the model's, `scope_of`.

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

    All of them have to ask, at the same step; none goes on before all have.

    Args:
        model: `keras.Model`.
        values: what this process has.

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
        # Each replica has a part, so that the sum over a worker's is its own.
        here = (
            strategy.num_replicas_in_sync
            // strategy.cluster_resolver.cluster_spec().num_tasks("worker")
        )
        parts = tf.constant(values, "float32") / here
        given = strategy.experimental_distribute_values_from_function(lambda _: parts)
        return [float(x) for x in strategy.reduce("SUM", given, axis=None)]


def across_workers(strategy: Any) -> bool:
    """Tell whether a strategy of TensorFlow spans several processes."""
    multi_worker = tf.distribute.MultiWorkerMirroredStrategy
    if not isinstance(strategy, multi_worker):
        return False
    return strategy.cluster_resolver.cluster_spec().num_tasks("worker") > 1
