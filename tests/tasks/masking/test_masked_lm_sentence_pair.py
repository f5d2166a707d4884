import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from keras import ops

from keras_bertfam.corpus import python_documentation
from keras_bertfam.layers import train_word_piece
from keras_bertfam.layers.heads.heads import SentencePairHead
from keras_bertfam.models import AlbertBackbone, BertBackbone, RobertaBackbone
from keras_bertfam.tasks import (
    MaskedLMPreprocessor,
    MaskedLMSentencePair,
    MaskedLMSentencePairPreprocessor,
)
from tests import tiny_sentence_pair as tiny

BACKEND = keras.backend.backend()
TEXTS = ["the cat [MASK] on the mat", "a [MASK]"]


@pytest.fixture
def model():
    return tiny.make_model()


@pytest.fixture
def batch(model):
    return next(iter(tiny.stream(model)))


def as_numpy(tree):
    return keras.tree.map_structure(ops.convert_to_numpy, tree)


def crossentropy(labels, logits):
    logits = logits.astype("float64")
    picked = np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return scipy.special.logsumexp(logits, axis=-1) - picked


def assert_same_answers(received, expected):
    for slots, others in zip(received, expected, strict=True):
        for slot, other in zip(slots, others, strict=True):
            assert [token for token, _ in slot] == [token for token, _ in other]
            np.testing.assert_allclose(
                [p for _, p in slot], [p for _, p in other], atol=1e-5
            )


@pytest.mark.slow
def test_loss_and_metrics_in_numpy(model, batch):
    x, y, w = as_numpy(batch)
    assert 0 < w["sentence"].sum() < 8  # some rows have no label
    out = as_numpy(model(x))
    assert {name: value.shape for name, value in out.items()} == {
        "masked_lm": (8, 5, 21),
        "sentence": (8, 2),
    }
    parts = {
        name: np.sum(w[name] * crossentropy(y[name], out[name])) / np.sum(w[name])
        for name in out
    }
    logs = model.evaluate(tf.data.Dataset.from_tensors(batch), return_dict=True)
    expected = {
        "loss": parts["masked_lm"] + 0.5 * parts["sentence"],
        "masked_lm_loss": parts["masked_lm"],
        "masked_lm_perplexity": np.exp(parts["masked_lm"]),
        "sentence_loss": parts["sentence"],
    }
    for name in out:
        right = out[name].argmax(-1) == y[name]
        expected[f"{name}_accuracy"] = np.sum(w[name] * right) / np.sum(w[name])
    assert logs == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_weights_of_the_losses(model, batch):
    x, y, w = as_numpy(batch)
    totals = []
    for weights in [(1, 1), (2, 0), (0, 3)]:
        other = MaskedLMSentencePair(model.backbone, None, "sop", *map(float, weights))
        other.set_weights(model.get_weights())
        loss = other.compute_loss(x, y, other(x), w)
        totals.append(float(ops.convert_to_numpy(loss)))
    np.testing.assert_allclose(totals[0], totals[1] / 2 + totals[2] / 3, rtol=1e-5)


@pytest.mark.slow
def test_only_asked_positions_are_projected(model, batch):
    x = as_numpy(batch[0])
    out = as_numpy(model(x))
    whole = as_numpy(model({k: v for k, v in x.items() if k != "mask_positions"}))
    picked = np.take_along_axis(whole["masked_lm"], x["mask_positions"][..., None], 1)
    np.testing.assert_allclose(out["masked_lm"], picked, atol=1e-5)
    np.testing.assert_allclose(out["sentence"], whole["sentence"], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(
            RobertaBackbone,
            marks=[pytest.mark.slow("release"), pytest.mark.any_backend],
        ),
        AlbertBackbone,
    ],
)
def test_any_backbone(cls):
    model = tiny.make_model("nsp", cls)
    assert (model.new_pooler is None) == (model.backbone.pooler is not None)
    x, y, w = as_numpy(next(iter(tiny.stream(model))))
    before = [ops.convert_to_numpy(v) for v in model.trainable_variables]
    for _ in range(2):  # the first has a learning rate of zero
        model.train_on_batch(x, y, w)
    for variable, old in zip(model.trainable_variables, before, strict=True):
        assert (ops.convert_to_numpy(variable) != old).any(), variable.path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "packing"),
    [
        pytest.param(
            "nsp",
            "segments",
            marks=[pytest.mark.slow("release"), pytest.mark.any_backend],
        ),
        ("sop", "sentences"),
    ],
)
def test_fit_on_real_text(objective, packing):
    texts = tf.data.Dataset.from_tensor_slices(python_documentation()[:12])
    tokenizer = train_word_piece(texts, 300)
    preprocessor = MaskedLMSentencePairPreprocessor(
        tokenizer, sequence_length=32, sentence_objective=objective
    )
    backbone = BertBackbone(300, 1, 2, 16, 32, max_sequence_length=32, dropout=0.0)
    model = MaskedLMSentencePair(backbone, preprocessor)
    model.compile(learning_rate=1e-2)
    data = preprocessor.pack(texts).cache()
    data = preprocessor.dataset(data, 16, packing=packing)
    history = model.fit(data.take(20), epochs=3, verbose=0).history
    assert history["masked_lm_loss"][-1] < history["masked_lm_loss"][0] - 0.2
    assert history["loss"][-1] == pytest.approx(
        history["masked_lm_loss"][-1] + history["sentence_loss"][-1], abs=0.05
    )


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_the_order_of_sentences_is_learned():
    """Alternating kinds of sentences, whose order only SOP can tell."""
    texts = ["\n".join(["the cat sat", "on a mat"] * 2)] * 40
    model = tiny.make_model("sop", initializer_range=0.3)
    model.compile(learning_rate=2e-2)
    data = model.preprocessor.dataset(
        tf.data.Dataset.from_tensor_slices(texts), 8, packing="sentences",
        break_lines=False,
    )  # fmt: skip
    history = model.fit(data, epochs=5, verbose=0).history
    assert history["sentence_accuracy"][-1] > 0.9


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_on_pairs_of_strings(model):
    first, second = ["the cat", "a dog sat", "red"], ["sat on", "and ran", "blue mat"]
    labels = np.array([0, 1, 0])
    history = model.fit((first, second), labels, batch_size=3, verbose=0).history
    assert np.isfinite(history["loss"]).all() and history["sentence_loss"][0] > 0.3
    outputs = model.predict((first, second), batch_size=3, verbose=0)
    assert outputs["sentence"].shape == (3, 2)
    # Three rows to a batch of two: two steps an epoch.
    model.compile(learning_rate=1e-3, jit_compile=keras.backend.backend() == "jax")
    model.fit((first, second), labels, batch_size=2, epochs=3, verbose=0)
    assert model.optimizer._learning_rate.total_steps == 6


@pytest.mark.slow
@pytest.mark.any_backend
def test_token_budget(model):
    data = tiny.stream(model, None, tokens_per_batch=64, training=False)
    sizes = {len(x["token_ids"]) for x, _, _ in data}
    assert len(sizes) > 1
    assert np.isfinite(model.evaluate(data, verbose=0)[0])


@pytest.mark.slow
def test_fill_mask(model):
    answers = model.fill_mask(TEXTS, top_k=3)
    assert [len(slots) for slots in answers] == [1, 1]
    assert all(len(slot) == 3 for slots in answers for slot in slots)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_mixed_precision():
    model = tiny.make_model(dtype="mixed_bfloat16")
    losses = model.fit(tiny.stream(model), epochs=3, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    x, _, _ = as_numpy(next(iter(tiny.stream(model))))
    assert {keras.backend.standardize_dtype(v.dtype) for v in model(x).values()} == {
        "float32"
    }


@pytest.mark.slow
def test_round_trips(tmp_path):
    model = tiny.make_model("sop", RobertaBackbone)  # which has no pooler
    x, y, w = as_numpy(next(iter(tiny.stream(model))))
    expected = as_numpy(model(x))
    model.save(tmp_path / "model.keras")
    preset = str(tmp_path / "preset")
    model.save_to_preset(preset)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for other in (loaded, MaskedLMSentencePair.from_preset(preset)):
        assert other.get_config() == model.get_config()
        assert (
            other.sentence_objective == other.preprocessor.sentence_objective == "sop"
        )
        for name, value in as_numpy(other(x)).items():
            np.testing.assert_allclose(value, expected[name], atol=1e-5)
        assert_same_answers(other.fill_mask(TEXTS), model.fill_mask(TEXTS))
    trained = [m.train_on_batch(x, y, w)[0] for m in (model, loaded)]
    np.testing.assert_allclose(*trained, rtol=1e-5)


def test_from_name():
    model = MaskedLMSentencePair.from_preset(
        "albert_base_en_uncased", load_weights=False, sentence_objective="sop"
    )
    assert isinstance(model.backbone, AlbertBackbone)
    table = model.backbone.token_embedding.count_params()
    heads = model.masked_lm_head.count_params() - table
    heads += model.sentence_head.count_params()
    assert model.backbone.count_params() + heads == 11_813_810


def test_errors(model):
    with pytest.raises(ValueError, match="`sentence_objective`.*'pos'"):
        MaskedLMSentencePair(model.backbone, sentence_objective="pos")
    with pytest.raises(ValueError, match="preprocessor's, 'sop'. Received: 'nsp'"):
        MaskedLMSentencePair(model.backbone, model.preprocessor, "nsp")
    with pytest.raises(ValueError, match="preprocessor's, None"):
        plain = MaskedLMPreprocessor(model.preprocessor.tokenizer)
        MaskedLMSentencePair(model.backbone, plain)


def test_head_is_serialisable():
    head = SentencePairHead(3, initializer="zeros")
    other = SentencePairHead.from_config(head.get_config())
    assert other.get_config() == head.get_config()
    assert ops.shape(other(np.ones((2, 4), "float32"))) == (2, 3)


@pytest.mark.slow
def test_three_classes(tmp_path):
    """Next, previous or random: StructBERT's objective, from texts to a step."""
    model = tiny.make_model("structural")
    batch = next(iter(tiny.stream(model)))
    x, y, weights = batch
    assert model(x)["sentence"].shape == (8, 3)
    assert set(y["sentence"].numpy()) <= {0, 1, 2}
    model.fit(tiny.stream(model), epochs=1, verbose=0)
    model.save_to_preset(str(tmp_path / "ours"))
    again = type(model).from_preset(str(tmp_path / "ours"))
    assert again.sentence_objective == "structural"
    assert again.preprocessor.sentence_objective == "structural"
    labels = {name: value.numpy() for name, value in y.items()}
    labels["sentence"] = np.full_like(labels["sentence"], 3)
    with pytest.raises(ValueError, match=r"in \[0, classes=3\). Received: 3"):
        model.fit({n: v.numpy() for n, v in x.items()}, labels, verbose=0)
    with pytest.raises(ValueError, match="no sentence objective of three classes"):
        model.export_to_transformers(tmp_path / "theirs")
