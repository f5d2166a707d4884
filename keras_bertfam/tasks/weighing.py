"""Updates of several batches, by what the loss of each is divided by."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution, optimizers
from keras_bertfam.tasks.losses import WeightedMeanLoss
from keras_bertfam.types import Mixin, Tensor


class WeighedBatches(Mixin):
    """Mixin of tasks whose updates of several batches are those of one large batch.

    Attributes:
        counted_output: name of the output whose weights count, where there are several.
            The losses of others are means of batches by these weights.
    """

    counted_output: str | None = None

    def batch_weight(self, x: Any, y: Any, sample_weight: Any) -> Tensor:
        """What the mean loss of a batch is divided by, from its data alone.

        A task whose own loss counts something else says so here.

        Args:
            x: inputs of a batch.
            y: labels, or `None`.
            sample_weight: weights of labels, or `None`.

        Returns:
            Float scalar: the sum of the weights, the number of labels without any, and
            of rows without labels.
        """
        y, sample_weight = self._counted(y), self._counted(sample_weight)
        if sample_weight is not None:
            return ops.sum(ops.cast(sample_weight, "float32"))
        if y is not None:
            return _size(y)
        return _size(x, rows=True)

    def _counted(self, values):
        if isinstance(values, dict) and self.counted_output in values:
            values = values[self.counted_output]
        leaves = keras.tree.flatten(values)
        return leaves[0] if leaves else None

    def compile(self, *args: Any, **kwargs: Any) -> None:
        super().compile(*args, **kwargs)
        losses = [x for x in keras.tree.flatten(kwargs.get("loss")) if x is not None]
        # What a loss of the user's divides by isn't known: there batches are alike.
        known = all(isinstance(x, WeightedMeanLoss) for x in losses)
        self._weighs_batches = known and optimizers.accumulates(self.optimizer)
        if self._weighs_batches:
            with distribution.scope_of(self):
                optimizers.weigh_batches(self.optimizer)
                _weigh_losses(self._loss_tracker, self.optimizer)

    def train_step(self, *args: Any) -> Any:
        if not self._weighs_batches:
            return super().train_step(*args)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(args[-1])
        weight = distribution.global_sum(self.batch_weight(x, y, sample_weight))
        with optimizers.weighed(self.optimizer, weight):
            return super().train_step(*args)


def _weigh_losses(tracker, optimizer):
    """Makes the mean of the batches' losses one by what they weigh in their update."""
    update = tracker.update_state

    def update_weighed(values, sample_weight=None):
        weight = optimizers.weight_of_batch(optimizer)
        return update(values, sample_weight if weight is None else weight)

    # Not another metric in its place: the model would have both.
    tracker.update_state = update_weighed


def _size(values, rows=False):
    shape = ops.shape(keras.tree.flatten(values)[0])[: 1 if rows else None]
    if all(isinstance(size, int) for size in shape):
        return ops.convert_to_tensor(np.prod(shape, dtype="float32"))
    return ops.cast(ops.prod(ops.stack(shape)), "float32")
