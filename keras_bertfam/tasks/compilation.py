"""Decide whether TensorFlow compiles a training step that Keras wouldn't compile.

With `jit_compile="auto"` Keras compiles under JAX and on accelerators. On CPUs, too,
compiling makes TensorFlow's step in float32 up to 1.5 times as fast. It takes some
seconds for each shape of batches. A step in 16 bits would become slower, because the
compiler multiplies them no faster than float32, and TensorFlow's own operations do.
"""

import time
from typing import Any

import keras

from keras_bertfam.tasks.inputs import print_line

# A compiled step of 4 x 256 tokens saves a third of a second; compiling takes ten.
LEAST_STEPS = 50


def saves_time(shapes: int | None, steps: int | None) -> bool:
    """Tell whether a run has enough steps for each shape of its batches.

    Args:
        shapes: int, the most shapes that the batches have; `None` for any number.
        steps: int, the steps of the whole training, resumed ones included; `None` if
            unknown.
    """
    return shapes is not None and (steps is None or steps >= LEAST_STEPS * shapes)


def preparation(compiles: bool) -> str:
    """Give the line that `fit()` prints before its first step."""
    if compiles:
        return (
            "Compiling the training step; compile(jit_compile=False) starts sooner "
            "but runs slower..."
        )
    return "Preparing the first step..."


class FirstStep(keras.callbacks.Callback):
    """Print what `fit()` waits for before its first step, and how long that took.

    Args:
        verbose: as in `fit()`.
    """

    def __init__(self, verbose: Any) -> None:
        super().__init__()
        self.verbose = verbose

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._began: float | None = time.perf_counter()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self._began is not None:
            took = time.perf_counter() - self._began
            self._began = None
            print_line(f"The first step took {took:.0f} s", self.verbose)
