"""A mixture of objectives: one is drawn for each text."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.autograph import as_graph
from keras_bertfam.layers.corruption.objectives import (
    Corrupted,
    DenoisingObjective,
    DenoisingVocabulary,
    LengthLimits,
    get_objective,
)
from keras_bertfam.layers.corruption.span_objectives import PrefixLM, RandomSpans
from keras_bertfam.layers.data.seeding import fold, random_uniform
from keras_bertfam.types import TFRagged, TFTensor

# UL2's: short spans, long or many spans, and prefix language modelling.
_UL2 = (
    *(RandomSpans(rate=0.15, mean_length=length) for length in (3.0, 8.0)),
    *(RandomSpans(rate=0.5, mean_length=length) for length in (3.0, 8.0, 64.0)),
    RandomSpans(rate=0.15, mean_length=64.0),
    PrefixLM(mean_rate=0.25),
)


@keras.saving.register_keras_serializable("keras_bertfam")
class Mixture(DenoisingObjective):
    """Draws an objective for each text; a mode token before the inputs can name it.

    The objective that needs the shortest texts sets the length of all texts.

    Args:
        objectives: sequence of objectives, configs, names or lists. Defaults to UL2's
            seven: spans of 3 or 8 tokens that cover 15 % of the text; spans of 3, 8 or
            64 that cover half of it; spans of 64 that cover 15 %; and
            `PrefixLM(mean_rate=0.25)`.
        rates: sequence of floats or `None`. How likely each objective is; they need not
            sum to 1. Defaults to all equal, as in the paper's code (appendix 9.2). The
            paper's section 4.5 advises 20 % of `PrefixLM`.
        mode_tokens: sequence of strings or `None`. For each objective the token that
            its inputs begin with, or `None` for no token. A mode token is no longer
            used as a sentinel. Defaults to none.

    Example:

    ```python
    objective = keras_bertfam.layers.Mixture(
        ["random_spans", "prefix_lm"],
        rates=[0.8, 0.2],
        mode_tokens=["<extra_id_98>", "<extra_id_99>"],
    )
    ```

    Reference: [Tay et al., 2022](https://arxiv.org/abs/2205.05131), section 3.1.
    """

    name = "mixture"

    def __init__(
        self,
        objectives: Sequence[Any] = _UL2,
        rates: Sequence[float] | None = None,
        mode_tokens: Sequence[str | None] | None = None,
    ) -> None:
        self.objectives = [get_objective(objective) for objective in objectives]
        if not self.objectives:
            raise ValueError("`objectives` must not be empty. Received: none.")
        count = len(self.objectives)
        self.rates = None if rates is None else [float(rate) for rate in rates]
        shares = np.array(self.rates or [1.0] * count)
        if shares.shape != (count,) or (shares < 0).any() or not shares.sum() > 0:
            raise ValueError(
                f"`rates` must be {count} numbers of at least 0, one for each "
                f"objective, with a positive sum. Received: {rates}."
            )
        self._bounds = np.cumsum(shares / shares.sum())[:-1].tolist()
        if mode_tokens is not None and len(mode_tokens) != count:
            raise ValueError(
                f"`mode_tokens` must have {count} tokens, one for each objective. "
                f"Received: {list(mode_tokens)}."
            )
        self.mode_tokens = None if mode_tokens is None else [*mode_tokens]

    @property
    def token_names(self) -> list[str]:
        own = [token for token in self.mode_tokens or [] if token is not None]
        return own + [name for x in self.objectives for name in x.token_names]

    def check(self, vocabulary: DenoisingVocabulary, length: int) -> None:
        for objective in self.objectives:
            objective.check(self._left(vocabulary), length)

    def lengths(self, inputs: int) -> tuple[int, int]:
        mode = 0 if self.mode_tokens is None else 1
        pairs = [objective.lengths(inputs - mode) for objective in self.objectives]
        texts, targets = zip(*pairs, strict=True)
        return min(texts), max(targets)

    def corrupt(
        self,
        tokens: TFRagged,
        vocabulary: DenoisingVocabulary,
        room: LengthLimits,
        seed: TFTensor,
    ) -> Corrupted:
        draws = random_uniform([tokens.nrows()], fold(seed, -1))
        bounds = tf.constant(self._bounds, tf.float32)
        choice = tf.searchsorted(bounds, draws, side="right")
        order = tf.argsort(choice, stable=True)
        left = self._left(vocabulary)
        parts = []
        for number, objective in enumerate(self.objectives):
            texts = tf.where(choice == number)[:, 0]
            chosen = tf.gather(tokens, texts)
            mode = self._mode(number, vocabulary)
            room_left = room.of_texts(texts, less=len(mode))
            part = as_graph(objective.corrupt)(
                chosen, left, room_left, fold(seed, number)
            )
            modes = tf.tile(tf.constant([mode], tf.int32), [chosen.nrows(), 1])
            parts.append(
                Corrupted(
                    tf.concat([modes, part.inputs], 1), part.targets, part.predicted
                )
            )
        back = tf.math.invert_permutation(order)

        def joined(of_each):
            return tf.gather(tf.concat(of_each, 0), back)

        predicted = None
        if any(part.predicted is not None for part in parts):
            predicted = joined([part.known() for part in parts])
        inputs = joined([part.inputs for part in parts])
        return Corrupted(inputs, joined([part.targets for part in parts]), predicted)

    def _mode(self, number, vocabulary):
        """List the ids that inputs of an objective begin with: one or none."""
        token = None if self.mode_tokens is None else self.mode_tokens[number]
        return [] if token is None else [vocabulary.named_token_ids[token]]

    def _left(self, vocabulary):
        """Remove the mode tokens from the sentinels of the vocabulary."""
        if self.mode_tokens is None:
            return vocabulary
        modes = {vocabulary.named_token_ids[t] for t in self.mode_tokens if t}
        return vocabulary.without_sentinels(modes)
