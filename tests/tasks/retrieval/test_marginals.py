"""Likelihoods over passages, and their gradients, against numbers made by hand."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis.gradients import gradient_of
from keras_bertfam.tasks.retrieval.marginals import (
    check_marginalization,
    sequence_marginal,
    token_losses,
    token_marginal,
)

PRIOR = np.array([[0.6, 0.4]], "float32")
TOKENS = np.array([[[0.5, 0.2], [0.1, 0.9]]], "float32")
SCORES, LIKELIHOODS = np.log(PRIOR) + 3.0, np.log(TOKENS)  # any constant


def number(x):
    return float(ops.convert_to_numpy(ops.sum(x)))


def test_two_passages_and_two_tokens():
    whole = sequence_marginal(SCORES, LIKELIHOODS)
    assert np.exp(number(whole)) == pytest.approx(0.096, abs=1e-6)
    assert number(whole) == pytest.approx(-2.343407, abs=1e-6)
    tokens = token_marginal(SCORES, LIKELIHOODS)
    assert np.exp(ops.convert_to_numpy(tokens))[0] == pytest.approx([0.34, 0.48])
    assert np.exp(number(tokens)) == pytest.approx(0.1632, abs=1e-6)
    weights = np.ones((1, 2), "float32")
    released = token_losses("token", SCORES, LIKELIHOODS, weights)
    assert number(released) / 2 == pytest.approx(0.906389, abs=1e-6)
    paper = token_losses("sequence", SCORES, LIKELIHOODS, weights)
    assert number(paper) == pytest.approx(2.343407, abs=1e-6)


def test_one_token_is_the_same_either_way_and_others_are_left_out():
    weights = np.array([[1.0, 0.0]], "float32")
    losses = [
        ops.convert_to_numpy(token_losses(kind, SCORES, LIKELIHOODS, weights))
        for kind in ("sequence", "token")
    ]
    assert losses[0][0] == pytest.approx([-np.log(0.34), 0.0], abs=1e-6)
    assert losses[1][0, 0] == pytest.approx(-np.log(0.34), abs=1e-6)


def test_gradients_move_scores_to_useful_passages():
    def likelihood(scores):
        return ops.sum(token_marginal(scores, LIKELIHOODS[..., :1]))

    slope = gradient_of(likelihood, keras.layers.Identity())
    gradient = ops.convert_to_numpy(slope(ops.convert_to_tensor(SCORES)))
    assert gradient[0] == pytest.approx([0.282353, -0.282353], abs=1e-6)


@pytest.mark.any_backend
def test_other_names():
    with pytest.raises(ValueError, match="must be one of .* Received: marg.*'both'"):
        check_marginalization("both")
