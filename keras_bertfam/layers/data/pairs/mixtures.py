"""Pairs of texts of several tasks; each pass over the data draws other pairs."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.types import TFDataset, TFTensor

_WRITTEN_AT_ONCE = 256


@dataclasses.dataclass(frozen=True)
class MixedTask:
    """A task of a mixture.

    Args:
        count: int. Number of examples.
        templates: int. Number of ways to write an example as a pair of texts.
        write: function of an example's and a template's number that gives the two
            texts.
        rate: float, not negative. How often the task is drawn, relative to the others.
    """

    count: int
    templates: int
    write: Callable[[int, int], tuple[str, str]]
    rate: float


class TaskMixture:
    """Pairs of texts of several tasks, drawn by their rates; see `datasets.mixture`.

    For each pair a task and one of its templates are drawn independently. Within a pass
    a task's examples come in random order, each once before any comes again. A pass is
    a function of a seed, so a run that was stopped goes on with the same pairs.

    Args:
        tasks: dict from names to `MixedTask`.
        length: int. Number of pairs of a pass.
    """

    def __init__(self, tasks: Mapping[str, MixedTask], length: int) -> None:
        self.tasks = dict(tasks)
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def rates(self) -> dict[str, float]:
        """dict: from names of tasks to their shares of the pairs."""
        total = sum(task.rate for task in self.tasks.values())
        return {name: task.rate / total for name, task in self.tasks.items()}

    def cardinality(self) -> int:
        """Count the pairs of a pass, as a `tf.data.Dataset` does."""
        return self.length

    def draw(self, *seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw the pairs of a pass.

        Args:
            *seed: ints.

        Returns:
            Three int64 arrays of shape `(length,)`: the numbers of the task, of its
            template, and of its example.
        """
        rng = np.random.default_rng([int(number) % 2**64 for number in seed])
        tasks = [*self.tasks.values()]
        limits = np.cumsum([task.rate for task in tasks])
        chosen = np.searchsorted(
            limits / limits[-1], rng.random(self.length), side="right"
        )
        template = rng.integers(np.array([task.templates for task in tasks])[chosen])
        example = np.zeros(self.length, np.int64)
        for number, task in enumerate(tasks):
            (places,) = np.nonzero(chosen == number)
            passes = -(-len(places) // task.count)
            orders = np.tile(np.arange(task.count), (passes, 1))
            example[places] = rng.permuted(orders, axis=1).ravel()[: len(places)]
        return chosen, template, example

    def write(
        self, chosen: np.ndarray, template: np.ndarray, example: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write the pairs that were drawn.

        Args:
            chosen, template, example: int arrays of one shape `(count,)`, see `draw`.

        Returns:
            Two arrays of bytes, inputs and targets.
        """
        tasks = [*self.tasks.values()]
        pairs = [
            tasks[k].write(int(row), int(way))
            for k, way, row in zip(chosen, template, example, strict=True)
        ]
        inputs, targets = zip(*pairs, strict=True)
        return _as_bytes(inputs), _as_bytes(targets)

    @as_written
    def pairs(self, seed: TFTensor) -> TFDataset:
        """Make the dataset of a pass. Works in a graph.

        Args:
            seed: int64 tensor of shape `(2,)`.

        Returns:
            A `tf.data.Dataset` of dicts of `encoder_text` and `decoder_text`.
        """
        drawn = tf.numpy_function(
            lambda seed: self.draw(*seed), [seed], [tf.int64] * 3, stateful=False
        )
        drawn = tuple(tf.ensure_shape(part, [self.length]) for part in drawn)

        def write(*numbers):
            texts = tf.numpy_function(
                self.write, numbers, [tf.string] * 2, stateful=False
            )
            texts = (tf.ensure_shape(part, [None]) for part in texts)
            return dict(zip(("encoder_text", "decoder_text"), texts, strict=True))

        rows = tf.data.Dataset.from_tensor_slices(drawn).batch(_WRITTEN_AT_ONCE)
        return rows.map(write, **PARALLEL).unbatch()


def _as_bytes(texts):
    return np.array([text.encode("utf-8") for text in texts], object)
