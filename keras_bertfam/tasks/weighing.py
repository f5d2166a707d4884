"""Updates of several batches, by what the parts of their losses are divided by."""

from typing import Any

import keras
from keras import ops

from keras_bertfam import distribution, optimizers
from keras_bertfam.tasks.losses import WeightedMeanLoss
from keras_bertfam.tasks.parts_of_loss import STEPS
from keras_bertfam.types import Mixin


class WeighedBatches(Mixin):
    """Mixin of tasks whose updates of several batches are those of one large batch.

    Batches count by what `distribution.global_mean` divides their losses by. Where a
    loss divides its parts by different numbers, as of masked tokens and of pairs, each
    part has its gradient, which costs a pass backwards.
    """

    @property
    def loss_counts(self) -> int:
        """How many tensors the loss divides by; with 1, the first of them counts."""
        return 1

    def compile(self, *args: Any, **kwargs: Any) -> None:
        super().compile(*args, **kwargs)
        losses = [x for x in keras.tree.flatten(kwargs.get("loss")) if x is not None]
        # What a loss of the user's divides by isn't known: there batches are alike.
        known = all(isinstance(x, WeightedMeanLoss) for x in losses)
        self._weighs_batches = known and optimizers.accumulates(self.optimizer)
        if self._weighs_batches:
            with distribution.scope_of(self):
                optimizers.weigh_batches(self.optimizer, self.loss_counts)
                _weigh_losses(self._loss_tracker, self.loss_counts)


class StepOfParts(Mixin):
    """Mixin that gives `WeighedBatches` its step, in place of Keras's own.

    It comes after all other mixins that have a step.
    """

    def train_step(self, *args: Any) -> Any:
        if not self._weighs_batches:
            return super().train_step(*args)
        return STEPS[keras.backend.backend()](self, *args)


def _weigh_losses(tracker, parts):
    """Makes the mean of the batches' losses that of their parts, by what they weigh."""
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
