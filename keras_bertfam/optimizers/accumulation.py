"""Make updates of several batches, each counted by its weight."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.optimizers.base import inner
from keras_bertfam.types import Tensor

_batch: contextvars.ContextVar[Any] = contextvars.ContextVar("batch", default=None)


@dataclasses.dataclass
class Weighing:
    """Hold an optimizer's sums over the batches of the current update.

    Attributes:
        weights: float variable `(parts,)`.
        means: for each part except the first, a list of variables: its mean gradients.
            The first part's mean is Keras's own sum without the others.
    """

    weights: keras.Variable
    means: list[list[keras.Variable]]


def accumulates(optimizer: keras.optimizers.Optimizer | None) -> bool:
    """Tell whether an update has several batches."""
    return bool(getattr(inner(optimizer), "gradient_accumulation_steps", None))


def weighing_of(optimizer: keras.optimizers.Optimizer) -> Weighing | None:
    """Give the `Weighing` that `weigh_batches` made for an optimizer, or `None`."""
    return getattr(inner(optimizer), "_weighing", None)


@checked
def weigh_batches(optimizer: keras.optimizers.Optimizer, parts: int = 1) -> None:
    """Make an update of several batches the mean over all their tokens.

    Keras takes the mean of the batches' gradients. Here each batch counts by its
    weight, which `weighed` sets: gradients 1 and 4 of batches with 30 and 10 tokens
    give `(30 * 1 + 10 * 4) / 40 = 1.75`, and not 2.5. A loss may have parts with
    weights of their own; then gradients have an axis of parts before the variable's
    axes. Keras divides its sums by the number of batches in the end. So they are made
    the sum of the parts' weighted means so far, times the number of batches.

    Args:
        optimizer: A `keras.optimizers.Optimizer` with `gradient_accumulation_steps`,
            or a `LossScaleOptimizer` around one. It gets one more variable, and
            variables for the gradients of each part except the first.
        parts: Int.

    Raises:
        ValueError: If the optimizer already weighs another number of parts.
    """
    core = inner(optimizer)
    known = weighing_of(core)
    if known is not None:
        if known.weights.shape[0] != parts:
            raise ValueError(
                "`optimizer` was compiled with a task whose loss has another number "
                "of divisors. Expected an optimizer that isn't compiled yet. "
                f"Received: {known.weights.shape[0]} in place of {parts}."
            )
        return
    weights = core.add_variable(
        (parts,), aggregation="only_first_replica", name="accumulated_weights"
    )
    core._weighing = Weighing(weights, [])
    # Keras has no public hooks for making accumulators, nor between gradients and their
    # sum.
    build, apply = core.build, core._backend_apply_gradients

    def add_parts(variables):
        for part in range(1, parts):
            name = f"gradient_accumulator_{part}"
            made = [core.add_variable_from_reference(v, name=name) for v in variables]
            core._weighing.means.append(made)

    def build_with_parts(variables):
        build(variables)
        add_parts(variables)

    def apply_weighed(grads, variables):
        indices = [core._get_variable_index(variable) for variable in variables]
        sums = [core._accumulated_gradients[index] for index in indices]
        merged, means = merge(core, grads, indices)
        done = ops.equal((core._iterations + 1) % core.gradient_accumulation_steps, 0)
        for part, new in zip(core._weighing.means, means, strict=True):
            variables_of_part = [part[index] for index in indices]
            changes = [
                ops.where(done, ops.zeros_like(x), x) - ops.convert_to_tensor(v)
                for x, v in zip(new, variables_of_part, strict=True)
            ]
            core._backend_increment_gradient_accumulators(changes, variables_of_part)
        total = ops.convert_to_tensor(weights) + weights_of_batch(core)
        weights.assign(ops.where(done, ops.zeros_like(total), total))
        changes = [
            x - ops.convert_to_tensor(v) for x, v in zip(merged, sums, strict=True)
        ]
        apply(changes, variables)

    core.build, core._backend_apply_gradients = build_with_parts, apply_weighed
    if core.built:
        add_parts(core._trainable_variables)


@contextlib.contextmanager
def weighed(weights: Tensor, losses: Tensor) -> Iterator[None]:
    """Set the weight of the batch in the step within this context; the default is 1.

    Args:
        weights: Float tensor `(parts,)`, the divisors of the loss's parts.
        losses: Float tensor `(parts,)`, the parts of the loss.
    """
    before = _batch.set((weights, losses))
    try:
        yield
    finally:
        _batch.reset(before)


def batch_weighed() -> tuple[Tensor, Tensor] | None:
    """Give the weights and losses that `weighed` has set; `None` outside of it."""
    return _batch.get()


@contextlib.contextmanager
def seen_by_threads(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Let other threads see what `weighed` has set in this one.

    With a loss scale Keras runs an update in new threads, one for each replica. The
    weights are sums over all replicas, so it doesn't matter whose they see.

    Args:
        optimizer: A `keras.optimizers.Optimizer`.
    """
    core = inner(optimizer)
    core._batch_weighed = batch_weighed()
    try:
        yield
    finally:
        core._batch_weighed = None


def weights_of_batch(optimizer: keras.optimizers.Optimizer) -> Tensor:
    """Give the weights set by `weighed`, ones outside of it, float32 `(parts,)`."""
    batch = batch_weighed() or getattr(inner(optimizer), "_batch_weighed", None)
    if batch is None:
        return ops.ones(inner(optimizer)._weighing.weights.shape)
    return ops.cast(batch[0], "float32")


def merge(
    core: keras.optimizers.Optimizer,
    grads: Sequence[Tensor],
    indices: Sequence[int],
    read: Callable[[Any], Tensor] = ops.convert_to_tensor,
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Add the gradients of one more batch to those that an update has accumulated.

    Args:
        core: An optimizer for which `weigh_batches` was called.
        grads: Gradients of variables, `(parts, ...)` if there are several parts.
        indices: The numbers of these variables.
        read: Function that gives a variable's value.

    Returns:
        A pair of the sums that Keras keeps, and the mean gradients of each part except
        the first.
    """
    weighing, steps = core._weighing, core.gradient_accumulation_steps
    before = read(weighing.weights)
    total = before + weights_of_batch(core)
    keep = ops.unstack(ops.divide_no_nan(before, total))
    share = ops.unstack(ops.divide_no_nan(total - before, total))
    sums: list[Tensor] = []
    means: list[list[Tensor]] = [[] for _ in weighing.means]
    for index, grad in zip(indices, grads, strict=True):
        others = [read(part[index]) for part in weighing.means]
        old = [read(core._accumulated_gradients[index]) / steps - sum(others), *others]
        new = [
            ops.cast(k, x.dtype) * x + ops.cast(s, g.dtype) * g
            for k, x, s, g in zip(
                keep, old, share, ops.unstack(grad) if others else [grad], strict=True
            )
        ]
        sums.append(steps * sum(new))
        for part, mean in zip(means, new[1:], strict=True):
            part.append(mean)
    return sums, means
