"""What Keras's trainer and optimizers need to run on several replicas of TensorFlow.

Seen in Keras 3.15: optimizers sum gradients after clipping them, metrics are built too
late for `on_train_begin`, and logs of workers have no axis (keras issue 20585). Under
JAX and PyTorch, whose arrays and gradients are global already, all is the identity.
"""

import contextlib
from typing import Any

import keras
from keras import ops

from keras_bertfam.distribution import across_workers, replica_context
from keras_bertfam.types import Model

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
else:
    tf = None


def prepare_optimizer(model: Model) -> None:
    """Make the optimizer of a model that was just compiled right under `tf.distribute`.

    Gradients are then summed over the replicas before they are clipped and checked for
    overflow, so that clipping acts on the gradient of the global batch, and an update
    may be of several batches. Without replicas, see `leave_gradients`.

    Args:
        model: `keras.Model`.
    """
    if tf is None or model.optimizer is None:
        return
    if model.distribute_strategy.num_replicas_in_sync > 1:
        sum_gradients_first(model.optimizer)
        return
    leave_gradients(model.optimizer)
    with model.distribute_strategy.scope():
        # A strategy with one replica has contexts, too.
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        accumulates = optimizer.gradient_accumulation_steps
        known = hasattr(optimizer, "_accumulates_over_replicas")
        if tf.distribute.has_strategy() and accumulates and not known:
            accumulate_over_replicas(optimizer)


def only_with(data: Any) -> contextlib.AbstractContextManager[Any]:
    """Let nothing of a step happen unless there is data.

    At the end of data of unknown length Keras runs one step too many, of which
    TensorFlow does what doesn't need the data: it counts an iteration, and a
    batch of loss zero.

    Args:
        data: the batch of the step.
    """
    if tf is None:
        return contextlib.nullcontext()
    return tf.control_dependencies(
        [x for x in keras.tree.flatten(data) if isinstance(x, tf.Tensor)]
    )


def as_workers_reduce(model: Model, logs: Any) -> Any:
    """Give the logs of a step an axis, if a model is trained by several workers.

    Across workers Keras reduces logs over axis 0, which scalars lack (keras issue
    20585).
    """
    if tf is None or not across_workers(model.distribute_strategy):
        return logs
    return {name: ops.expand_dims(log, 0) for name, log in logs.items()}


def build_before_first_step(
    model: Model, iterator: Any = None, data_batch: Any = None
) -> None:
    """Build metrics and loss, as under JAX and PyTorch, for `on_train_begin`.

    It takes the place of TensorFlow's `_maybe_symbolic_build`, since no public hook
    comes as early. Keras averages the replicas' batches to learn their shapes, which
    fails across workers (keras issue 20585) and for booleans. One replica's batch has
    them.
    """
    if iterator is not None:
        _, _, batches = next(iter(iterator))
        try:
            data_batch = next(batches)
        except StopIteration:
            return  # no data: fit() itself says so
    strategy = model.distribute_strategy
    data_batch = keras.tree.map_structure(
        lambda x: strategy.experimental_local_results(x)[0], data_batch
    )
    with strategy.scope():
        model._symbolic_build(data_batch=data_batch)


def leave_gradients(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer leave out the sum over replicas, where there is only one.

    TensorFlow notes each such sum in a list that lasts as long as the process, and with
    it all of the training step: 80 MB for each `fit()` of a tiny model.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = list


def sum_gradients_first(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer sum gradients over the replicas as its first act.

    Keras's optimizers do so after clipping each replica's gradient by itself
    and, with a loss scale, after asking only the first replica for overflow.
    """
    if hasattr(optimizer, "_sums_gradients_first"):
        return
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.gradient_accumulation_steps:
        accumulate_over_replicas(inner)
    apply = optimizer.apply

    def apply_summed(grads, trainable_variables=None):
        context = replica_context()
        known = [grad for grad in grads if grad is not None]
        if context is not None and known:
            known = context.all_reduce(tf.distribute.ReduceOp.SUM, known)
        summed = iter(known)
        grads = [None if grad is None else next(summed) for grad in grads]
        return apply(grads, trainable_variables)

    optimizer.apply = apply_summed
    optimizer._sums_gradients_first = True
    # The optimizer's own sum, for which Keras has no public switch.
    inner._all_reduce_sum_gradients = list


def accumulate_over_replicas(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer accumulate gradients in the context of a replica.

    Keras asks there whether an update is due, and both answers would leave that
    context, which TensorFlow forbids. Here the replicas have left it by then.

    Args:
        optimizer: One with `gradient_accumulation_steps`, given summed gradients.

    Raises:
        ValueError: if the optimizer keeps moving averages of the weights.
    """
    if optimizer.use_ema:
        raise ValueError(
            "`use_ema` doesn't go with `gradient_accumulation_steps` on several "
            "replicas. Expected use_ema=False. Received: use_ema=True."
        )
    steps = optimizer.gradient_accumulation_steps

    def accumulators(variables):
        indices = [optimizer._get_variable_index(variable) for variable in variables]
        return [optimizer._accumulated_gradients[index] for index in indices]

    def update(grads, variables):
        sums = accumulators(variables)
        values = [ops.convert_to_tensor(x) for x in sums]
        grads = [(g + x) / steps for g, x in zip(grads, values, strict=True)]
        grads = optimizer._clip_gradients(grads)
        optimizer._apply_weight_decay(variables)
        optimizer._backend_update_step(grads, variables, optimizer.learning_rate)
        optimizer._backend_increment_gradient_accumulators([-x for x in values], sums)

    def add(grads, variables):
        optimizer._backend_increment_gradient_accumulators(
            grads, accumulators(variables)
        )

    def apply(grads, variables):
        due = tf.equal((optimizer._iterations.value + 1) % steps, 0)
        context = None
        if tf.distribute.has_strategy():
            context = tf.distribute.get_replica_context()
        if (
            context is None
            or tf.__internal__.distribute.strategy_supports_no_merge_call()
        ):
            tf.cond(
                due, lambda: update(grads, variables), lambda: add(grads, variables)
            )
            return

        def across(strategy, due, grads):
            def each(function):
                run = strategy.extended.call_for_each_replica
                run(lambda grads: function(grads, variables), args=(grads,))

            due = strategy.experimental_local_results(due)[0]
            tf.cond(due, lambda: each(update), lambda: each(add))

        context.merge_call(across, args=(due, grads))

    optimizer._backend_apply_gradients = apply
    optimizer._accumulates_over_replicas = True
