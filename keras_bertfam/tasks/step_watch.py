"""Count tokens and keep norms of gradients while a callback asks for them."""

import weakref
from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.optimizers.accumulation import merge, weighing_of
from keras_bertfam.optimizers.base import inner
from keras_bertfam.types import Model

# Watches aren't attributes of the models, which would save them.
_watches: Any = weakref.WeakKeyDictionary()


class StepWatch(keras.metrics.Metric):
    """Counts tokens and keeps the norm of the gradient. It doesn't appear in the logs.

    It is a metric, because a step may change metrics' variables and no file keeps them.

    Attributes:
        tokens: int variable. The tokens in all batches so far, without padding.
        places: int variable. The same count with padding.
        gradient_norm: float variable. The global norm of the last step's gradient,
            before clipping.
    """

    def __init__(self) -> None:
        super().__init__(name="step_watch")
        self.tokens = self.add_variable((), "zeros", dtype="int", name="tokens")
        self.places = self.add_variable((), "zeros", dtype="int", name="places")
        self.gradient_norm = self.add_variable(
            (), "zeros", dtype="float32", name="gradient_norm"
        )
        self._optimizer = None
        self._pending = None  # the norm in a step that JAX is tracing

    def update_state(self, x: Any) -> None:
        """Count the tokens of a batch's inputs."""
        for mask in _masks(x):
            mask = ops.cast(mask, self.tokens.dtype)
            self.tokens.assign_add(ops.sum(mask))
            self.places.assign_add(ops.cast(ops.size(mask), self.places.dtype))
        if self._pending is not None:
            (is_update, norm), self._pending = self._pending, None
            before = ops.convert_to_tensor(self.gradient_norm)
            self.gradient_norm.assign(ops.where(is_update, norm, before))

    def result(self) -> dict[str, Any]:
        return {}

    def reset_state(self) -> None:
        """Do nothing: callbacks read differences of the counts."""

    def watch(self, optimizer: keras.optimizers.Optimizer) -> bool:
        """Keep the norms of an optimizer; return whether the optimizer is a new one."""
        if self._optimizer is optimizer:
            return False
        self._optimizer = optimizer
        if keras.backend.backend() == "jax":
            self._watch_under_jax(optimizer)
            return True
        # The gradient that is clipped: summed over batches and replicas, without loss
        # scale.
        core = inner(optimizer)
        clip = core._clip_gradients

        def clip_watched(grads):
            share = _global_norm(grads) / distribution.num_replicas()
            self.gradient_norm.assign(
                share
            )  # replicas' values are summed when they are read
            return clip(grads)

        core._clip_gradients = clip_watched
        return True

    def _watch_under_jax(self, optimizer):
        # Under JAX, an optimizer's step changes only its own variables, and parts of it
        # are traced separately. Only its arguments can be kept.
        apply = optimizer.stateless_apply

        def apply_watched(optimizer_variables, grads, trainable_variables):
            pairs = zip(optimizer.variables, optimizer_variables, strict=True)
            values = {id(variable): value for variable, value in pairs}
            self._pending = _norm_of_update(optimizer, values, grads)
            return apply(optimizer_variables, grads, trainable_variables)

        optimizer.stateless_apply = apply_watched


def _norm_of_update(optimizer, values, grads):
    """Tell whether a batch ends a step, and give the norm of the step's gradient."""
    core = inner(optimizer)
    scale = core.loss_scale_factor or 1.0
    if core is not optimizer:
        scale = values[id(optimizer.dynamic_scale)]
    steps = core.gradient_accumulation_steps
    if not steps:
        return True, _global_norm(grads) / scale
    grads = [grad / scale for grad in grads]
    if weighing_of(core) is None:
        sums = [values[id(variable)] for variable in core._accumulated_gradients]
        grads = [g + s for g, s in zip(grads, sums, strict=True)]
    else:
        grads, _ = merge(core, grads, range(len(grads)), lambda v: values[id(v)])
    is_update = (values[id(core._iterations)] + 1) % steps == 0
    return is_update, _global_norm(grads) / steps


def _global_norm(grads):
    squares = [
        ops.sum(ops.square(ops.cast(ops.convert_to_tensor(grad), "float32")))
        for grad in grads
        if grad is not None
    ]
    return ops.sqrt(ops.sum(ops.stack(squares)))


def _masks(x):
    """Give the padding masks of a batch; without any, ones for its tokens."""
    leaves = [
        (path[-1] if path else "", leaf)
        for path, leaf in keras.tree.flatten_with_path(x)
        if leaf is not None
    ]
    masks = [leaf for name, leaf in leaves if "padding_mask" in str(name)]
    if masks:
        return masks
    return [ops.ones_like(leaf) for name, leaf in leaves if "token_ids" in str(name)]


def begin(task: Model) -> tuple[StepWatch, bool]:
    """Watch the steps of a task.

    Returns:
        A tuple of the watch, and whether the training step must be compiled anew for
        it.
    """
    is_new = task not in _watches
    if is_new:
        with distribution.scope_of(task):
            _watches[task] = StepWatch()
    watch = _watches[task]
    return watch, watch.watch(task.optimizer) or is_new


def watch_of(task: Model) -> StepWatch | None:
    """Give the watch of a task's steps, if there is one."""
    watch: StepWatch | None = _watches.get(task)
    return watch


def forget(task: Model) -> None:
    """End the watch of a task's steps."""
    _watches.pop(task, None)
