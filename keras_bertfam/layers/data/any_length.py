"""Preprocessors whose rows may be given another length afterwards."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bertfam.tokenizers.in_grain import PlainInGrain


class AnyLength(PlainInGrain):
    """Mixin of preprocessors: `sequence_length` can be set.

    What has been made of the former length is made anew when it is needed next.
    """

    _length: int | None = None
    _made: Any = None  # of the length
    tokenizer: Any

    @property
    def sequence_length(self) -> int:
        """int: the most tokens of a row, special ones included."""
        length: Any = self._length
        return length

    @sequence_length.setter
    def sequence_length(self, value: int) -> None:
        if self._length not in (None, value):
            self._check_arguments(sequence_length=value)
        self._length = value
        self._made = None

    def _check_arguments(self, **changed):
        """Raise what the constructor does with arguments in place of the own ones."""
        config = {**self.get_config(), "tokenizer": self.tokenizer, **changed}
        config = {k: v for k, v in config.items() if k not in ("config_file", "dtype")}
        type(self)(**config)

    def in_graph(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a graph of a function, which is traced anew for another length."""
        traced: dict[int, Any] = {}

        def call(*args):
            length = self.sequence_length
            if length not in traced:
                traced.clear()
                traced[length] = tf.function(
                    function, reduce_retracing=True, autograph=False
                )
            return traced[length](*args)

        return call
