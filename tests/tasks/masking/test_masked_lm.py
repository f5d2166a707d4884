import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone, EncoderBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor

SENTENCES = ["the cat [MASK] on the [MASK] .", "a [MASK]"]


def answer(model):
    return model.fill_mask(SENTENCES, top_k=3)


def assert_same_answers(received, expected):
    assert [len(slots) for slots in received] == [len(slots) for slots in expected]
    for slots, others in zip(received, expected, strict=True):
        for slot, other in zip(slots, others, strict=True):
            assert [token for token, _ in slot] == [token for token, _ in other]
            probabilities = [[p for _, p in part] for part in (slot, other)]
            np.testing.assert_allclose(*probabilities, atol=1e-5)


def dataset(model, texts, **kwargs):
    documents = tf.data.Dataset.from_tensor_slices(texts)
    return model.preprocessor.dataset(documents, batch_size=4, **kwargs)


@pytest.mark.slow
def test_logits_only_at_masked_positions(make_model):
    model = make_model()
    inputs = model.preprocessor.encode(SENTENCES)
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    positions = np.array([[3, 6], [2, 0]], "int32")
    logits = ops.convert_to_numpy(model({**inputs, "mask_positions": positions}))
    assert logits.shape == (2, 2, 22) and logits.dtype == "float32"
    whole = ops.convert_to_numpy(model(inputs))
    expected = np.take_along_axis(whole, positions[..., None], 1)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.slow
def test_fit_learns_and_reports(make_model, texts):
    model = make_model()
    model.compile(learning_rate=3e-2)
    history = model.fit(
        dataset(model, texts),
        epochs=8,
        validation_data=dataset(model, texts, training=False),
        verbose=0,
    ).history
    assert {"loss", "accuracy", "perplexity", "val_loss", "val_perplexity"} <= {
        *history
    }
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    np.testing.assert_allclose(
        np.log(history["perplexity"]), history["loss"], rtol=0.02
    )
    schedule = model.optimizer._learning_rate
    assert schedule.total_steps == int(model.optimizer.iterations)


@pytest.mark.slow
def test_a_run_that_is_done_does_nothing(make_model, texts):
    model = make_model()
    model.compile(learning_rate=3e-2)
    before = model.get_weights()
    for arguments in ({"epochs": 0}, {"initial_epoch": 3, "epochs": 2}):
        model.fit(dataset(model, texts), verbose=0, **arguments)
    for ours, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_raw_strings_can_be_fitted(make_model, texts):
    model = make_model()
    history = model.fit(texts, batch_size=5, epochs=1, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert np.isfinite(model.evaluate(texts, batch_size=5, verbose=0)).all()
    logits = model.predict(texts[:3], batch_size=3, verbose=0)
    assert logits.shape[0] == 3 and logits.shape[2] == 22


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_pooler_is_left_out_of_training_only(make_model, texts):
    model = make_model()
    before = [ops.convert_to_numpy(w) for w in model.backbone.pooler.weights]
    model.compile(learning_rate=1.0)
    model.fit(dataset(model, texts), verbose=0)
    for weight, old in zip(model.backbone.pooler.weights, before, strict=True):
        assert weight.trainable
        np.testing.assert_array_equal(ops.convert_to_numpy(weight), old)
    counts = {id(v) for v in model.trainable_variables}
    counts |= {id(v) for v in model.non_trainable_variables}
    assert counts == {id(v) for v in model.variables}
    assert len(model.variables) == len(model.trainable_variables) + len(
        model.non_trainable_variables
    )


def test_weight_decay_spares_biases_and_norms(make_model):
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    decayed = {
        v.path
        for v in model.trainable_variables
        if model.optimizer._use_weight_decay(v)
    }
    assert decayed and not any(
        path.endswith(("bias", "gamma", "beta")) for path in decayed
    )
    kernels = {
        v.path
        for v in model.trainable_variables
        if not v.path.endswith(("bias", "gamma", "beta"))
    }
    assert decayed == kernels


@pytest.mark.slow
def test_weight_decay_spares_them_in_a_loaded_model(make_model, tmp_path):
    for optimizer, spares in (
        (pretraining_optimizer(total_steps=9, beta_2=0.98), True),
        (keras.optimizers.AdamW(), False),
    ):
        model = make_model()
        model.compile(optimizer)
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        assert loaded.optimizer.beta_2 == optimizer.beta_2
        for variable in loaded.trainable_variables:
            small = variable.path.endswith(("bias", "gamma", "beta"))
            decays = loaded.optimizer._use_weight_decay(variable)
            assert decays == (not small or not spares)


def test_fill_mask(make_model):
    model = make_model()
    first, second = answer(model)
    assert [len(first), len(second)] == [2, 1]
    for slot in (*first, *second):
        probabilities = [p for _, p in slot]
        assert len(slot) == 3 and probabilities == sorted(probabilities, reverse=True)
    assert_same_answers([model.fill_mask(SENTENCES[1], top_k=3)], [second])
    vocabulary = model.preprocessor.tokenizer.get_vocabulary()
    assert all(token in vocabulary for token, _ in first[0])


def test_fill_mask_errors(make_model):
    model = make_model()
    with pytest.raises(ValueError, match=r"\[MASK\].*'no mask'"):
        model.fill_mask(["a [MASK]", "no mask"])
    with pytest.raises(ValueError, match="preprocessor"):
        MaskedLM(model.backbone).fill_mask("a [MASK]")


def test_a_tokenizer_larger_than_the_table(make_model):
    preprocessor = make_model().preprocessor
    with pytest.raises(ValueError, match="vocabulary_size=10 .*Received one of 22"):
        MaskedLM(EncoderBackbone(10, 1, 1, 4, 8), preprocessor)


@pytest.mark.slow
def test_round_trips(make_model, tmp_path):
    model = make_model()
    expected = answer(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_same_answers(answer(loaded), expected)
    masked = [task.preprocessor(["a b"])[0]["token_ids"] for task in (model, loaded)]
    np.testing.assert_array_equal(*masked)
    model.save_weights(tmp_path / "model.weights.h5")
    keras.utils.set_random_seed(9)
    backbone = BertBackbone.from_config(model.backbone.get_config())
    other = MaskedLM(backbone, model.preprocessor)
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same_answers(answer(other), expected)
    preset = str(tmp_path / "preset")
    model.save_to_preset(preset)
    assert_same_answers(answer(MaskedLM.from_preset(preset)), expected)
    random = MaskedLM.from_preset(preset, load_weights=False)
    assert answer(random) != expected
    assert isinstance(BertBackbone.from_preset(preset), BertBackbone)


@pytest.mark.slow
def test_a_reloaded_keras_file_trains_on_as_before(make_model, texts, tmp_path):
    model = make_model()
    model.compile(total_steps=20, learning_rate=1e-2)
    data = list(dataset(model, texts).repeat().take(6))
    for x, y, w in data[:3]:
        model.train_on_batch(x, y, w)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    for x, y, w in data[3:]:
        expected = model.train_on_batch(x, y, w)
        received = other.train_on_batch(x, y, w)
    np.testing.assert_allclose(received, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_backbone_preset_with_a_tokenizer_makes_a_task(make_model, tmp_path):
    model = make_model()
    model.backbone.save_to_preset(str(tmp_path))
    model.preprocessor.tokenizer.save_to_preset(str(tmp_path))
    task = MaskedLM.from_preset(str(tmp_path))
    assert len(answer(task)) == 2
    np.testing.assert_array_equal(
        ops.convert_to_numpy(task.backbone.weights[0]),
        ops.convert_to_numpy(model.backbone.weights[0]),
    )


def test_from_name():
    model = MaskedLM.from_preset("bert_tiny_en_uncased", load_weights=False)
    assert isinstance(model.backbone, BertBackbone)
    with pytest.raises(ValueError, match="bert_tiny_en_uncased"):
        MaskedLM.from_preset("bert_tiny_uncased", load_weights=False)


@pytest.mark.parametrize("file", ["task.json", "task.weights.h5", "preprocessor.json"])
def test_truncated_task_file(file, make_model, tmp_path):
    make_model().save_to_preset(str(tmp_path))
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="truncated"):
        MaskedLM.from_preset(str(tmp_path))


LOADER = """
import json, sys
from keras_bertfam.tasks import MaskedLM
model = MaskedLM.from_preset(sys.argv[1])
print(json.dumps(model.fill_mask(json.loads(sys.argv[2]), top_k=3)))
"""


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_preset_loads_under_each_backend(backend, make_model, tmp_path):
    pytest.importorskip(backend)
    model = make_model()
    model.save_to_preset(str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", LOADER, str(tmp_path), json.dumps(SENTENCES)],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert_same_answers(json.loads(done.stdout.splitlines()[-1]), answer(model))


def test_tokenizer_and_preprocessor_are_rebuilt(make_model):
    model = make_model()
    other = MaskedLM.from_config(model.get_config())
    assert isinstance(other.preprocessor, MaskedLMPreprocessor)
    assert isinstance(other.preprocessor.tokenizer, BertTokenizer)
    assert other.get_config() == model.get_config()
