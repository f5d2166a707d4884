"""Strategies of `MaskTokens` by name."""

import keras

from keras_bertfam.layers.corruption.token_strategies import (
    IndependentTokens,
    MaskingStrategy,
)
from keras_bertfam.layers.corruption.word_strategies import (
    GeometricSpans,
    GivenSpans,
    NGrams,
    WholeWords,
)

_NAMED = {
    "tokens": IndependentTokens,
    "words": WholeWords,
    "ngrams": NGrams,
    "spans": GeometricSpans,
    "given_spans": GivenSpans,
}


def get_strategy(identifier):
    """Returns a strategy given itself, its config or its name.

    Args:
        identifier: `MaskingStrategy`, what `keras.saving` serialised of one, or
            `"tokens"`, `"words"`, `"ngrams"`, `"spans"`, `"given_spans"`.
    """
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, MaskingStrategy):
        return identifier
    if identifier in _NAMED:
        return _NAMED[identifier]()
    raise ValueError(
        f"`strategy` must be a MaskingStrategy or one of {sorted(_NAMED)}. "
        f"Received: {identifier!r}."
    )
