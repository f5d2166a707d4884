"""Virtual adversarial training, beside a step that is computed by hand."""

import keras
import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.layers.blocks.perturbation import perturbing
from keras_bertfam.tasks.finetuning import adversarial
from tests.tiny_families import backbone_of

SIZES = {"vocabulary_size": 20, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
SIZES |= {"intermediate_dim": 12, "dropout": 0.0}
IDS = np.random.default_rng(0).integers(3, 20, (4, 4)).astype("int32")
X = {"token_ids": IDS, "padding_mask": np.ones(IDS.shape, bool)}


def numpy(x):
    return np.array(keras.ops.convert_to_numpy(x))


def randomized(task):
    random = np.random.default_rng(1)
    for variable in task.trainable_variables:
        variable.assign(random.normal(0, 0.5, variable.shape))
    return task


def classifier(cls=models.DebertaV2Backbone, **kwargs):
    settings = {"num_classes": 3, "head_style": "linear", "dropout": 0.0, **kwargs}
    return randomized(tasks.TextClassifier(cls(**SIZES), **settings))


@pytest.mark.parametrize("cls", [models.BertBackbone, models.DebertaV2Backbone])
def test_what_is_moved_is_the_normalised_embedding(cls):
    layer = randomized(tasks.TextClassifier(cls(**SIZES), num_classes=2)).backbone
    layer = layer.embeddings
    random = np.random.default_rng(2)
    for variable in layer.weights:
        variable.assign(random.normal(0, 1, variable.shape))
    delta = random.normal(0, 0.1, (4, 4, 8)).astype("float32")
    with perturbing(layer, delta):
        found = numpy(layer(IDS))
    sums = numpy(layer.token_embedding.embeddings)[IDS]
    if layer.position_table is not None:
        sums = sums + numpy(layer.position_table)[:4] + numpy(layer.segment_table)[0]
    states = sums
    for move in (delta, 0):
        states = states - states.mean(-1, keepdims=True)
        states = states / np.sqrt(states.var(-1, keepdims=True) + 1e-7) + move
    gamma, beta = numpy(layer.norm.gamma), numpy(layer.norm.beta)
    np.testing.assert_allclose(found, states * gamma + beta, atol=1e-4)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


@pytest.mark.slow
def test_a_step_by_hand(monkeypatch):
    """Noise, a step by a numerical gradient, both cross-entropies, and the update."""
    monkeypatch.setattr(adversarial, "STEP", 1e-2)
    task = classifier()
    noise = np.random.default_rng(3).normal(0, 0.02, (4, 4, 8)).astype("float32")
    monkeypatch.setattr(
        keras.random,
        "normal",
        lambda shape, stddev, seed: keras.ops.convert_to_tensor(noise),
    )
    task.compile(keras.optimizers.SGD(0.1), adversarial_weight=5.0, jit_compile=False)
    labels, weights = np.array([0, 2, 1, 1]), np.array([1.0, 1.0, 0.0, 1.0])
    layer, clean = task.backbone.embeddings, numpy(task(X))

    def moved(delta):
        with perturbing(layer, delta.astype("float32")):
            states = task.backbone(X)["sequence_output"]
            return numpy(task(X)), numpy(states)[:, 0]

    def change(delta):
        with perturbing(layer, delta.astype("float32")):
            logits = numpy(task(X))
        return -(softmax(clean) * np.log(softmax(logits))).sum(1)

    delta = np.clip(noise, -0.02, 0.02)
    gradient = np.zeros(delta.shape)
    for place in np.ndindex(*delta.shape[1:]):  # of all rows, which know no others
        away = np.zeros(delta.shape)
        away[:, *place] = 1e-2
        gradient[:, *place] = (change(delta + away) - change(delta - away)) / 2e-2
    largest = np.abs(gradient).max(-1, keepdims=True)
    there, states = moved(delta + 1e-2 * gradient / (1e-6 + largest))
    p, q = softmax(clean), softmax(there)
    both = -(p * np.log(q) + q * np.log(p)).sum(-1)
    usual = -np.log(p[np.arange(4), labels])
    expected = ((usual + 5 * both) * weights).sum() / 3
    kernel = numpy(task.head.logits.kernel)
    bias = numpy(task.head.logits.bias)
    first = numpy(task.backbone(X)["sequence_output"])[:, 0]
    # Evaluation has the usual loss only.
    usual = (usual * weights).sum() / 3
    found = task.test_on_batch(X, labels, weights, return_dict=True)["loss"]
    np.testing.assert_allclose(float(found), usual, rtol=1e-5)
    found = task.train_on_batch(X, labels, weights, return_dict=True)["loss"]
    np.testing.assert_allclose(float(found), expected, rtol=1e-3)
    # Both branches have a gradient, and targets none: at the bias they cancel out.
    errors = p - np.eye(3)[labels]
    of_first = errors + 5 * (p - q)
    of_states = 5 * (q - p)
    wanted = np.einsum("bi,bj,b->ij", first, of_first, weights)
    wanted = (wanted + np.einsum("bi,bj,b->ij", states, of_states, weights)) / 3
    update = kernel - numpy(task.head.logits.kernel)
    np.testing.assert_allclose(update, 0.1 * wanted, atol=2e-4)
    wanted = (errors * weights[:, None]).sum(0) / 3
    update = bias - numpy(task.head.logits.bias)
    np.testing.assert_allclose(update, 0.1 * wanted, atol=1e-5)


@pytest.mark.slow
def test_tasks_train_and_draw_anew():
    choices = {name: np.stack([part, part[::-1]], 1) for name, part in X.items()}
    spans = {**X, "word_positions": np.tile([[1, 3]], (4, 1)).astype("int32")}
    bert = models.BertBackbone
    for task, x, y in (
        (classifier(bert, activation="softmax"), X, np.array([0, 1, 2, 0])),
        (
            classifier(bert, multi_label=True),
            X,
            np.eye(3, dtype="float32")[[0, 1, 2, 0]],
        ),
        (tasks.TextRegressor(bert(**SIZES), dropout=0.0), X, np.arange(4.0)),
        (
            tasks.TextRegressor(bert(**SIZES), dropout=0.0, activation="sigmoid"),
            X,
            np.ones(4),
        ),
        (
            tasks.MultipleChoice(bert(**SIZES), dropout=0.0),
            choices,
            np.array([0, 1, 0, 1]),
        ),
        (tasks.TokenClassifier(bert(**SIZES), dropout=0.0, num_classes=2), X, IDS % 2),
        (
            tasks.RelationClassifier(bert(**SIZES), dropout=0.0, num_classes=2),
            spans,
            np.array([0, 1, 0, 1]),
        ),
    ):
        randomized(task).compile(keras.optimizers.SGD(0.0), adversarial_weight=5.0)
        usual, *losses = (
            float(step(x, y, return_dict=True)["loss"])
            for step in (task.test_on_batch, task.train_on_batch, task.train_on_batch)
        )
        assert np.isfinite(losses).all() and usual < min(losses), type(task)
        assert numpy(task.noise_seed.state)[1] == 2  # each step has drawn


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["T5", "XLNet", "ModernBert"])
def test_on_any_family(family):
    backbone = backbone_of(family)
    task = tasks.TextClassifier(backbone, num_classes=2, lm_weight=0.0)
    task.compile(keras.optimizers.SGD(0.1), adversarial_weight=3.0)
    rows = {"token_ids": np.array([[3, 4, 5, 6], [7, 8, 9, 3]], "int32")}
    rows["padding_mask"] = np.ones((2, 4), bool)
    loss = task.train_on_batch(rows, np.array([0, 1]), return_dict=True)["loss"]
    assert np.isfinite(float(loss))


@pytest.mark.any_backend
def test_what_is_refused_and_saved(tmp_path):
    task = classifier()
    task.compile(adversarial_weight=3.0)
    task.save(str(tmp_path / "task.keras"))
    again = keras.saving.load_model(str(tmp_path / "task.keras"))
    assert again.get_compile_config()["adversarial_weight"] == 3.0
    np.testing.assert_array_equal(numpy(again(X)), numpy(task(X)))
    task.compile()
    assert "adversarial_weight" not in task.get_compile_config()
    for weight in (-1.0, float("nan"), float("inf"), "5"):
        with pytest.raises(ValueError, match="`adversarial_weight` must be"):
            task.compile(adversarial_weight=weight)
    bert = models.BertBackbone(**SIZES)
    for other in (tasks.SpanQuestionAnswering, tasks.TextEmbedder, tasks.CrossEncoder):
        with pytest.raises(ValueError, match="that predicts classes or numbers"):
            other(bert).compile(adversarial_weight=1.0)
