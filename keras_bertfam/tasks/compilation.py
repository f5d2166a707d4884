"""Whether TensorFlow compiles the training step where Keras leaves that off."""

import time
import warnings
from typing import Any

import keras

from keras_bertfam import distribution
from keras_bertfam.tasks.inputs import say
from keras_bertfam.types import Config, Mixin

# A compiled step of 4 x 256 spares a third of a second, and compiling takes ten.
LEAST_STEPS = 50


class CompiledSteps(Mixin):
    """Mixin of tasks that compile their training step by XLA if that pays.

    With `jit_compile="auto"` Keras does so under JAX and on accelerators. On CPUs
    TensorFlow's step gets up to 1.5 times as fast as well, after some seconds for each
    shape of batches. So it is compiled there if `fit()` makes 50 steps or more for each
    shape that there can be. Under a `tf.distribute` strategy XLA can't compile what
    replicas exchange.
    """

    jit_compile: Any

    def compile(self, *args: Any, **kwargs: Any) -> None:
        super().compile(*args, **kwargs)
        self._compiles_as_it_pays = kwargs.get("jit_compile", "auto") == "auto"
        self._compiles_step = False

    def get_compile_config(self) -> Config:
        config = super().get_compile_config()
        if not config:  # it isn't compiled
            return config
        # Keras writes what it made of "auto", which is for this backend and machine.
        return config | ({"jit_compile": "auto"} if self._compiles_as_it_pays else {})

    def make_train_function(self, force: bool = False) -> Any:
        usual = self.jit_compile
        with warnings.catch_warnings():
            # Nobody asked: with layers that can't be compiled Keras goes without.
            warnings.filterwarnings("ignore", "Model doesn't support `jit_compile")
            self.jit_compile = usual or self._compiles_step
        try:
            return super().make_train_function(force)
        finally:
            self.jit_compile = usual

    def choose_compilation(self, shapes: int | None, steps: int | None) -> None:
        """Decides whether the training step of the next `fit()` is compiled.

        Args:
            shapes: how many shapes the batches have at most; `None` if any number.
            steps: int, those of the whole training, resumed ones included; `None` if
                that isn't known.
        """
        pays = shapes is not None and (steps is None or steps >= LEAST_STEPS * shapes)
        left_off = not (self.jit_compile or self.run_eagerly)
        may = self._compiles_as_it_pays and distribution.may_compile_steps(self)
        compiles = left_off and may and pays
        if compiles != self._compiles_step:
            self._compiles_step = compiles
            self.train_function = None

    def preparation(self) -> str:
        """What a `fit()` says before its first step."""
        if self._compiles_step:
            return (
                "Compiling the training step; compile(jit_compile=False) begins sooner "
                "and goes on slower..."
            )
        return "Preparing the first step..."


class FirstStep(keras.callbacks.Callback):
    """Says what a `fit()` waits for before its first step, and how long that took.

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
            say(f"The first step took {took:.0f} s", self.verbose)
