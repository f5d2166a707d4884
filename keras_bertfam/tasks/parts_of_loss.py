"""Make training steps that know the parts of a loss and the divisor of each.

A part is everything in a loss that is divided by the same tensor. Losses are sums of
means, so a part is found as the gradient of the loss with respect to a factor of its
means. Terms that aren't means, such as a penalty on weights, belong to the first part.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.optimizers.accumulation import seen_by_threads, weighed
from keras_bertfam.types import Model, Tensor


def _under_tensorflow(model: Model, data: Any) -> dict[str, Tensor]:
    import tensorflow as tf

    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    variables, several = model.trainable_weights, model.loss_counts > 1
    factors = tf.ones([model.loss_counts]) if several else None
    with tf.GradientTape(persistent=several) as tape:
        y_pred = model(x, training=True)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            if several:
                inner.watch(factors)
            with distribution.means_of_loss(factors) as means:
                loss = model.compute_loss(x, y, y_pred, sample_weight, training=True)
        parts = tf.unstack(inner.gradient(loss, factors))[1:] if several else []
        scaled = [model.optimizer.scale_loss(each) for each in (loss, *parts)]
    grads = [tape.gradient(each, variables) for each in scaled]
    with weighed(*_weights_and_losses(model, means, loss, parts)):
        model._loss_tracker.update_state(loss)
        with seen_by_threads(model.optimizer):
            model.optimizer.apply(_stacked(grads), variables)
    return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def _under_torch(model: Model, data: Any) -> dict[str, Tensor]:
    import torch

    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred = model(x, training=True)
    variables, several = model.trainable_weights[:], model.loss_counts > 1
    factors: Any = ops.ones((model.loss_counts,)).requires_grad_() if several else None
    with distribution.means_of_loss(factors) as means:
        loss = model.compute_loss(x, y, y_pred, sample_weight, training=True)
    parts = []
    if several:
        (by_factor,) = torch.autograd.grad(loss, factors, create_graph=True)
        parts = [*by_factor.unbind()[1:]]
    values = [variable.value for variable in variables]
    grads = []
    for number, each in enumerate((loss, *parts), 1):
        scaled, keep = model.optimizer.scale_loss(each), number <= len(parts)
        grads.append(
            torch.autograd.grad(scaled, values, retain_graph=keep, allow_unused=True)
        )
    loss, parts = loss.detach(), [part.detach() for part in parts]
    with (
        torch.no_grad(),
        weighed(*_weights_and_losses(model, means, loss, parts)),
    ):
        model._loss_tracker.update_state(loss)
        model.optimizer.apply(_stacked(grads), variables)
    return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def _under_jax(model: Model, state: Any, data: Any) -> tuple[dict[str, Tensor], Any]:
    import jax

    trainable, other, of_optimizer, of_metrics = state
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    several = model.loss_counts > 1

    def scaled_loss(factors, values):
        with distribution.means_of_loss(factors if several else None) as means:
            scaled, (loss, *rest) = model.compute_loss_and_updates(
                values,
                other,
                of_metrics,
                x,
                y,
                sample_weight,
                training=True,
                optimizer_variables=of_optimizer,
            )
        told = _weights_and_losses(model, means, loss, [])
        return scaled, (loss, told[0], rest)

    def parts_of(values):
        if not several:
            scaled, aux = scaled_loss(None, values)
            return [scaled], aux
        factors = ops.ones((model.loss_counts,))
        by_factor = jax.value_and_grad(scaled_loss, has_aux=True)
        (scaled, aux), parts = by_factor(factors, values)
        return [scaled, *ops.unstack(parts)[1:]], aux

    scaled, backwards, aux = jax.vjp(parts_of, trainable, has_aux=True)
    loss, weights, (y_pred, other, of_metrics) = aux
    one_of = ops.eye(len(scaled), dtype=scaled[0].dtype)
    grads = [backwards([*one])[0] for one in one_of]
    pairs = list(zip(model.optimizer.variables, of_optimizer, strict=True))
    with keras.StatelessScope(pairs):
        scale = model.optimizer.scale_loss(ops.ones(()))
    parts = [part / scale for part in scaled[1:]]
    losses = ops.stack([loss - sum(parts), *parts])
    with weighed(weights, losses):
        trainable, of_optimizer = model.optimizer.stateless_apply(
            of_optimizer, _stacked(grads), trainable
        )
        logs, of_metrics = model._update_metrics_variables(
            of_metrics, loss, x, y, y_pred, sample_weight
        )
    return logs, (trainable, other, of_optimizer, of_metrics)


STEPS: dict[str, Callable[..., Any]] = {
    "tensorflow": _under_tensorflow,
    "torch": _under_torch,
    "jax": _under_jax,
}


def _weights_and_losses(model, means, loss, parts):
    """Give the weights of a loss's parts over all replicas, and the parts."""
    # A loss without a divisor counts all batches the same.
    weights = [ops.cast(x, "float32") for x in means.weights] or [ops.ones(())]
    weights = weights[: model.loss_counts]
    weights += [ops.zeros(())] * (model.loss_counts - len(weights))
    losses = ops.stack([loss - sum(parts), *parts]) * distribution.num_replicas()
    return distribution.global_sum(ops.stack(weights)), losses


def _stacked(grads):
    """Stack the gradients of parts, `(parts, ...)` if there are several, or `None`.

    Args:
        grads: lists of the gradients of the whole loss, and of each part except the
            first.
    """
    if len(grads) == 1:
        return grads[0]
    return [_of_parts(*each) for each in zip(*grads, strict=True)]


def _of_parts(whole, *rest):
    if whole is None:
        return None
    whole = ops.convert_to_tensor(whole)
    rest = [ops.zeros_like(whole) if x is None else x for x in rest]
    return ops.stack([whole - sum(rest), *rest])
