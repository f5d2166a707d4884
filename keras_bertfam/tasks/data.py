"""What tasks do with the data that they are given."""

from typing import Any

import keras

from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.arrays import as_rows
from keras_bertfam.layers.data.pipelines import (
    checked_batch_size,
    ready_to_iterate,
    remember_count,
)
from keras_bertfam.layers.data.seeding import shuffled_batches
from keras_bertfam.tasks.failures import usable_after_errors
from keras_bertfam.tasks.inputs import (
    as_tensors,
    is_arrays,
    is_preprocessed,
    may_end,
    remember_shapes,
    yields_batches,
)
from keras_bertfam.tasks.ranges import check_given, checked
from keras_bertfam.types import Mixin


class DataTaken(Mixin):
    """Mixin of tasks: `evaluate()`, `predict()` and steps, of data that is checked."""

    @as_written
    def preprocess_samples(
        self, x: Any, y: Any = None, sample_weight: Any = None
    ) -> Any:
        if not is_preprocessed(x):
            data = super().preprocess_samples(x, y, sample_weight)
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        data = checked(self, x, y, sample_weight)
        return keras.utils.pack_x_y_sample_weight(*data)

    # KerasHub's versions of these take no dicts of targets.

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        data = self.preprocess_samples(x, y, sample_weight)
        return keras.Model.train_on_batch(self, *as_tensors(data), **kwargs)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        data = self.preprocess_samples(x, y, sample_weight)
        return keras.Model.test_on_batch(self, *as_tensors(data), **kwargs)

    def _rows(self, x, y=None, sample_weight=None):
        """Arrays as a dataset of their rows."""
        rows = as_rows(x, y, sample_weight)
        checked(self, x, y, sample_weight)
        return rows

    def _batched(self, data, batch_size, position=None):
        """Batches of rows: in order, or shuffled anew for each pass of a position."""
        if position is None:
            return ready_to_iterate(data.batch(batch_size))
        seed = getattr(self.preprocessor, "seed", 0)
        batches = ready_to_iterate(shuffled_batches(data, batch_size, seed, position))
        remember_shapes(batches, 1 + (len(data) % batch_size > 0))
        return remember_count(batches, -(-len(data) // batch_size))

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        check_given(self, x, y)
        if is_arrays(x):
            rows = self._rows(x, y, sample_weight)
            x = self._batched(rows, checked_batch_size(batch_size))
            y = batch_size = sample_weight = None
        kwargs |= {"batch_size": batch_size, "sample_weight": sample_weight}
        with usable_after_errors(self), may_end(kwargs.get("steps")):
            if yields_batches(x):
                return keras.Model.evaluate(self, x, y, **kwargs)
            return super().evaluate(x, y, **kwargs)

    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        check_given(self, x, labelled=False)
        if is_arrays(x):
            size, batch_size = checked_batch_size(batch_size), None
            x = self._batched(self._rows(x), size)
        with usable_after_errors(self), may_end(kwargs.get("steps")):
            if yields_batches(x):
                return keras.Model.predict(self, x, batch_size, **kwargs)
            return super().predict(x, batch_size, **kwargs)
