"""Texts with any number of classes, and scores between 0 and 1."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.layers.data.labels import class_numbers, class_sets
from keras_bertfam.tasks import (
    TextClassifier,
    TextClassifierPreprocessor,
    TextRegressor,
)
from keras_bertfam.tasks.losses import LabelSetCrossentropy
from tests import tiny_fine_tuning as tiny

NAMES = ["good", "bad", "long"]
TEXTS = ["the cat", "a dog", "the cat sat", "dog", "a cat", "the dog sat"]
LISTS = [["good"], ["bad", "long"], [], ["long", "good"], ["bad"], NAMES]
HOT = np.array([[name in row for name in NAMES] for row in LISTS], "float32")


def make(cls=TextClassifier, **kwargs):
    preprocessor = cls.preprocessor_cls(tiny.make_tokenizer(), 16, buckets=(16,))
    backbone = tiny.make_backbone(num_layers=1)
    return tiny.compiled(cls(backbone, preprocessor=preprocessor, **kwargs))


def rows(labels):
    return tf.data.Dataset.from_generator(
        lambda: zip(TEXTS, labels, strict=True),
        output_signature=(
            tf.TensorSpec((), tf.string),
            tf.TensorSpec([None], tf.string),
        ),
    )


def make_preprocessor():
    return TextClassifierPreprocessor(
        tiny.make_tokenizer(), 16, label_names=NAMES, buckets=(16,), multi_label=True
    )


@pytest.mark.any_backend
def test_labels_are_lists_or_zeros_and_ones():
    preprocessor = make_preprocessor()
    numbers = [[NAMES.index(name) for name in row] for row in LISTS]
    ragged = tf.ragged.constant(LISTS)
    for labels in (LISTS, ragged, numbers, HOT, HOT.astype(int), HOT.astype(bool)):
        y = preprocessor.as_labels(labels, TEXTS)
        assert y.dtype == tf.float32
        np.testing.assert_array_equal(y, HOT)
    y = preprocessor.as_labels(["bad", "long"], "a dog")
    np.testing.assert_array_equal(y, HOT[1])
    y = preprocessor.as_labels([[], []], ["a"] * 2)
    np.testing.assert_array_equal(y, 0 * HOT[:2])
    for labels, message in (
        ([["good"], ["odd"]], r"label_names=.*Received: \[b'odd'\], first in row 1"),
        ([[0], [3]], r"num_classes=3.*Received: \[3\], first in row 1"),
        (["good", "bad"], "a list of labels for each example. Received: 'good'"),
        (np.full((2, 3), 0.5), "zeros and ones"),
        (np.zeros(2), "a list of labels for each example"),
        ([[0.5], []], "must be integers"),
    ):
        with pytest.raises(ValueError, match=message):
            preprocessor.as_labels(labels, ["a", "b"])


@pytest.mark.slow
@pytest.mark.any_backend
def test_labels_in_datasets():
    preprocessor = make_preprocessor()
    np.testing.assert_array_equal(preprocessor(TEXTS, LISTS)[1], HOT)
    np.testing.assert_array_equal(preprocessor("a dog", ["bad", "long"])[1], HOT[1])
    data = preprocessor.dataset(rows(LISTS), batch_size=6, training=False)
    np.testing.assert_array_equal(next(iter(data))[1], HOT)
    ragged = tf.data.Dataset.from_tensors((TEXTS, tf.ragged.constant(LISTS)))
    np.testing.assert_array_equal(next(iter(ragged.map(preprocessor)))[1], HOT)


@pytest.mark.slow
def test_fits_evaluates_classifies_and_comes_back(tmp_path):
    model = make(label_names=NAMES, multi_label=True, dropout=0.0)
    model.fit(TEXTS, LISTS, epochs=2, batch_size=6, verbose=0)
    scores = model.evaluate(TEXTS, LISTS, batch_size=6, verbose=0, return_dict=True)
    logits = model.predict(TEXTS, batch_size=6, verbose=0)
    p = 1 / (1 + np.exp(-logits))
    guess = p >= 0.5
    loss = -np.log(np.where(HOT, p, 1 - p)).mean()
    f1 = 2 * (guess * HOT).sum() / (guess.sum() + HOT.sum())
    expected = {"loss": loss, "accuracy": (guess == HOT).mean(), "micro_f1": f1}
    assert scores == pytest.approx(expected, abs=1e-5)
    for row, expected in zip(model.classify(TEXTS), p, strict=True):
        assert row == sorted(row, key=lambda pair: -pair[1])
        found = dict(row)
        np.testing.assert_allclose([found[n] for n in NAMES], expected, atol=1e-5)
    report = model.report(TEXTS, LISTS)
    right = (guess == HOT).all(1)
    assert report.scores["exact_match"] == pytest.approx(right.mean())
    assert report.scores["micro_f1"] == pytest.approx(f1)
    assert len(report.errors) == (~right).sum() and report.confusion is None
    sets = {text: names for text, names in zip(TEXTS, LISTS, strict=True)}
    for error in report.errors:
        assert {*error["true"]} == {*sets[error["text"]]} != {*error["predicted"]}
    assert report.classes["good"]["support"] == 3
    model.save_to_preset(str(tmp_path))
    again = TextClassifier.from_preset(str(tmp_path))
    assert again.multi_label and again.preprocessor.multi_label
    np.testing.assert_allclose(again.predict(TEXTS, verbose=0), logits, atol=1e-5)
    same = make(label_names=NAMES, multi_label=True, activation="sigmoid")
    same.set_weights(model.get_weights())
    x = {k: np.array(v) for k, v in same.preprocessor(TEXTS).items()}
    np.testing.assert_allclose(ops.convert_to_numpy(same(x)), p, atol=1e-5)


@pytest.mark.slow
def test_scores_between_0_and_1(tmp_path):
    model = make(TextRegressor, activation="sigmoid", dropout=0.0)
    pairs, y = (TEXTS, TEXTS[::-1]), [1.0, 0.0, 0.25, 0.5, 0.0, 1.0]
    scores = model.evaluate(pairs, y, verbose=0, return_dict=True)
    p = model.predict(pairs, verbose=0)
    assert np.all((p > 0) & (p < 1))
    expected = -(y * np.log(p) + (1 - np.array(y)) * np.log(1 - p)).mean()
    assert scores["loss"] == pytest.approx(expected, abs=1e-5)
    model.save_to_preset(str(tmp_path))
    again = TextRegressor.from_preset(str(tmp_path))
    np.testing.assert_allclose(again.predict(pairs, verbose=0), p, atol=1e-6)


def test_errors():
    with pytest.raises(
        ValueError, match="single class is always right.*Regressor.*multi"
    ):
        make(num_classes=1)
    assert make(num_classes=1, multi_label=True).num_classes == 1
    with pytest.raises(ValueError, match='`None` or "sigmoid"'):
        make(num_classes=2, multi_label=True, activation="softmax")
    model = make(num_classes=2, multi_label=True)
    with pytest.raises(ValueError, match="`class_weight` must be `None`"):
        model.fit(TEXTS, [[0]] * 6, class_weight={0: 2.0})
    model.preprocessor.packed = True
    with pytest.raises(ValueError, match="`packed` must be `False`"):
        TextClassifier(model.backbone, 2, model.preprocessor, multi_label=True)
    with pytest.raises(ValueError, match="a 0 or 1 for each class"):
        LabelSetCrossentropy()(np.zeros((2, 1)), np.zeros((2, 3)))


def test_zeros_and_ones_in_lists():
    """They would be read as the classes 0 and 1."""
    for wrong in ([[1, 0, 1], [0, 0, 1]], [[0, 0], [1]]):
        with pytest.raises(ValueError, match="each class once, or an array of zero"):
            class_sets(tf.ragged.constant(wrong), 3)
    names = class_sets(tf.ragged.constant([["a", "a"], ["b"]]), 2, ["a", "b"])
    assert names.numpy().tolist() == [[1, 0], [0, 1]]


def test_labels_beyond_32_bits():
    with pytest.raises(ValueError, match=r"`y` must be in \[0, num_classes=2\)"):
        class_numbers(tf.constant([0, 2**32 + 1]), 2)
