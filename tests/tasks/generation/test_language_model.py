"""Tasks that write a text token by token: loss, training, saving."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.optimizers import Adafactor, InverseSquareRootDecay
from keras_bertfam.tasks.generation.language_model import (
    LanguageModelCrossentropy,
)
from tests.gradients import loss_and_gradients
from tests.tiny_text_to_text import ids, make


def array(x):
    return ops.convert_to_numpy(x)


def crossentropy(targets, logits):
    log_sum = np.log(np.exp(logits).sum(-1))
    picked = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return log_sum - picked, log_sum


def texts(task, rows=8):
    """Inputs, targets and weights: the texts after a first token, some shorter."""
    targets = ids(rows, 5, seed=3)
    weights = (np.arange(5) < np.arange(rows)[:, None] % 4 + 2).astype("float32")
    inputs = np.concatenate([np.zeros((rows, 1), "int32"), targets[:, :-1]], 1)
    if isinstance(task, tasks.CausalLM):
        return {"token_ids": inputs, "padding_mask": weights > 0}, targets, weights
    x = {"encoder_token_ids": ids(rows, 7), "encoder_padding_mask": np.ones((rows, 7))}
    x |= {"decoder_token_ids": inputs, "decoder_padding_mask": weights > 0}
    return x, targets, weights


def test_loss_against_numpy():
    targets, rng = ids(2, 4), np.random.default_rng(0)
    logits = rng.normal(size=(2, 4, 30)).astype("float32")
    weights = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], "float32")
    losses, log_sum = crossentropy(targets, logits)
    uniform = log_sum - logits.mean(-1)
    for z_loss, smoothing in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.2), (0.1, 0.2)):
        loss = LanguageModelCrossentropy(z_loss, smoothing)
        each = (1 - smoothing) * losses + smoothing * uniform + z_loss * log_sum**2
        expected = (each * weights).sum() / weights.sum()
        found = float(array(loss(targets, logits, weights)))
        assert found == pytest.approx(expected, rel=1e-5)
        again = LanguageModelCrossentropy.from_config(loss.get_config())
        assert again.get_config() == loss.get_config()
    with pytest.raises(ValueError, match="`z_loss` must be .* at least 0.0"):
        LanguageModelCrossentropy(-1.0)
    with pytest.raises(ValueError, match="`label_smoothing` must be in"):
        tasks.CausalLM(make("GPT"), label_smoothing=1.0)


def test_factorised_tables_have_a_projection(tmp_path):
    task = tasks.CausalLM(make("GPT2", embedding_dim=4))
    x, targets, weights = texts(task, 2)
    states = array(task.backbone(x)["sequence_output"])
    (kernel,) = task.head.projection.weights
    table = array(task.backbone.token_embedding.embeddings)
    expected = states @ array(kernel) @ table.T
    np.testing.assert_allclose(array(task(x)), expected, atol=1e-5)
    assert any(kernel is v for v in task.trainable_variables)
    task.save_to_preset(str(tmp_path))
    again = tasks.CausalLM.from_preset(str(tmp_path))
    np.testing.assert_allclose(array(again(x)), expected, atol=1e-5)


def test_tables_and_scales_of_the_heads():
    tied, own = make("T5"), make("T5Gated")
    x, _, _ = texts(None, 2)
    for backbone in (tied, own):
        states = array(backbone(x)["decoder_sequence_output"])
        embedding = backbone.token_embedding
        table = array(embedding.embeddings).T * 8**-0.5
        table = array(embedding.reverse_embeddings) if backbone is own else table
        logits = array(tasks.TextToText(backbone)(x))
        np.testing.assert_allclose(logits, states @ table, atol=1e-4)
    gpt = make("GPT")
    states = array(gpt({"token_ids": ids(1, 3)})["sequence_output"])
    logits = array(tasks.CausalLM(gpt)({"token_ids": ids(1, 3)}))
    table = array(gpt.token_embedding.embeddings)
    np.testing.assert_allclose(logits, states @ table.T, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "GPT2",
        "T5Gated",
        pytest.param(
            "Bart", marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
    ],
)
def test_fits_and_saves(name, tmp_path):
    backbone = make(name)
    cls = tasks.CausalLM if name == "GPT2" else tasks.TextToText
    task = cls(backbone, label_smoothing=0.1)
    x, y, weights = texts(task)
    _, gradients = loss_and_gradients(task, x, y, weights)
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)
    recipe = {"T5Gated": 1e-4}.get(name, 0.0)
    assert task.z_loss == recipe and task.loss.z_loss == recipe
    optimizer = task.optimizer
    if name == "T5Gated":
        assert type(optimizer) is Adafactor
        assert type(optimizer._learning_rate) is InverseSquareRootDecay
    rate = 5.0 if name == "T5Gated" else 0.02
    task.compile(learning_rate=rate, jit_compile=keras.backend.backend() == "jax")
    before = task.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    task.fit(x, y, sample_weight=weights, epochs=8, verbose=0)
    after = task.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    assert after["loss"] < before["loss"] - 0.3
    folder = str(tmp_path / "preset")
    logits = array(task(x))
    task.save_to_preset(folder)
    again = cls.from_preset(folder)
    assert (again.z_loss, again.label_smoothing) == (recipe, 0.1)
    np.testing.assert_allclose(array(again(x)), logits, atol=1e-6)
    if name == "GPT2":
        return
    again.quantize("int8")
    near = array(again(x))
    assert 0 < np.abs(near - logits).max() < 0.3 * np.abs(logits).max()
    again.save_to_preset(folder)
    np.testing.assert_allclose(array(cls.from_preset(folder)(x)), near, atol=1e-5)


def test_an_encoder_that_reads_from_left_to_right():
    task = tasks.CausalLM(make("Bert", causal=True))
    assert task({"token_ids": ids(2, 5)}).shape == (2, 5, 30)
    with pytest.raises(ValueError, match="`backbone` must be causal.*BertBackbone"):
        tasks.CausalLM(make("Bert"))
    with pytest.raises(ValueError, match="`backbone` must be causal.*T5Backbone"):
        tasks.CausalLM(make("T5"))


def test_a_masked_lm_of_a_decoder_and_of_an_encoder_with_relative_positions():
    """Any objective on any trunk."""
    at = np.array([[1, 3], [0, 4]], "int32")
    for backbone in (make("GPT2", causal=False), make("T5").encoder):
        task = tasks.MaskedLM(backbone)
        every = array(task({"token_ids": ids(2, 5)}))
        some = array(task({"token_ids": ids(2, 5), "mask_positions": at}))
        rows = np.arange(2)[:, None]
        np.testing.assert_allclose(some, every[rows, at], atol=1e-4)


def test_bad_input():
    with pytest.raises(ValueError, match="`backbone` must be an `EncoderDecoderB"):
        tasks.TextToText(make("GPT2"))
    task = tasks.TextToText(make("Bart"))
    x, y, weights = texts(task, 4)
    with pytest.raises(ValueError, match="`y` .*-1"):
        task.fit(x, y - y[0, 0] - 1, verbose=0)
    with pytest.raises(ValueError, match="`decoder_token_ids`.*30"):
        task.predict({**x, "decoder_token_ids": y * 0 + 30}, verbose=0)
    with pytest.raises(ValueError, match="`decoder_position_ids`.*max_sequence_length"):
        task.predict({**x, "decoder_position_ids": y * 0 + 16}, verbose=0)
    with pytest.raises(ValueError, match="`sample_weight`.*finite"):
        task.fit(x, y, sample_weight=weights * np.nan, verbose=0)
    with pytest.raises(ValueError, match="`y` must be the labels"):
        task.fit(x, verbose=0)
