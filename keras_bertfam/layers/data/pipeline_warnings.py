"""Warnings of what pipelines count: texts that are cut, tokens that aren't masked."""

import contextlib
import contextvars
import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.pipelines import call_by_name, register_by_name
from keras_bertfam.types import TFTensor

# After so many texts of a stream, the share of those cut is known well enough.
_ENOUGH_TEXTS = 1000
_owners = itertools.count()


class CutTextCounter:
    """A counter of the texts that a preprocessor cuts, whoever cuts them.

    What cuts texts calls `count_cut`. That counts in eager calls and in the pipelines
    of `dataset()` and `predict()` only: graphs of others, such as a SavedModel's, can't
    call Python.

    Args:
        owner: the preprocessor.
    """

    def __init__(self, owner: Any) -> None:
        self.name = f"{type(owner).__name__} {next(_owners)}"

    @contextlib.contextmanager
    def counted(self, owner: Any, use: str, enough: int = 1) -> Iterator[None]:
        """Count the texts that are cut by what is traced, or run, meanwhile.

        Args:
            owner: the preprocessor.
            use: string, what the texts are read for. There is a warning for each use.
            enough: int. After how many texts there is a warning.
        """
        token = _counting.set(_Counting(owner, f"{self.name} {use}", enough))
        try:
            yield
        finally:
            _counting.reset(token)


@dataclasses.dataclass(frozen=True)
class _Counting:
    owner: Any
    name: str
    enough: int


_counting: contextvars.ContextVar[_Counting | None] = contextvars.ContextVar(
    "counting", default=None
)


def is_counting() -> bool:
    """Tell whether `count_cut` counts here."""
    return _counting.get() is not None


def enough_of(examples: Any) -> int:
    """Choose after how many texts of a dataset to warn."""
    known = int(examples.cardinality())
    return min(known, _ENOUGH_TEXTS) if known > 0 else 1


def count_cut(
    over: TFTensor, what: str = "texts", length: str = "sequence_length"
) -> None:
    """Count texts, and those of them that lose tokens. Works in a graph.

    Args:
        over: bool tensor, whether each text is longer than there is room for.
        what: string, what they are.
        length: string, the argument of the preprocessor that says the room.
    """
    counting = _counting.get()
    if counting is None:
        return
    owner = counting.owner
    said = (
        f"{type(owner).__name__} cut {{}} of {{}} {what} to what fits into {length}="
        f"{getattr(owner, length)}: the rest isn't read."
    )
    cut, of = tf.reduce_sum(tf.cast(over, tf.int32)), tf.size(over)
    inputs = [f"{counting.name} {what}", said, counting.enough, cut, of]
    call_by_name(
        _WARN_OF_CUTS, [tf.convert_to_tensor(value) for value in inputs], [tf.bool]
    )


@dataclasses.dataclass
class _CutCounts:
    cut: int = 0
    of: int = 0
    warned: bool = False


_cut_counts: dict[bytes, _CutCounts] = {}


def _warn_of_cuts(name, said, enough, cut, of):
    counts = _cut_counts.setdefault(name, _CutCounts())
    counts.cut += int(cut)
    counts.of += int(of)
    if counts.cut and counts.of >= enough and not counts.warned:
        counts.warned = True
        text = said.decode().format(f"{counts.cut:,}", f"{counts.of:,}")
        warnings.warn(text, stacklevel=2)
    return np.True_


_WARN_OF_CUTS = register_by_name(_warn_of_cuts)


# Of so many tokens that were asked for, too few masks are no accident.
_ENOUGH_TOKENS = 100
_streams = itertools.count()


class MaskCounter:
    """A counter of the masks of a stream of batches, where it is made, in `tf.data`.

    So it is the same for each backend, and in compiled steps. Only batches with fewer
    than half the masks leave the graph: others cost nothing.

    Args:
        strategy: what selects tokens, as its user has named it.
    """

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.stream = f"stream {next(_streams)}"

    def count(self, asked: TFTensor, masked: TFTensor) -> None:
        """Count masks; warn once of a stream with too few, and of batches without any.

        Warn of the latter at the first, the tenth, the hundredth and so on. A call
        outside of a graph is no part of a stream, and warns of nothing.

        Args:
            asked: int32 scalar. How many tokens of a batch should be masked.
            masked: int32 scalar. How many are.
        """
        if tf.executing_eagerly():
            return
        inputs = [tf.constant(self.stream), tf.constant(self.strategy), asked, masked]
        tf.cond(
            (2 * masked < asked) | (masked == 0),
            lambda: call_by_name(_WARN_OF_MASKS, inputs, [tf.bool])[0],
            lambda: False,
        )


class _MaskCounts:
    def __init__(self):
        self.asked = self.masked = self.empty = 0
        self.warned = False


_mask_counts: dict[bytes, _MaskCounts] = {}


def _warn_of_masks(stream, strategy, asked, masked):
    counts = _mask_counts.setdefault(stream, _MaskCounts())
    counts.asked += int(asked)
    counts.masked += int(masked)
    counts.empty += not masked
    name = strategy.decode()
    if not masked and math.log10(counts.empty).is_integer():
        warnings.warn(
            f"A batch has no masked token, and teaches nothing: {name} selected none, "
            f"where the rate asks for {asked}. There were {counts.empty} such batches.",
            stacklevel=2,
        )
    if not counts.warned and counts.asked >= _ENOUGH_TOKENS:
        counts.warned = True
        warnings.warn(
            f"Batches have fewer than half of the masks that were asked for: {name} "
            f"selected {counts.masked} of {counts.asked} tokens in them. Rare spans "
            'and words of many tokens do that; `strategy="tokens"` doesn\'t.',
            stacklevel=2,
        )
    return np.True_


_WARN_OF_MASKS = register_by_name(_warn_of_masks)
