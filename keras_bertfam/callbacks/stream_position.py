"""Keep data at the same point of a run as the model."""

from typing import Any

import keras

from keras_bertfam.arguments import checked


@checked
class SetStreamPosition(keras.callbacks.Callback):
    """Tells the data which epoch, and which batch of it, is next.

    This library's tasks add one to every `fit()`. Each epoch then gets new masks, which
    depend only on the seed, the pass over the data and the batch. Without
    `steps_per_epoch` epoch `e` is pass `e`. With `steps_per_epoch` a pass may take
    several epochs of Keras; then only the first position is set.

    Args:
        position: `StreamPosition` of the data; `None` takes that of
            `model.preprocessor`, if there is one.
        steps_per_epoch: Int or `None`, as given to `fit()`.
        cardinality: Int, the number of batches in a pass, -1 for endless data and -2
            for unknown, as in `tf.data.Dataset.cardinality`.

    Attributes:
        batches: Int or `None`. The number of batches in an epoch if Keras doesn't know
            it. The progress bar shows it as the total.

    Example, for a `keras.Model` that isn't a task of this library:

    ```python
    from keras_bertfam.callbacks.stream_position import SetStreamPosition
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    task = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    preprocessor = task.preprocessor
    model = keras.Sequential([task])
    model.compile("adamw", keras_bertfam.tasks.MaskedCrossentropy())
    data = preprocessor.dataset(documents, batch_size=64)
    follow = SetStreamPosition(preprocessor.position)
    model.fit(data, epochs=3, callbacks=[follow])
    ```
    """

    def __init__(
        self,
        position: Any = None,
        steps_per_epoch: int | None = None,
        cardinality: int = -2,
    ) -> None:
        super().__init__()
        self.position = position
        self.steps_per_epoch = steps_per_epoch
        self.cardinality = cardinality
        self.batches: int | None = None
        # Whether the data has the batches of its preprocessor's dataset.
        self.keeps_batches = True
        self.is_cached = False
        self._point: Any = None  # the pass, and its batch with which the epoch began
        self._steps = 0  # batches of this epoch that are done

    def set_params(self, params: dict[str, Any]) -> None:
        # Keras gives one dict to all callbacks, and its progress bar gets it last.
        if params.get("steps") is None:
            params["steps"] = self.batches
        super().set_params(params)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._point = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps = 0
        if self._point is None or not self.steps_per_epoch:
            self._point = self._start_of(epoch)
            self._move(*self._point)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._steps = batch + 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        number, batch = self._point
        batch += self._steps
        goes_on = self.steps_per_epoch and self._steps >= self.steps_per_epoch
        goes_on = goes_on and not 0 <= self.cardinality <= batch
        self._point = (number, batch) if goes_on else (number + 1, 0)
        self._steps = 0

    def _start_of(self, epoch):
        if not self.steps_per_epoch or self.cardinality < 1:
            return epoch, 0
        epochs_per_pass = -(-self.cardinality // self.steps_per_epoch)
        number, epoch = divmod(epoch, epochs_per_pass)
        return number, epoch * self.steps_per_epoch

    def _data_position(self):
        if self.position is None:
            preprocessor = getattr(self.model, "preprocessor", None)
            self.position = getattr(preprocessor, "position", None)
        return self.position

    def _move(self, number, batch):
        self._set_pass = number
        position = self._data_position()
        if position is not None:
            position.set(number, batch)


@checked
def with_stream_position(
    callbacks: Any,
    data: Any,
    steps_per_epoch: int | None = None,
    position: Any = None,
    keeps_batches: bool = True,
    is_cached: bool = False,
) -> list[keras.callbacks.Callback]:
    """Add a callback that keeps the data's position to those of a `fit()`.

    Args:
        callbacks: A callback, a list of callbacks, or `None`.
        data: The training data of `fit()`.
        steps_per_epoch: Int or `None`, as given to `fit()`.
        position: The `StreamPosition` that the data reads, if it is known.
        keeps_batches, is_cached: See the functions of this name in
            `layers.data.pipelines`.

    Returns:
        A list of callbacks that ends with one `SetStreamPosition`, which knows the
        data.
    """
    callbacks = keras.tree.flatten(callbacks) if callbacks is not None else []
    setters = [c for c in callbacks if isinstance(c, SetStreamPosition)]
    if len(setters) > 1:
        raise ValueError(
            "`callbacks` may hold one `BackupAndResume` or `SetStreamPosition`. "
            f"Received: {setters}."
        )
    setters = setters or [SetStreamPosition()]
    # A backup at the end of an epoch has what the other callbacks have changed by then.
    others = [c for c in callbacks if not isinstance(c, SetStreamPosition)]
    callbacks = [*others, *setters]
    setters[0].steps_per_epoch = steps_per_epoch
    setters[0].keeps_batches = keeps_batches
    setters[0].is_cached = is_cached
    if position is not None:
        setters[0].position = position
    if hasattr(data, "cardinality"):
        setters[0].cardinality = int(data.cardinality())
    return callbacks


@checked
def show_total(callbacks: list[keras.callbacks.Callback], batches: int | None) -> None:
    """Tell the progress bar how many batches an epoch has, if Keras can't.

    Args:
        callbacks: What `with_stream_position` returned.
        batches: Int, or `None` if it isn't known.
    """
    for callback in callbacks:
        if isinstance(callback, SetStreamPosition):
            callback.batches = batches
