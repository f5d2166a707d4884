"""Measure how much a model needs each of its attention heads."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.analysis.gradients import gradient_of
from keras_bertfam.analysis.word_states import backbone_of
from keras_bertfam.arguments import check_one_of, checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.attention.stack_heads import StackHeads
from keras_bertfam.types import Model

METHODS = ("gradient", "leave_one_out")


@checked
def head_importance(
    model: Model,
    data: Any,
    method: str = "gradient",
    metric: str = "loss",
    *,
    normalize: bool = True,
    batch_size: int = 32,
) -> np.ndarray:
    """Measure how much a model's loss, or another score, depends on each head.

    With `"gradient"`, the importance is the mean over examples of the absolute gradient
    of the loss with respect to a factor of the head's output. It takes one pass over
    the data. With `"leave_one_out"`, it is the amount by which the score gets worse
    without the head. That takes one pass for each head. A head that the loss doesn't
    depend on has importance 0.

    Args:
        model: a compiled task of this library whose backbone is a single stack of
            layers: of any family except BART, T5 and ELMo.
        data: for a task with a preprocessor, a tuple of the data of `fit()`: `(x, y)`
            or `(x, y, sample_weight)`. Or batches, such as a `tf.data.Dataset`. Each
            row counts as an example, so rows shouldn't be packed.
        method: `"gradient"` or `"leave_one_out"`.
        metric: the score for `"leave_one_out"`: `"loss"`, whose rise is the importance,
            or the name of a compiled metric such as `"accuracy"`, whose fall is the
            importance.
        normalize: bool. Whether the gradients of each layer are divided by the root of
            the sum of their squares, as in the paper. It makes layers comparable.
        batch_size: int. Examples in a batch, if `data` is a tuple.

    Returns:
        float32 array `(num_layers, num_heads)`; pruned heads have 0.

    Raises:
        ValueError: for another kind of model, one that isn't compiled, an unknown
            `method` or `metric`, or no data.

    Reference: [Michel et al., 2019](https://arxiv.org/abs/1905.10650), sections 2.3,
    3.2 and 4.1.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=["negative", "positive"])
    importance = keras_bertfam.analysis.head_importance(
        model, (["the cat sat", "a dog"], ["positive", "negative"]))
    importance.shape  # (num_layers, num_heads)
    ```
    """
    stack = trunk_of(model)
    check_one_of("method", method, METHODS)
    batches = labelled_batches(model, data, batch_size)
    if method == "gradient":
        _check_metric(model, stack, batches, metric)
        found = _by_gradient(model, stack, batches)
        if normalize:
            found /= np.sqrt(np.sum(found**2, axis=1, keepdims=True)) + 1e-20
        return found.astype("float32")
    whole = score(model, stack, batches, np.ones(_shape(stack)), metric)
    found = np.zeros(_shape(stack))
    for layer, head in np.ndindex(*found.shape):
        if head in stack.heads_of(layer):
            mask = np.ones_like(found)
            mask[layer, head] = 0
            found[layer, head] = score(model, stack, batches, mask, metric)
            found[layer, head] -= whole
    return (found if metric == "loss" else -found).astype("float32")


def _check_metric(model, stack, batches, metric):
    """Raise a `ValueError` for a metric that isn't compiled, also if it isn't read."""
    if metric != "loss":
        score(model, stack, batches[:1], np.ones(_shape(stack)), metric)


def trunk_of(model: Model) -> StackHeads:
    """Give the stack of layers of a task's backbone, or of a backbone.

    Raises:
        ValueError: for a model with more than one stack.
    """
    backbone = backbone_of(model)
    stack = getattr(backbone, "encoder", None)
    if not isinstance(stack, StackHeads):
        raise ValueError(
            "`model` must have one stack of layers, as all families except BART, T5 "
            f"and ELMo have. Received: {type(model).__name__} of "
            f"{type(backbone).__name__}."
        )
    return stack


def labelled_batches(model: Model, data: Any, batch_size: int) -> list[Any]:
    """List batches of `(x, y, sample_weight)` as arrays.

    Raises:
        ValueError: for a model that isn't compiled, or data that isn't batches of rows
            with labels.
    """
    if not getattr(model, "compiled", False):
        raise ValueError(
            "`model` must be compiled, so that it has a loss and metrics. Received: "
            f"{type(model).__name__} that isn't."
        )
    if isinstance(data, tuple) and getattr(model, "preprocessor", None) is not None:
        data = model.preprocessor.dataset(data, batch_size, training=False)
    batches = []
    for batch in data if isinstance(data, Iterable) else ():
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        if y is None or not isinstance(x, dict) or "token_ids" not in x:
            raise ValueError(
                "`data` must be batches of a dict with `token_ids`, and labels. "
                f"Received: {sorted(x) if isinstance(x, dict) else type(x).__name__}"
                f"{'' if y is not None else ', without labels'}."
            )
        parts = (x, y, weights)
        batches.append([keras.tree.map_structure(_as_array, part) for part in parts])
    if not batches:
        raise ValueError(f"`data` must have a batch. Received: {data!r}.")
    if not any(_examples(model, x, weights) for x, _, weights in batches):
        raise ValueError("`data` must have a weight above 0. Received: none.")
    return batches


@without_gradients
def score(
    model: Model, stack: StackHeads, batches: Sequence[Any], mask: Any, metric: str
) -> float:
    """Compute the mean loss, or a compiled metric, of a model with masked heads.

    Args:
        model: a compiled task.
        stack: the result of `trunk_of`.
        batches: the result of `labelled_batches`.
        mask: array `(num_layers, num_heads)`.
        metric: str.
    """
    losses, counts, found = [], [], {}
    mask = ops.convert_to_tensor(mask, "float32")
    model.reset_metrics()
    for x, y, weights in batches:
        with stack.masked_heads(mask):
            y_pred = model(x, training=False)
            own = _of_examples(weights, len(x["token_ids"]))
            loss = model.compute_loss(x, y, y_pred, own, training=False)
        losses.append(float(ops.convert_to_numpy(loss)))
        counts.append(_examples(model, x, weights))
        if metric != "loss":
            found = model.compute_metrics(x, y, y_pred, weights)
    model.reset_metrics()
    found = {**found, "loss": np.average(losses, weights=counts)}
    if metric not in found:
        raise ValueError(
            f"`metric` must be one of {sorted(found)}. Received: {metric!r}."
        )
    return float(ops.convert_to_numpy(found[metric]))


def _by_gradient(model, stack, batches):
    """Average absolute gradients of heads' factors: `(num_layers, num_heads)`."""

    def loss(mask, x, y, weights):
        with stack.masked_heads(mask):
            y_pred = model(x, training=False)
        return model.compute_loss(x, y, y_pred, weights, training=False)

    gradient, total, count = gradient_of(loss, model), 0.0, 0.0
    layers, heads = _shape(stack)
    if not any(map(stack.heads_of, range(layers))):  # all are pruned
        return np.zeros((layers, heads))
    for x, y, weights in batches:
        # One factor for each row gives each example its own gradient.
        groups = x["token_ids"].shape[:-1]
        mask = ops.ones((layers, int(np.prod(groups)), heads), "float32")
        own = _of_examples(weights, groups[0])
        slopes = ops.convert_to_numpy(gradient(mask, x, y, own))
        # An example with several rows, as in multiple choice, is their sum.
        slopes = slopes.reshape(layers, groups[0], -1, heads).sum(axis=2)
        examples = _examples(model, x, weights)
        # The loss is a mean over the batch: an example's share is its loss divided by
        # their number.
        total += examples * np.abs(slopes.astype("float64")).sum(axis=1)
        count += examples
    return total / count


def _shape(stack):
    return stack.num_layers, stack.num_heads


def _examples(model, x, weights):
    """Count the examples of a batch: add up their weights, if each has one.

    The loss of a batch is divided by the same sum. Losses of Keras are mostly divided
    by the number of rows. If tokens have weights, the examples are counted that have
    one above 0.
    """
    rows = len(x["token_ids"])
    losses = [loss for loss in keras.tree.flatten(model.loss) if loss is not None]
    by_weights = (None, "mean_with_sample_weight")  # `None` is this library's
    if not all(getattr(loss, "reduction", "") in by_weights for loss in losses):
        return rows
    if weights is None or isinstance(weights, dict):
        return rows
    if np.size(weights) == rows:
        return float(np.sum(weights))
    return int(np.any(np.reshape(weights, (rows, -1)), axis=1).sum())


def _of_examples(weights, rows):
    """Scale weights of tokens so that each example's loss is a mean of its own.

    Otherwise the loss of a batch is a mean over its tokens, and depends on which
    examples share it.
    """
    if weights is None or isinstance(weights, dict) or np.size(weights) == rows:
        return weights
    each = np.reshape(weights, (rows, -1)).astype("float32")
    each = each / np.maximum(each.sum(axis=1, keepdims=True), 1e-9)
    return each.reshape(np.shape(weights))


def _as_array(value):
    return None if value is None else np.asarray(value)
