"""Warnings of streams with fewer masks than were asked for."""

import itertools
import math
import warnings

import numpy as np
import tensorflow as tf

from keras_bertfam.layers.data.named_functions import call_by_name, register_by_name
from keras_bertfam.types import TFTensor

# Of so many tokens that were asked for, too few masks are no accident.
_ENOUGH_TOKENS = 100
_streams = itertools.count()


class MaskShare:
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
