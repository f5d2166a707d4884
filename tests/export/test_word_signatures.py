"""SavedModels of ELMo and of what is on it, and of Transformer-XL."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.export import export_saved_model, saved_model
from keras_bertfam.export.signatures import serving_signatures
from keras_bertfam.models import FeatureBackbone
from tests import tiny_bidirectional_lm as elmo
from tests import tiny_fine_tuning, tiny_recurrent_lm
from tests.export.test_task_signatures import ask, softmax
from tests.tiny_fine_tuning import make_backbone
from tests.tiny_masked_lm import WORDS

TEXTS = ["the red cat sat", "a dog", "zebra " * 30]
# TensorFlow writes and reads them, from a process of its own under other backends.
pytestmark = pytest.mark.any_backend


def array(x):
    return ops.convert_to_numpy(x)


def traced(model, preprocessor, name, **inputs):
    """What a signature gives, without a file."""
    signature = serving_signatures(model, preprocessor)[name]
    found = signature.concrete()(**{k: tf.constant(x) for k, x in inputs.items()})
    return {name: x.numpy() for name, x in found.items()}


@pytest.mark.slow
def test_words_after_those_before_and_after_them(tmp_path):
    model = elmo.make_model(batch_size=None)
    path = export_saved_model(model, tmp_path / "1")
    signatures = tf.saved_model.load(path).signatures
    assert list(signatures) == ["serving_default", "words"]
    found = signatures["serving_default"](text=tf.constant(TEXTS))
    assert found["words"][1].numpy()[:4].tolist() == [b"<S>", b"a", b"dog", b"</S>"]
    assert found["words"].shape == (3, 32)  # longer than the rows of training
    inputs, targets, _ = model.preprocessor(TEXTS[:2])
    inputs = {name: x.numpy() for name, x in inputs.items()}
    logits = array(ops.log_softmax(model(inputs)))
    said = np.take_along_axis(logits, targets.numpy()[..., None], -1)[..., 0]
    for row, length in enumerate((6, 4)):
        forward, backward = (
            found[f"{name}_log_probabilities"][row].numpy()
            for name in ("forward", "backward")
        )
        last = length - 1
        np.testing.assert_allclose(
            forward[: length + 1], [0, *said[2 * row, :last], 0], atol=1e-5
        )
        expected = said[2 * row + 1, :last][::-1]
        np.testing.assert_allclose(backward[: length + 1], [*expected, 0, 0], atol=1e-5)
    words = tf.constant([["the", "red", "cat", "", "sat"]])
    alone = signatures["words"](words=words)
    np.testing.assert_allclose(
        alone["forward_log_probabilities"],
        found["forward_log_probabilities"][:1, :6],
        atol=1e-5,
    )
    nothing = signatures["serving_default"](text=tf.constant([""]))
    assert nothing["words"].numpy().tolist() == [[b"<S>", b"</S>"]]


@pytest.mark.slow
def test_backbones_alone(tmp_path):
    preset = tmp_path / "preset"
    backbone, tokenizer = elmo.make_backbone(), elmo.make_tokenizer()
    features = FeatureBackbone(backbone, lstm_dim=4)
    bert = FeatureBackbone(tiny_fine_tuning.make_backbone("bert"))
    words = tokenizer.split_words([f"<S> {TEXTS[0]} </S>"]).to_tensor()
    by_words = {"character_ids": tokenizer.characters(words).numpy()}
    known = tiny_fine_tuning.make_tokenizer()
    ids = {"token_ids": tasks.MaskedLMPreprocessor(known).encode(TEXTS[:1])}
    ids = {"token_ids": np.asarray(ids["token_ids"]["token_ids"])}
    for model, its, inputs in (
        (backbone, tokenizer, by_words),
        (features, tokenizer, by_words),
        (bert, known, ids),
    ):
        model.save_to_preset(preset)
        its.save_to_preset(preset)
        loaded, preprocessor = saved_model._load(preset)
        found = traced(loaded, preprocessor, "serving_default", text=TEXTS[:1])
        expected = model(inputs, return_hidden_states=True)
        np.testing.assert_allclose(
            found["sequence_output"], array(expected["sequence_output"]), atol=1e-5
        )
        assert found["padding_mask"].all()
        if model is backbone:
            states = np.stack([array(x) for x in expected["hidden_states"]], 1)
            np.testing.assert_allclose(found["hidden_states"], states, atol=1e-5)


@pytest.mark.slow
def test_fine_tuned_features():
    tokenizer = elmo.make_tokenizer()
    features = FeatureBackbone(elmo.make_backbone(), lstm_dim=4)
    classifier = tasks.TextClassifier(
        features,
        preprocessor=tasks.ElmoTextClassifierPreprocessor(tokenizer, 18),
        label_names=["no", "yes"],
    )
    rows = classifier.preprocessor((TEXTS, TEXTS[::-1]), None)
    rows = {name: np.asarray(x) for name, x in rows.items()}
    expected = softmax(classifier(rows, training=False))
    pairs = {"text": TEXTS, "text_pair": TEXTS[::-1]}
    characters = {"character_ids": rows["character_ids"]}
    for name, inputs in (("pairs", pairs), ("character_ids", characters)):
        found = traced(classifier, classifier.preprocessor, name, **inputs)
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)

    tagger = tasks.TokenClassifier(
        features,
        preprocessor=tasks.ElmoTokenClassifierPreprocessor(tokenizer, 10),
        label_names=["O", "B-x"],
    )
    words = [["the", "", "cat", *[""] * 17], ["a", "zebra"] * 10]
    found = traced(tagger, tagger.preprocessor, "serving_default", words=words)
    labels = np.char.decode(found["labels"].astype("S")).tolist()
    tagged = tagger.tag([[word for word in row if word] for row in words])
    assert labels[0][:3] == [tagged[0][0][1], "", tagged[0][1][1]]
    assert labels[1] == [label for _, label, _ in tagged[1]]


@pytest.mark.slow
def test_transformer_xl_writes(tmp_path):
    model = tiny_recurrent_lm.make_model(cutoffs=[8, 14], divisor=2)
    path = export_saved_model(model, str(tmp_path / "1"), max_length=14)
    texts = ["the cat", "a dog and the"]
    ids = [[5, 6, 7], [8, 9, 10]]
    mask = [[True] * 3, [True, True, False]]
    by_text, by_ids = ask(
        path,
        ("serving_default", {"text": texts}),
        ("token_ids", {"token_ids": ids, "padding_mask": mask}),
    )
    assert by_text["text"] == model.generate(texts, 14)
    expected = model.generate([[5, 6, 7], [8, 9]], 14)
    kept = zip(by_ids["token_ids"], by_ids["padding_mask"], strict=True)
    assert [np.array(row)[mask].tolist() for row, mask in kept] == expected
    backbone = tmp_path / "preset"
    model.backbone.save_to_preset(backbone)
    model.preprocessor.tokenizer.save_to_preset(backbone)
    loaded, preprocessor = saved_model._load(backbone)
    rows = {"token_ids": ids[:1], "padding_mask": mask[:1]}
    found = traced(loaded, preprocessor, "token_ids", **rows)
    expected = model.backbone({"token_ids": np.array(ids[:1])})["sequence_output"]
    np.testing.assert_allclose(found["sequence_output"], array(expected), atol=1e-5)


def asked(model, name, limit=None, **inputs):
    """What a signature's function gives, as it is."""
    signatures = serving_signatures(model, model.preprocessor, max_input_tokens=limit)
    inputs = {name: tf.constant(value) for name, value in inputs.items()}
    return {name: array(x) for name, x in signatures[name].function(**inputs).items()}


@pytest.mark.slow
def test_long_rows_are_cut_at_a_length_of_the_signature():
    model = elmo.make_model(batch_size=None)
    long, short = asked(model, "words", 3, words=[WORDS[:8]]), [WORDS[:3]]
    assert len(long["words"][0]) == 5
    same(long, asked(model, "words", words=short))
    same(asked(model, "serving_default", 3, text=[" ".join(WORDS[:8])]), long)
    tokenizer, backbone = tiny_fine_tuning.make_tokenizer(), make_backbone()
    ids = np.random.default_rng(0).integers(5, 10, (2, 3, 14)).astype("int32")
    segments = np.zeros_like(ids)
    labels = tasks.TextClassifierPreprocessor(tokenizer, 12)
    choices = tasks.MultipleChoicePreprocessor(tokenizer, 12)
    models = (
        (tasks.MaskedLM(backbone, tasks.MaskedLMPreprocessor(tokenizer, 12)), {}),
        (
            tasks.TextClassifier(backbone, 2, labels),
            {"segment_ids": segments[0]},
        ),
        (tasks.MultipleChoice(backbone, choices), {"segment_ids": segments}),
    )
    for model, rest in models:
        rows = {"token_ids": ids if np.ndim(rest.get("segment_ids")) == 3 else ids[0]}
        rows |= rest
        for limit, most in ((None, 12), (9, 9), (14, 14)):
            cut = {name: x[..., :most] for name, x in rows.items()}
            same(
                asked(model, "token_ids", limit, **rows),
                asked(model, "token_ids", 14, **cut),
            )
        with pytest.raises(ValueError, match="must be an int from 1 to"):
            asked(model, "token_ids", 10**4, **rows)


def same(found, expected):
    assert {*found} == {*expected}
    for name, value in found.items():
        if value.dtype == object:
            assert value.tolist() == expected[name].tolist()
        else:
            np.testing.assert_allclose(value, expected[name], atol=1e-5)
