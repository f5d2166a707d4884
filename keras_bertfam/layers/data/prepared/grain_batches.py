"""Prepared corpora as datasets of Grain, with the same batches as in `tf.data`."""

import threading
from typing import Any

import grain
import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus, batch_maker
from keras_bertfam.layers.data.seeding import StreamPosition

_LOCK = threading.Lock()


class GrainSource(grain.MapDataset):
    """The batches of a prepared corpus by their numbers, pass after pass.

    Element `i` is batch `i % len(self)` of pass `i // len(self)`. Grain numbers the
    elements of repeated data in the same way, so `source.repeat(3)` has the first three
    passes. Elements are tuples and dicts of NumPy arrays.

    Args:
        preprocessor: a preprocessor of pre-training.
        corpus: `TokenCorpus`.
        options: `BatchOptions`.
    """

    def __init__(self, preprocessor: Any, corpus: TokenCorpus, options: Any) -> None:
        super().__init__()
        self._arguments = (preprocessor, corpus, options)
        self._made: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": None}  # graphs stay in their process

    def _making(self):
        with _LOCK:  # Grain's threads would trace a graph each
            if self._made is None:
                preprocessor, corpus, options = self._arguments
                rows, corrupt = preprocessor.parts()[0], preprocessor.corrupt
                make, count = batch_maker(
                    corpus, rows, options, preprocessor.seed, corrupt
                )
                number = tf.TensorSpec([], tf.int64)
                graph = tf.function(make, autograph=False)
                self._made = graph.get_concrete_function(number, number), count
        return self._made

    def __len__(self) -> int:
        count: int = self._making()[1]
        return count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        make, count = self._making()
        _, corpus, options = self._arguments
        epoch, batch = divmod(int(index), count)
        if corpus.epoch is not None:
            epoch = corpus.epoch
        elif not options.training:
            epoch = 0
        with tf.device("CPU:0"):
            made = make(tf.constant(epoch, tf.int64), tf.constant(batch, tf.int64))
        return keras.tree.map_structure(np.asarray, made)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self._arguments[1].folder})"


class GrainPasses(grain.IterDataset):
    """Passes over a prepared corpus; a `StreamPosition` says where each begins.

    Args:
        source: `GrainSource`.
        position: `StreamPosition`, or `None` for the first pass each time.

    Attributes:
        source: the `GrainSource`, which gives any batch by its number. Worker processes
            of Grain need it.
    """

    def __init__(self, source: GrainSource, position: StreamPosition | None) -> None:
        super().__init__()
        self.source = source
        self.position = position

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> "_Pass":
        return _Pass(self.source, self.position)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.source})"


class _Pass(grain.DatasetIterator):
    """One pass. Its state is the number of the next batch since the first pass."""

    def __init__(self, source, position):
        super().__init__()
        self._source = source
        self._position = position
        self._next = self._end = None

    def _begin(self):
        if self._next is None:  # at the first batch, as in `tf.data`
            epoch = batch = 0
            if self._position is not None:
                epoch, batch = map(int, self._position.begin_pass())
            self._go_to(epoch * len(self._source) + batch)

    def _go_to(self, number):
        count = len(self._source)
        self._next, self._end = number, (number // count + 1) * count

    def __next__(self):
        self._begin()
        if self._next >= self._end:
            raise StopIteration
        found = self._source[self._next]
        self._next += 1
        return found

    def get_state(self) -> dict[str, int]:
        self._begin()
        return {"next_index": self._next, "end_index": self._end}

    def set_state(self, state: dict[str, int]) -> None:
        self._next, self._end = state["next_index"], state["end_index"]
        if self._position is not None:
            self._position.set((self._end - 1) // len(self._source) + 1)
