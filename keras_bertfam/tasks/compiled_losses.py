"""Inspect losses in `compile()`: how batches are weighted, whether logits are read."""

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.optimizers import accumulation
from keras_bertfam.optimizers.accumulation import accumulates, batch_weighed
from keras_bertfam.tasks.losses import TokenAccuracy, WeightedMeanLoss
from keras_bertfam.types import Model


def weigh_batches(task: Model, loss: Any) -> bool:
    """Make a step of several batches, if there are such, equal to one of a large batch.

    Args:
        task: a `PretrainingTask` that was just compiled.
        loss: its losses.

    Returns:
        Whether its steps are to be those of `parts_of_loss`.
    """
    losses = [each for each in keras.tree.flatten(loss) if each is not None]
    # A user's loss may divide by any sum of weights: its batches count the same.
    known = all(isinstance(each, WeightedMeanLoss) for each in losses)
    if not (known and accumulates(task.optimizer)):
        return False
    with distribution.scope_of(task):
        accumulation.weigh_batches(task.optimizer, task.loss_counts)
        _weigh_losses(task._loss_tracker, task.loss_counts)
    return True


def _weigh_losses(tracker, parts):
    """Average the parts of the losses over batches by the batches' weights."""
    update, result, reset = tracker.update_state, tracker.result, tracker.reset_state
    totals = tracker.add_variable((parts,), "zeros", name="totals")
    weights = tracker.add_variable((parts,), "zeros", name="weights")

    def update_weighed(values, sample_weight=None):
        batch = batch_weighed()
        if batch is None:
            return update(values, sample_weight)
        weights.assign_add(batch[0])
        totals.assign_add(ops.multiply(*batch))
        return None

    def result_of_parts():
        return result() + ops.sum(ops.divide_no_nan(totals, weights))

    def reset_parts():
        reset()
        for variable in (totals, weights):
            variable.assign(ops.zeros(variable.shape))

    # The metric isn't replaced by another one: the model would then have both.
    tracker.update_state, tracker.result = update_weighed, result_of_parts
    tracker.reset_state = reset_parts


def scoring_of(task: Model, readers: Iterable[Any]) -> str | None:
    """Find what the losses and metrics of tokens read from vocabulary heads.

    Args:
        task: a `PretrainingTask`.
        readers: its losses and metrics, each as `compile()` takes them. A class that
            can read scores has `reads_scores = True`.

    Returns:
        `"scores"`; `"statistics"` if they also read statistics of the logits; `None` if
        one of them, or a method of a user's subclass, reads the logits themselves.
    """
    found = keras.tree.flatten([_of_tokens(task, reader) for reader in readers])
    found = [reader for reader in found if reader is not None]
    if not (_is_ours(task) and all(map(_reads_scores, found))):
        return None
    if not task.scores_tell_accuracy:
        if any(isinstance(reader, TokenAccuracy) for reader in found):
            return None
    names = ("z_loss", "label_smoothing")
    statistics = any(getattr(reader, name, 0) for reader in found for name in names)
    return "statistics" if statistics else "scores"


def call_takes_labels(task: Model) -> bool:
    """Tell whether `reads_labels` of a task holds for its `call`.

    A user's subclass with its own `call` must set `reads_labels` again.
    """
    cls = next(base for base in type(task).__mro__ if "call" in vars(base))
    known = _package(cls) == "keras_bertfam" or "reads_labels" in vars(cls)
    return bool(task.reads_labels) and known


def _is_ours(task):
    cls = type(task)
    methods = (cls.compute_loss, cls.own_loss, cls.compute_metrics)
    return {_package(method) for method in methods} <= {"keras", "keras_bertfam"}


def _package(part):
    return part.__module__.partition(".")[0]


def _of_tokens(task, readers):
    """Keep the losses or metrics of those outputs that are predicted tokens."""
    if not isinstance(readers, dict) or not isinstance(task.label_kind, dict):
        return readers
    kinds = task.label_kind
    return [r for name, r in readers.items() if kinds.get(name) == "token"]


def _reads_scores(reader):
    # The attribute must be the class's own: a subclass, such as a user's, counts as
    # reading logits unless it says otherwise.
    says_so = vars(type(reader)).get("reads_scores", False)
    return says_so and getattr(reader, "from_logits", True)
