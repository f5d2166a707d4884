"""SavedModels of the fine-tuning tasks, asked in a process of their own."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.analysis import prune_heads
from keras_bertfam.export import export_saved_model
from keras_bertfam.layers import train_sentence_piece
from keras_bertfam.models import AlbertBackbone
from keras_bertfam.serving import without_padding
from tests import tiny_dual_encoder
from tests import tiny_fine_tuning as tiny

# Imports nothing but TensorFlow, as a server does.
CLIENT = """
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text
served = tf.saved_model.load(sys.argv[1]).signatures
answers = []
for name, inputs in json.loads(sys.argv[2]):
    inputs = {key: tf.constant(value) for key, value in inputs.items()}
    outputs = served[name](**inputs)
    answers.append({
        key: (np.char.decode(value.numpy().astype("S"), "utf-8", "ignore")
              if value.dtype == tf.string else value.numpy()).tolist()
        for key, value in outputs.items()
    })
assert not {"keras_hub", "keras_bertfam"} & set(sys.modules)
print(json.dumps(answers))
"""
TEXTS, PAIRS = ["the cat sat", "a dog", ""], ["a mat", "", "red hat and a tree"]


def ask(path, *requests):
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, path, json.dumps(requests)],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(__file__),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def as_rows(model, x, *names):
    """A request of the signature `token_ids`, of the preprocessor's rows."""
    rows = model.preprocessor(x, None)
    inputs = {name: np.asarray(rows[name]).tolist() for name in names}
    return "token_ids", inputs


def softmax(logits):
    return ops.convert_to_numpy(ops.softmax(logits))


def outputs(model, x):
    rows = model.preprocessor(x, None)
    rows = {name: np.asarray(value) for name, value in rows.items()}
    return ops.convert_to_numpy(model(rows, training=False))


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.any_backend  # TensorFlow reads the preset
def test_classifier(tmp_path):
    preprocessor = tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    model = tasks.TextClassifier(
        tiny.make_backbone(num_layers=1),
        preprocessor=preprocessor,
        label_names=["no", "yes"],
    )
    path = export_saved_model(model, str(tmp_path / "1"))
    both = (TEXTS, PAIRS)
    single, pairs, rows = ask(
        path,
        ("serving_default", {"text": TEXTS}),
        ("pairs", {"text": TEXTS, "text_pair": PAIRS}),
        as_rows(model, both, "token_ids", "segment_ids"),
    )
    for answers, x in ((single, TEXTS), (pairs, both), (rows, both)):
        logits = outputs(model, x)
        np.testing.assert_allclose(answers["probabilities"], softmax(logits), atol=1e-5)
        assert answers["label_ids"] == logits.argmax(1).tolist()
        assert answers["labels"] == [["no", "yes"][k] for k in logits.argmax(1)]


@pytest.mark.slow
def test_a_classifier_of_label_sets_names_all_that_hold(tmp_path):
    keras.utils.set_random_seed(0)
    names = ["red", "big", "old"]
    model = tasks.TextClassifier(
        tiny.make_backbone(num_layers=1, initializer_range=1.0),
        preprocessor=tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16),
        label_names=names,
        multi_label=True,
    )
    path = export_saved_model(model, str(tmp_path / "1"))
    served = tf.saved_model.load(path).signatures["serving_default"]
    found = {name: x.numpy() for name, x in served(text=tf.constant(TEXTS)).items()}
    held = outputs(model, TEXTS) >= 0
    assert 0 < held.sum() < held.size
    np.testing.assert_array_equal(found["probabilities"] >= 0.5, held)
    np.testing.assert_array_equal(found["label_ids"], np.where(held, range(3), -1))
    np.testing.assert_array_equal(
        np.char.decode(found["labels"].astype("S")), np.where(held, names, "")
    )


UNUSED = {
    "top_k": 3,
    "max_length": 9,
    "sampler": "greedy",
    "stop_token_ids": np.array([3, 4]),
    "settings": tasks.GenerationSettings(),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("option", [*UNUSED, "max_input_tokens"])
def test_an_option_without_use_is_refused(option, tmp_path):
    given = {option: {**UNUSED, "max_input_tokens": 9}[option]}
    classifier = tasks.TextClassifier(tiny.make_backbone(num_layers=1), num_classes=2)
    masked_lm = tasks.MaskedLM(tiny.make_backbone(num_layers=1))
    refusing = {
        "top_k": [classifier, classifier.backbone],
        "max_input_tokens": [tiny_dual_encoder.make_model()],
    }.get(option, [classifier, masked_lm])
    for model in refusing:
        with pytest.raises(ValueError, match=f"`{option}` must be left out for a"):
            export_saved_model(model, str(tmp_path / "1"), **given)


@pytest.mark.any_backend
@pytest.mark.slow
def test_a_pruned_classifier_is_as_small_as_its_weights(tmp_path):
    preprocessor = tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    backbone = tiny.make_backbone(head_dim=256, initializer_range=0.3)
    whole = tasks.TextClassifier(backbone, 2, preprocessor)
    model = prune_heads(whole, {0: [1], 1: [0, 1]})
    path = export_saved_model(model, str(tmp_path / "1"))
    (answers,) = ask(path, ("serving_default", {"text": TEXTS}))
    expected = softmax(outputs(model, TEXTS))
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    [variables] = (tmp_path / "1" / "variables").glob("variables.data*")
    size = variables.stat().st_size
    assert size == pytest.approx(4 * model.count_params(), rel=0.1)
    assert size < 2 * whole.count_params()


@pytest.mark.any_backend
@pytest.mark.slow
def test_sentence_piece(tmp_path):
    """In this process, which has the tokenizer's own model and loses its kernels."""
    documents = tf.data.Dataset.from_tensor_slices([*TEXTS, *PAIRS] * 9)
    tokenizer = train_sentence_piece(documents, 60)
    preprocessor = tasks.TextEmbedderPreprocessor(tokenizer, 16)
    sizes = tiny.SIZES | {"num_layers": 1, "embedding_dim": 8}
    backbone = AlbertBackbone(tokenizer.vocabulary_size(), **sizes)
    model = tasks.TextEmbedder(backbone, preprocessor)
    path = export_saved_model(model, str(tmp_path / "1"))
    served = tf.saved_model.load(path).signatures["serving_default"]
    keras.utils.set_random_seed(1)
    answers = served(text=tf.constant(TEXTS))
    expected = outputs(model, TEXTS)
    np.testing.assert_allclose(answers["embeddings"], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_regressor_and_embedder(tmp_path):
    tokenizer = tiny.make_tokenizer()
    regressor = tasks.TextRegressor(
        tiny.make_backbone(num_layers=1), tasks.TextRegressorPreprocessor(tokenizer, 16)
    )
    path = export_saved_model(regressor, str(tmp_path / "1"))
    request = ("pairs", {"text": TEXTS, "text_pair": PAIRS})
    (answer,) = ask(path, request)
    expected = outputs(regressor, (TEXTS, PAIRS))
    np.testing.assert_allclose(answer["scores"], expected, atol=1e-5)
    embedder = tasks.TextEmbedder(
        tiny.make_backbone(num_layers=1), tasks.TextEmbedderPreprocessor(tokenizer, 16)
    )
    path = export_saved_model(embedder, str(tmp_path / "2"))
    rows = as_rows(embedder, TEXTS, "token_ids", "segment_ids")
    for answer in ask(path, ("serving_default", {"text": TEXTS}), rows):
        np.testing.assert_allclose(
            answer["embeddings"], outputs(embedder, TEXTS), atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.any_backend
def test_an_embedder_with_prompts(tmp_path):
    preprocessor = tasks.TextEmbedderPreprocessor(
        tiny.make_tokenizer(), 5, truncate="start"
    )
    prompts = {"query": "the ", "document": "a a "}
    backbone = tiny.make_backbone(num_layers=1)
    embedder = tasks.TextEmbedder(backbone, preprocessor, prompts=prompts)
    path = export_saved_model(embedder, str(tmp_path / "1"))
    text = {"text": TEXTS}
    answers = ask(
        path, ("serving_default", text), ("queries", text), ("passages", text)
    )
    expected = [outputs(embedder, TEXTS)]
    expected += [
        embedder.encode(TEXTS, k, too_long="cut") for k in ("query", "passage")
    ]
    for answer, vectors in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer["embeddings"], vectors, atol=1e-5)
    assert np.abs(expected[0] - expected[2]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.any_backend
def test_cross_encoder(tmp_path):
    model = tasks.CrossEncoder(
        tiny.make_backbone(num_layers=1),
        tasks.CrossEncoderPreprocessor(tiny.make_tokenizer(), 16),
    )
    path = export_saved_model(model, str(tmp_path / "1"))
    served = tf.saved_model.load(path).signatures
    expected = model.predict((TEXTS, PAIRS), verbose=0)
    asked = {"query": tf.constant(TEXTS), "passage": tf.constant(PAIRS)}
    answer = served["serving_default"](**asked)["scores"]
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    rows = model.preprocessor((TEXTS, PAIRS), None)
    rows = {name: rows[name][:, 0] for name in ("token_ids", "segment_ids")}
    answer = served["token_ids"](**rows)["scores"]
    np.testing.assert_allclose(answer, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_token_classifier(tmp_path):
    words = [["the", "cats", "sat"], ["reding"], []]
    model = tasks.TokenClassifier(
        tiny.make_backbone(num_layers=1),
        num_classes=3,
        preprocessor=tasks.TokenClassifierPreprocessor(tiny.make_tokenizer(), 16),
    )
    path = export_saved_model(model, str(tmp_path / "1"))
    padded = [row + [""] * (4 - len(row)) for row in words]
    names = ("token_ids", "segment_ids")
    rows = as_rows(model, words, *names)
    answer, by_token = ask(path, ("serving_default", {"words": padded}), rows)
    logits = outputs(model, words)
    inputs = model.preprocessor(words, None)
    inputs = {name: np.asarray(inputs[name]) for name in (*names, "padding_mask")}
    expected = softmax(model(inputs, training=False))
    np.testing.assert_allclose(by_token["probabilities"], expected, atol=1e-5)
    best = np.where(inputs["padding_mask"], expected.argmax(-1), -1)
    assert by_token["label_ids"] == best.tolist()
    for row, sentence in enumerate(words):
        count = len(sentence)
        np.testing.assert_allclose(
            np.reshape(answer["probabilities"][row][:count], (count, 3)),
            softmax(logits[row, :count]),
            atol=1e-5,
        )
        best = logits[row, :count].argmax(-1).tolist()
        assert answer["label_ids"][row] == best + [-1] * (4 - count)
        assert answer["labels"][row] == [*map(str, best)] + [""] * (4 - count)
    long = ["the", "cats", "sat", "on"] * 8  # 10 pieces of 4 words, 14 in a row
    gaps = [["", "a", "", "dog"] + [""] * 28, long]
    (answer,) = ask(path, ("serving_default", {"words": gaps}))
    tagged = model.tag([["a", "dog"], long])
    assert answer["label_ids"][0][:5] == [-1, tagged[0][0][1], -1, tagged[0][1][1], -1]
    assert answer["label_ids"][1] == [label for _, label, _ in tagged[1]]
    np.testing.assert_allclose(
        np.max(answer["probabilities"][1], -1),
        [probability for _, _, probability in tagged[1]],
        atol=1e-5,
    )


@pytest.mark.slow
@pytest.mark.any_backend
def test_multiple_choice(tmp_path):
    preprocessor = tasks.MultipleChoicePreprocessor(tiny.make_tokenizer(), 24)
    model = tasks.MultipleChoice(tiny.make_backbone(num_layers=1), preprocessor)
    x = {
        "context": ["the cat sat", "a dog"],
        "question": ["the _ sat", ""],
        "choices": [["cat", "dog", "hat"], ["ran", "a red tree", "sat"]],
    }
    path = export_saved_model(model, str(tmp_path / "1"))
    rows = as_rows(model, x, "token_ids", "segment_ids")
    logits = outputs(model, x)
    for answer in ask(path, ("serving_default", x), rows):
        np.testing.assert_allclose(answer["probabilities"], softmax(logits), atol=1e-5)
        assert answer["choice"] == logits.argmax(1).tolist()


@pytest.mark.any_backend
def test_a_task_without_a_preprocessor_has_no_strings(tmp_path):
    model = tasks.TextClassifier(tiny.make_backbone(num_layers=1), 2)
    with pytest.raises((ValueError, RuntimeError), match="preprocessor"):
        export_saved_model(model, str(tmp_path / "1"))


def test_a_padding_token_inside_a_row_is_a_token_of_its_text():
    class GPT2:
        start_token_id = pad_token_id = end_token_id = 0

    ids = [[[5, 0, 6, 0, 0], [0, 0, 7, 8, 9]], [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]]
    found = without_padding(tf.constant(ids), GPT2())
    assert found.numpy().sum(-1).tolist() == [[3, 5], [0, 1]]
    assert found[0, 0].numpy().tolist() == [True, True, True, False, False]


@pytest.mark.any_backend
@pytest.mark.slow
def test_dual_encoder(tmp_path):
    model = tiny_dual_encoder.make_model(towers=2)
    path = export_saved_model(model, str(tmp_path / "1"))
    served = tf.saved_model.load(path).signatures
    texts = tf.constant(TEXTS)
    answers = served["serving_default"](text=texts)["embeddings"]
    np.testing.assert_allclose(answers, model.encode(TEXTS), atol=1e-5)
    titles = tf.constant(["", "red hat", ""])
    answers = served["passages"](title=titles, text=texts)["embeddings"]
    pairs = [TEXTS[0], ("red hat", TEXTS[1]), TEXTS[2]]
    np.testing.assert_allclose(answers, model.encode(pairs, "passage"), atol=1e-5)
