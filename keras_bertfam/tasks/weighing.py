"""Updates of several batches, by what the parts of their losses are divided by."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution, optimizers
from keras_bertfam.tasks.losses import WeightedMeanLoss
from keras_bertfam.types import Model


def weigh_batches(task: Model, loss: Any) -> bool:
    """Make updates of several batches those of one large batch, if there are such.

    Args:
        task: a `PretrainingTask` that was just compiled.
        loss: its losses.

    Returns:
        Whether its steps are to be those of `parts_of_loss`.
    """
    losses = [each for each in keras.tree.flatten(loss) if each is not None]
    # What a loss of the user's divides by isn't known: there batches are alike.
    known = all(isinstance(each, WeightedMeanLoss) for each in losses)
    if not (known and optimizers.accumulates(task.optimizer)):
        return False
    with distribution.scope_of(task):
        optimizers.weigh_batches(task.optimizer, task.loss_counts)
        _weigh_losses(task._loss_tracker, task.loss_counts)
    return True


def _weigh_losses(tracker, parts):
    """Make the mean of the batches' losses that of their parts, by what they weigh."""
    update, result, reset = tracker.update_state, tracker.result, tracker.reset_state
    totals = tracker.add_variable((parts,), "zeros", name="totals")
    weights = tracker.add_variable((parts,), "zeros", name="weights")

    def update_weighed(values, sample_weight=None):
        batch = optimizers.batch_weighed()
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

    # Not another metric in its place: the model would have both.
    tracker.update_state, tracker.result = update_weighed, result_of_parts
    tracker.reset_state = reset_parts
