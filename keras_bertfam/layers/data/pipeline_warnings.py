"""Warnings of pipelines: of texts that are cut, and of too few masked tokens."""

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

# After this many texts of a stream the share of cut texts is known well enough.
_ENOUGH_TEXTS = 1000
_owners = itertools.count()


class CutTextCounter:
    """A counter of the texts that a preprocessor cuts.

    Functions that cut texts call `count_cut`. It counts in eager calls and in the
    pipelines of `dataset()` and `predict()`. In other graphs, such as a SavedModel's,
    it does nothing, since they can't call Python.

    Args:
        owner: the preprocessor.
    """

    def __init__(self, owner: Any) -> None:
        self.name = f"{type(owner).__name__} {next(_owners)}"

    @contextlib.contextmanager
    def counted(self, owner: Any, use: str, enough: int = 1) -> Iterator[None]:
        """Count the texts cut by functions that are traced or run in this context.

        Args:
            owner: the preprocessor.
            use: string, what the texts are read for. Each use has its own warning.
            enough: int. After how many texts to warn.
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
    """Count texts, and the texts that lose tokens. Works in a graph.

    Args:
        over: bool tensor, true for texts that are too long.
        what: string, the word for the texts in the warning.
        length: string, the preprocessor's argument that limits the length.
    """
    counting = _counting.get()
    if counting is None:
        return
    owner = counting.owner
    said = (
        f"{type(owner).__name__} cut {{}} of {{}} {what} to {length}="
        f"{getattr(owner, length)} tokens: the rest isn't read."
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


# With this many tokens to mask, too few masks are no accident.
_ENOUGH_TOKENS = 100
_streams = itertools.count()


class MaskCounter:
    """A counter of the masks of a stream of batches, inside `tf.data`.

    Since it counts where masks are made, it works the same for all backends and
    compiled steps. Only batches with fewer than half the masks call Python; others cost
    nothing.

    Args:
        strategy: what selects tokens, in the user's words.
    """

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.stream = f"stream {next(_streams)}"

    def count(self, asked: TFTensor, masked: TFTensor) -> None:
        """Count masks; warn of a stream with too few masks, and of batches without any.

        The first warning comes once. The second comes at the first, the tenth, the
        hundredth such batch and so on. A call outside of a graph belongs to no stream,
        and never warns.

        Args:
            asked: int32 scalar. How many tokens of a batch should be masked.
            masked: int32 scalar. How many tokens are masked.
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
            f"but the rate asks for {asked}. Such batches so far: {counts.empty}.",
            stacklevel=2,
        )
    if not counts.warned and counts.asked >= _ENOUGH_TOKENS:
        counts.warned = True
        warnings.warn(
            f"Batches have fewer than half of the masks that the rate asks for: {name} "
            f"selected {counts.masked} of {counts.asked} tokens in them. The cause can "
            "be that spans are rare or words have many tokens. "
            '`strategy="tokens"` masks single tokens in any text.',
            stacklevel=2,
        )
    return np.True_


_WARN_OF_MASKS = register_by_name(_warn_of_masks)
