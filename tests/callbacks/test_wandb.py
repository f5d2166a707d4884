"""Weights & Biases by its own Keras callback, without a network."""

import json

import keras
import pytest

from tests import tiny_masked_lm as tiny

wandb = pytest.importorskip("wandb")


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.skipif(
    keras.backend.backend() == "jax",
    reason="its callback takes no schedules under JAX; it reads TensorBoard's files",
)
def test_a_run_in_offline_mode(tmp_path, monkeypatch):
    from wandb.integration.keras import WandbMetricsLogger

    monkeypatch.setenv("WANDB_MODE", "offline")
    run = wandb.init(project="bert", dir=str(tmp_path))
    model = tiny.make_model()
    logger = WandbMetricsLogger(log_freq=1)
    data = tiny.stream(model).take(3)
    history = model.fit(data, callbacks=[logger], verbose=0).history
    summary = json.loads(json.dumps(dict(run.summary)))
    run.finish()
    assert summary["epoch/loss"] == pytest.approx(history["loss"][-1])
    assert summary["batch/batch_step"] == 2
    # Of the next step: the peak is at the second of two warm-up steps.
    assert summary["batch/learning_rate"] == pytest.approx(1e-2 * 37 / 38)
    assert any(tmp_path.rglob("*.wandb"))
