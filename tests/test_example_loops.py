"""A loop of one's own, on each backend, makes the steps that `fit()` makes."""

import importlib.util

import keras
import numpy as np
import pytest

from keras_bertfam.tasks import MaskedLM
from tests import tiny_masked_lm
from tests.checkout import ROOT

BACKEND = keras.backend.backend()
EXAMPLE = ROOT / "examples" / f"loop_{BACKEND}.py"
STEPS = 6


def example():
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made():
    keras.utils.set_random_seed(0)
    model = tiny_masked_lm.make_model()
    model.compile(total_steps=STEPS, learning_rate=1e-3)
    return model


class Losses(keras.callbacks.Callback):
    """What Keras shows is a mean over the batches so far."""

    def on_train_begin(self, logs=None):
        self.means = []

    def on_train_batch_end(self, batch, logs=None):
        self.means.append(logs["loss"])


@pytest.mark.slow
def test_a_loop_of_ones_own_is_fit(tmp_path):
    model = made()
    model.save_to_preset(tmp_path / "preset")
    start = model.get_weights()
    batches = tiny_masked_lm.stream(model).take(STEPS).cache()
    losses = [*example().train(model, batches)]
    # The logarithm of the vocabulary's size, about; not a mean over empty slots.
    size = model.backbone.vocabulary_size
    assert losses[0] == pytest.approx(np.log(size), abs=0.7)
    assert int(model.optimizer.iterations) == STEPS
    other = made()
    seen = Losses()
    other.fit(batches, callbacks=[seen], verbose=0)
    means = np.cumsum(losses) / np.arange(1, STEPS + 1)
    np.testing.assert_allclose(seen.means, means, rtol=1e-3)
    (tmp_path / "a.txt").write_text("the cat sat on the mat .\n\n" * 60)
    example().main(str(tmp_path / "a.txt"), str(tmp_path / "preset"), 2, 4)
    trained = MaskedLM.from_preset(tmp_path / "preset").get_weights()
    assert any((one != two).any() for one, two in zip(trained, start, strict=True))
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)
