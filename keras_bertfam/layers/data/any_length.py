"""Preprocessors whose rows may be given another length afterwards."""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bertfam.layers.data.cut_texts import CutTexts, is_counting
from keras_bertfam.tokenizers.in_grain import PlainInGrain


class AnyLength(PlainInGrain):
    """Mixin of preprocessors: `sequence_length` can be set; cut texts are warned of.

    What has been made of the former length is made anew when it is needed next.
    """

    _length: int | None = None
    _cut_texts: CutTexts | None = None
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
        """Make a graph of a function, which is traced anew for another length.

        Called eagerly, it counts the texts that it cuts.
        """
        traced: dict[tuple[int, bool], Any] = {}

        def call(*args):
            with self.counted_if_eager():
                length = self.sequence_length
                if any(key[0] != length for key in traced):
                    traced.clear()
                key = (length, is_counting())
                if key not in traced:
                    traced[key] = tf.function(
                        function, reduce_retracing=True, autograph=False
                    )
                return traced[key](*args)

        return call

    def counted_if_eager(self) -> contextlib.AbstractContextManager:
        """Count the texts of a call, unless it is in a graph of others."""
        if tf.executing_eagerly() and not is_counting():
            return self.counted("calls")
        return contextlib.nullcontext()

    def counted(self, use: str, enough: int = 1) -> contextlib.AbstractContextManager:
        """Count texts that are cut meanwhile, see `CutTexts.counted`."""
        if self._cut_texts is None:
            self._cut_texts = CutTexts(self)
        return self._cut_texts.counted(self, use, enough)
