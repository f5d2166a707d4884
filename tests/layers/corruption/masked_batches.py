"""What the tests of masking strategies share."""

import numpy as np

from keras_bertfam.layers import MaskTokens

CLS, SEP, MASK, VOCABULARY = 1, 2, 3, 100
START, PIECE = 20, 60  # ids below 50 start a word
STARTS = np.arange(VOCABULARY) < 50
LIKELY = 1e-3  # the seeds are fixed, so that this is no lottery


def masker(strategy, **kwargs):
    arguments = dict(
        vocabulary_size=VOCABULARY,
        mask_token_id=MASK,
        unselectable_token_ids=[CLS, SEP],
        starts_word=STARTS,
        strategy=strategy,
    )
    return MaskTokens(**{**arguments, **kwargs})


def numpy_call(layer, *args, **kwargs):
    return {k: v.numpy() for k, v in layer(*args, **kwargs).items()}


def selected(out, length):
    """Bool `(batch, length)`: where the selections are."""
    hits = np.zeros((len(out["mask_weights"]), length), bool)
    row, slot = np.nonzero(out["mask_weights"])
    hits[row, out["mask_positions"][row, slot]] = True
    return hits
