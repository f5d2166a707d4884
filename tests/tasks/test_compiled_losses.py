"""Heads that give scores in training: nothing but the speed may show it."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.heads import token_scores
from keras_bertfam.models import BertBackbone, XLNetBackbone
from keras_bertfam.tasks import (
    CausalLM,
    MaskedCrossentropy,
    MaskedLM,
    MaskedLMSentencePair,
    PermutationLM,
    SpanBoundaryLM,
)
from keras_bertfam.tasks.generation.language_model import LanguageModelCrossentropy
from keras_bertfam.tasks.losses import TokenAccuracy
from tests.tiny_text_to_text import make as text_to_text_backbone

SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
SIZE |= {"dropout": 0.0}
ROWS, LENGTH, COUNT, VOCABULARY = 4, 8, 3, 30


def data(task):
    rng = np.random.default_rng(0)
    positions = np.array([[1, 2, 4]] * ROWS)
    x = {
        "token_ids": rng.integers(5, VOCABULARY, (ROWS, LENGTH)),
        "mask_positions": positions,
    }
    y = rng.integers(5, VOCABULARY, (ROWS, COUNT))
    weights = np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]], "float32")
    if task is CausalLM:
        x = {"token_ids": x["token_ids"][:, :COUNT]}
    if task is PermutationLM:
        x["perm_ranks"] = np.array([rng.permutation(LENGTH) for _ in range(ROWS)])
    if task is MaskedLMSentencePair:
        y = {"masked_lm": y, "sentence": rng.integers(0, 2, ROWS)}
        weights = {"masked_lm": weights, "sentence": np.ones(ROWS, "float32")}
    if task is SpanBoundaryLM:
        x["span_bounds"] = np.stack([positions, positions], -1)
        y = {"masked_lm": y, "span_boundary": y[::-1].copy()}
        weights = {"masked_lm": weights, "span_boundary": weights}
    return x, y, weights


def make(task, **arguments):
    keras.utils.set_random_seed(1)
    if task is CausalLM:
        backbone = text_to_text_backbone("GPT2")
        model = CausalLM(backbone, z_loss=0.1, label_smoothing=0.2)
    else:
        family = XLNetBackbone if task is PermutationLM else BertBackbone
        model = task(family(VOCABULARY, **SIZE))
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=False, **arguments)
    return model


def trained(model, task):
    x, y, weights = data(task)
    logs = model.train_on_batch(x, y, weights, return_dict=True)
    logs |= {
        f"held_out_{name}": value
        for name, value in model.test_on_batch(x, y, weights, return_dict=True).items()
    }
    return logs, [ops.convert_to_numpy(v) for v in model.trainable_variables]


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        MaskedLM,
        pytest.param(
            MaskedLMSentencePair,
            marks=[pytest.mark.slow("release"), pytest.mark.any_backend],
        ),
        SpanBoundaryLM,
        CausalLM,
        pytest.param(
            PermutationLM, marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
    ],
)
def test_scores_train_as_logits_do(task, monkeypatch):
    """In chunks as well: a step, its metrics and those of an evaluation are equal."""
    monkeypatch.setattr(token_scores, "MOST_LOGITS", VOCABULARY * 5)
    by_scores = make(task)
    assert by_scores._scoring
    logs, variables = trained(by_scores, task)
    by_logits = make(task)
    by_logits._scoring = None
    expected_logs, expected_variables = trained(by_logits, task)
    assert logs == pytest.approx(expected_logs, abs=1e-5)
    for received, expected in zip(variables, expected_variables, strict=True):
        np.testing.assert_allclose(received, expected, atol=1e-5)


class OwnLoss(MaskedLM):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        assert y_pred.shape[-1] == VOCABULARY
        return super().compute_loss(x, y, y_pred, sample_weight, **kwargs)


class OwnCrossentropy(MaskedCrossentropy):
    def call(self, y_true, y_pred):
        assert y_pred.shape[-1] == VOCABULARY
        return super().call(y_true, y_pred)


class OwnSmoothing(LanguageModelCrossentropy):
    def call(self, y_true, y_pred):
        assert y_pred.shape[-1] == VOCABULARY
        return super().call(y_true, y_pred)


def of_vocabulary(y_true, y_pred):
    assert y_pred.shape[-1] == VOCABULARY
    return ops.mean(y_pred)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task, arguments",
    [
        (MaskedLM, {"metrics": [of_vocabulary]}),
        (MaskedLM, {"weighted_metrics": [TokenAccuracy(), "accuracy"]}),
        (MaskedLM, {"loss": OwnCrossentropy()}),
        (MaskedLM, {"loss": OwnSmoothing(label_smoothing=0.1)}),
        (OwnLoss, {}),
    ],
)
def test_what_reads_logits_gets_them(task, arguments):
    model = make(task, **arguments)
    logs, _ = trained(model, task)
    assert not model._scoring
    assert np.isfinite(logs["loss"])


@pytest.mark.slow
def test_a_saved_task_goes_on_with_scores(tmp_path):
    model = make(MaskedLMSentencePair)
    trained(model, MaskedLMSentencePair)
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras")._scoring
