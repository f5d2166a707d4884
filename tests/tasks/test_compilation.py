"""When TensorFlow compiles the training step without being asked."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.tasks import compilation
from tests import tiny_fine_tuning as fine_tuning
from tests import tiny_masked_lm as tiny

TENSORFLOW = keras.backend.backend() == "tensorflow"
tensorflow_only = pytest.mark.skipif(
    not TENSORFLOW, reason="other backends decide it by themselves"
)
COMPILING = "Compiling the training step"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Makes 7 steps long enough."""
    monkeypatch.setattr(compilation, "LEAST_STEPS", 7)


def auto_model():
    model = tiny.make_model()
    model.compile(optimizer=model.optimizer)
    return model


def said(model, data, capsys, **kwargs):
    """What a fit says first."""
    capsys.readouterr()
    model.fit(data, verbose=2, **kwargs)
    return capsys.readouterr().out


@pytest.mark.slow
@tensorflow_only
def test_rows_of_a_fixed_length_are_compiled(capsys):
    model, other = auto_model(), tiny.make_model()
    recorders = [tiny.StepLosses(), tiny.StepLosses()]
    shown = said(model, tiny.stream(model), capsys, callbacks=recorders[:1])
    assert shown.startswith(COMPILING) and "The first step took" in shown
    assert model.train_function is not None and not model.jit_compile
    other.fit(tiny.stream(other), verbose=0, callbacks=recorders[1:])
    ours, usual = (recorder.losses for recorder in recorders)
    assert len(ours) == 7
    np.testing.assert_allclose(ours, usual, rtol=1e-5)
    # What is there is used again, and what is evaluated isn't compiled.
    assert COMPILING not in said(model, tiny.stream(model), capsys)
    model.evaluate(tiny.stream(model, training=False), verbose=0)


@pytest.mark.slow
@tensorflow_only
def test_what_is_not_compiled(capsys, monkeypatch):
    model = auto_model()
    data = tiny.stream(model)
    assert COMPILING not in said(model, data, capsys, steps_per_epoch=6)
    # Batches by tokens have any number of rows, each of which would be compiled.
    by_tokens = tiny.stream(model, None, tokens_per_batch=32)
    assert COMPILING not in said(model, by_tokens, capsys)
    for settings in ({"jit_compile": False}, {"run_eagerly": True}):
        model.compile(optimizer=model.optimizer, **settings)
        assert not chooses_to_compile(model)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert not chooses_to_compile(auto_model())
    assert chooses_to_compile(auto_model())
    for policy in ("mixed_bfloat16", "mixed_float16"):
        monkeypatch.setattr(keras.config, "dtype_policy", lambda policy=policy: policy)
        assert not chooses_to_compile(auto_model())


def chooses_to_compile(model):
    model._choose_compilation(1, 100)
    return model._compiles_step


@pytest.mark.slow
@tensorflow_only
def test_arrays_and_buckets_count_their_shapes(monkeypatch):
    chosen = []
    for task in (tasks.MaskedLM, tasks.TextClassifier):
        monkeypatch.setattr(
            task, "_choose_compilation", lambda _, *given: chosen.append(given)
        )
    model = auto_model()
    x, y, weights = next(tiny.stream(model).as_numpy_iterator())
    model.fit(x, y, 4, sample_weight=weights, epochs=2, verbose=0)
    model.fit(x, y, 3, sample_weight=weights, verbose=0)
    data = tiny.stream(model)
    model.fit(data, steps_per_epoch=2, initial_epoch=1, epochs=3, verbose=0)
    assert chosen == [(1, 4), (2, 3), (1, 6)]
    texts, labels = fine_tuning.texts()
    tokenizer = fine_tuning.make_tokenizer()
    preprocessor = tasks.TextClassifierPreprocessor(
        tokenizer, sequence_length=16, buckets=(8, 12)
    )
    model = tasks.TextClassifier(fine_tuning.make_backbone(), 2, preprocessor)
    monkeypatch.setattr(
        tasks.TextClassifier,
        "_choose_compilation",
        lambda _, *given: chosen.append(given),
    )
    fine_tuning.compiled(model).fit(texts, labels, 20, verbose=0)
    assert chosen[3:] == [(3, 2)]


@pytest.mark.slow
@tensorflow_only
def test_given_pairs_count_the_shapes_of_both_sides(monkeypatch):
    chosen = []
    monkeypatch.setattr(
        tasks.DualEncoder, "_choose_compilation", lambda _, *given: chosen.append(given)
    )
    tokenizer, backbone = fine_tuning.make_tokenizer(), fine_tuning.make_backbone()
    preprocessor = tasks.DualEncoderPreprocessor(tokenizer, 16, 16, buckets=[8, 12])
    model = tasks.DualEncoder(backbone, preprocessor, projection_dim=None)
    model.compile(optimizer="sgd")
    texts, _ = fine_tuning.texts()
    model.fit((texts[:8], texts[8:16]), batch_size=4, verbose=0)
    assert chosen == [(9, 2)]


def test_auto_stays_auto_in_a_file():
    model = auto_model()
    assert model.get_compile_config()["jit_compile"] == "auto"
    model.compile(optimizer=model.optimizer, jit_compile=False)
    assert model.get_compile_config()["jit_compile"] is False
