"""Whatever answers keeps nothing for a gradient, which PyTorch would."""

import keras
import numpy as np
import pytest

from keras_bertfam import analysis
from keras_bertfam.analysis.heads.attention import text_attentions
from keras_bertfam.analysis.likelihood import answer_likelihood, log_likelihood
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from tests import every_task, tiny_recurrent_lm

TEXTS = every_task.TEXTS
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="only PyTorch keeps what it computed"
)


def saved_by(function):
    """How many tensors are kept for a gradient while a function runs."""
    import torch

    saved = []
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x)
    with hooks:
        function()
    return len(saved)


def test_a_call_keeps_what_it_computed():
    layer = keras.layers.Dense(2)
    layer.build((None, 2))
    call = lambda: layer(np.ones((1, 2), "float32"))  # noqa: E731
    assert saved_by(call) and not saved_by(without_gradients(call))


@pytest.mark.parametrize(
    "task", ["MaskedLM", "MaskedDiffusionLM", "ReplacedTokenDetection"]
)
def test_masks_are_filled(task):
    model = every_task.make(task, "bert")
    assert not saved_by(lambda: model.fill_mask(["the [MASK] sat"]))
    assert not saved_by(lambda: analysis.pseudo_log_likelihood(model, TEXTS))
    if task == "MaskedDiffusionLM":
        assert not saved_by(lambda: model.score(TEXTS, samples=2))
        assert not saved_by(lambda: model.generate("the", new_tokens=2))


def test_likelihoods_and_texts():
    model = every_task.make("CausalLM", "gpt2")
    assert not saved_by(lambda: log_likelihood(model, TEXTS))
    assert not saved_by(lambda: answer_likelihood(model, TEXTS, TEXTS))
    assert not saved_by(lambda: model.generate(["the cat"], max_length=8))
    model = every_task.make("TextToText", "t5")
    assert not saved_by(lambda: answer_likelihood(model, TEXTS, TEXTS))
    assert not saved_by(lambda: model.generate(["the cat"], max_length=8))
    model = tiny_recurrent_lm.make_model()
    assert not saved_by(lambda: model.perplexity([1, 2, 3, 4, 5]))


def test_analysis():
    model = every_task.make("MaskedLM", "bert")
    assert not saved_by(lambda: text_attentions(model, TEXTS))
    assert not saved_by(lambda: analysis.embed_words(model, every_task.WORDS))


@pytest.mark.parametrize("task", every_task.FINE_TUNING)
def test_predictions(task):
    model = every_task.make(task, "bert")
    x = every_task.FINE_TUNING[task][2]
    assert not saved_by(lambda: model.predict(x, verbose=0))
