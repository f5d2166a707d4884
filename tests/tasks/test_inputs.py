"""Ids, positions, labels and weights that no model can compute with are refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.tasks import (
    Distiller,
    MaskedLM,
    MaskedLMSentencePair,
    MultipleChoice,
    PermutationLM,
    ReplacedTokenDetection,
    SpanBoundaryLM,
    SpanQuestionAnswering,
    TextClassifier,
    TextEmbedder,
    TextRegressor,
    TokenClassifier,
)
from keras_bertfam.tasks.inputs import checked_batch
from tests import tiny_fine_tuning as tiny
from tests import tiny_masked_lm

ROWS, LENGTH, SLOTS = 4, 16, 3
VOCABULARY = 23
NAN = float("nan")


def values_of(model):
    return [ops.convert_to_numpy(variable) for variable in model.variables]


def equal(one, other):
    return all(map(np.array_equal, one, other))


def inputs(*names, shape=(ROWS, LENGTH)):
    slots = dict.fromkeys(names, np.ones((ROWS, SLOTS), "int32"))
    return {"token_ids": np.ones(shape, "int32"), **slots}


def with_value(array, value):
    """A copy with a value in its row 2."""
    array = array.astype("int32" if isinstance(value, int) else "float32")
    array[(2,) + (1,) * (array.ndim - 1)] = value
    return array


@pytest.fixture(scope="module")
def masked():
    return tiny_masked_lm.make_model()


def batch(name=None, value=None):
    """A batch of `masked`, with a value that isn't in its range."""
    x = {
        **inputs("mask_positions"),
        "segment_ids": np.zeros((ROWS, LENGTH), "int32"),
        "position_ids": np.tile(np.arange(LENGTH, dtype="int32"), (ROWS, 1)),
    }
    y, weights = np.ones((ROWS, SLOTS), "int32"), np.ones((ROWS, SLOTS), "float32")
    data = {**x, "y": y, "sample_weight": weights}
    if name is not None:
        data[name] = with_value(data[name], value)
    y, weights = data.pop("y"), data.pop("sample_weight")
    return data, y, weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("token_ids", 21, "vocabulary_size=21"),
        ("token_ids", -1, "vocabulary_size=21"),
        ("token_ids", 2.5, "vocabulary_size=21"),
        ("segment_ids", 2, "num_segments=2"),
        ("position_ids", 16, "max_sequence_length=16"),
        ("mask_positions", 16, "length=16"),
        ("y", 21, "vocabulary_size=21"),
        ("y", -100, "vocabulary_size=21"),
        ("y", NAN, "vocabulary_size=21"),
        ("sample_weight", NAN, None),
        ("sample_weight", float("inf"), None),
    ],
)
def test_a_value_out_of_its_range_is_refused_before_the_first_step(
    name, value, limit, masked
):
    x, y, weights = batch(name, value)
    expected = f"whole numbers in [0, {limit})" if limit else "finite numbers"
    message = f"`{name}` must be {expected}. Received: {value}, in row 2."
    before = values_of(masked)
    arrays = {"x": x, "y": y, "sample_weight": weights}
    stream = {"x": tf.data.Dataset.from_tensors((x, y, weights))}
    for data in (arrays, stream):
        with pytest.raises(ValueError) as error:
            masked.fit(**data, verbose=0)
        assert str(error.value) == message
    with pytest.raises(ValueError) as error:
        masked.train_on_batch(**arrays)
    assert str(error.value) == message
    assert equal(before, values_of(masked))


def test_all_ways_in_are_checked(masked):
    x, y, weights = batch("token_ids", 21)
    good = batch()
    stream = tf.data.Dataset.from_tensors((x, y, weights))
    message = "`token_ids` must be .*21, in row 2"
    for call in (
        lambda: masked.evaluate(x, y, sample_weight=weights, verbose=0),
        lambda: masked.evaluate(stream, verbose=0),
        lambda: masked.predict(x, verbose=0),
        lambda: masked.predict(stream.map(lambda x, *_: x), verbose=0),
        lambda: masked.predict_on_batch(x),
        lambda: masked.test_on_batch(x, y, weights),
        lambda: masked.test_on_batch(
            *tf.nest.map_structure(ops.convert_to_tensor, (x, y, weights))
        ),
        lambda: masked.fit(*good[:2], validation_data=(x, y), verbose=0),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.slow
def test_a_model_is_usable_after_an_error_in_any_step():
    """JAX's loop keeps the values while it runs, and gave them back at its end only."""
    model = tiny_masked_lm.make_model()
    good = tf.data.Dataset.from_tensors(batch())
    bad = tf.data.Dataset.from_tensors(batch("token_ids", 21))
    start = values_of(model)
    for method in (model.fit, model.evaluate, model.predict):
        for steps in (0, 2):
            data = good.repeat(steps).concatenate(bad)
            if method == model.predict:
                data = data.map(lambda x, *_: x)
            with pytest.raises(ValueError, match="token_ids"):
                method(data, verbose=0)
            assert all(np.isfinite(value).all() for value in values_of(model))
        assert not equal(start, values_of(model))  # of the steps before
        model.evaluate(good, verbose=0)

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    # A callback that reads the model in mid-epoch finds its values too.
    features = good.map(lambda x, *_: x)
    read = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: model.predict(features, verbose=0)
    )
    history = model.fit(good.repeat(2), callbacks=[read], verbose=0).history
    assert np.isfinite(history["loss"]).all()
    before = values_of(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(good, callbacks=[Stop()], verbose=0)
    assert not equal(before, values_of(model))
    # What `train_on_batch()` left isn't written back over newer values.
    model.train_on_batch(*batch())
    for variable, value in zip(model.variables, start, strict=True):
        variable.assign(value)
    with pytest.raises(ValueError, match="token_ids"):
        model.fit(bad, verbose=0)
    assert equal(start, values_of(model))
    assert np.isfinite(model.fit(good, verbose=0).history["loss"]).all()


def labelled(cls, *arguments, **kwargs):
    return cls(tiny.make_backbone(num_layers=1), *arguments, **kwargs)


def distiller():
    student, teacher = labelled(MaskedLM), labelled(MaskedLM)
    return Distiller(student, teacher)


CHOICES = (ROWS, 2, LENGTH)
PAIRS = {
    "masked_lm": np.ones((ROWS, SLOTS), "int32"),
    "sentence": np.ones(ROWS, "int32"),
}
SPANS = dict.fromkeys(("masked_lm", "span_boundary"), PAIRS["masked_lm"])
ONE_EACH = np.ones(ROWS, "int32")
BOUNDS = {**inputs("mask_positions"), "span_bounds": np.ones((ROWS, SLOTS, 2), "int32")}
SLOTTED = inputs("mask_positions", "mask_ids")
TASKS = {
    "classifier": (lambda: labelled(TextClassifier, 2), inputs(), ONE_EACH),
    "tagger": (
        lambda: labelled(TokenClassifier, 2),
        inputs("word_positions"),
        np.ones((ROWS, SLOTS), "int32"),
    ),
    "choice": (lambda: labelled(MultipleChoice), inputs(shape=CHOICES), ONE_EACH),
    "questions": (
        lambda: labelled(SpanQuestionAnswering),
        {**inputs(), "start_positions": ONE_EACH},
        np.ones((ROWS, 2), "int32"),
    ),
    "regressor": (lambda: labelled(TextRegressor), inputs(), ONE_EACH),
    "embedder": (lambda: labelled(TextEmbedder), inputs(shape=CHOICES), ONE_EACH),
    "pairs": (lambda: labelled(MaskedLMSentencePair), inputs("mask_positions"), PAIRS),
    "spans": (lambda: labelled(SpanBoundaryLM), BOUNDS, SPANS),
    "electra": (lambda: labelled(ReplacedTokenDetection), SLOTTED, None),
    "distiller": (distiller, inputs("mask_positions"), PAIRS["masked_lm"]),
    "xlnet": (
        lambda: PermutationLM(tiny.make_backbone("xlnet", num_layers=1)),
        inputs("mask_positions"),
        PAIRS["masked_lm"],
    ),
}


@pytest.fixture(scope="module")
def made():
    """Tasks by name, each made once."""
    return {}


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("task", "name", "value", "message"),
    [
        ("classifier", "y", 2, "num_classes=2"),
        ("tagger", "y", -1, "num_classes=2"),
        ("tagger", "word_positions", LENGTH, "length=16"),
        ("choice", "y", 2, "choices=2"),
        ("choice", "token_ids", VOCABULARY, "vocabulary_size=23"),
        ("questions", "y", LENGTH, "length=16"),
        ("questions", "start_positions", LENGTH, "length=16"),
        ("regressor", "y", NAN, "finite"),
        ("embedder", "y", NAN, "finite"),
        ("pairs", "y['masked_lm']", VOCABULARY, "vocabulary_size=23"),
        ("pairs", "y['sentence']", 2, "classes=2"),
        ("spans", "span_bounds", LENGTH, "length=16"),
        ("spans", "y['span_boundary']", VOCABULARY, "vocabulary_size=23"),
        ("electra", "mask_ids", VOCABULARY, "vocabulary_size=23"),
        ("distiller", "y", VOCABULARY, "vocabulary_size=23"),
        ("xlnet", "y", VOCABULARY, "vocabulary_size=23"),
        ("xlnet", "token_ids", 0.5, "vocabulary_size=23"),
    ],
)
def test_every_task_knows_its_ranges(task, name, value, message, made):
    make, x, y = TASKS[task]
    model = made.setdefault(task, make())
    assert checked_batch(model, x, y)[1] is y
    part, _, key = name.rstrip("']").partition("['")
    if key:
        y = {**y, key: with_value(y[key], value)}
    elif part == "y":
        y = with_value(y, value)
    else:
        x = {**x, part: with_value(x[part], value)}
    with pytest.raises(ValueError) as error:
        model.fit(x, y)
    assert str(error.value).startswith(f"`{name}` must be ")
    assert message in str(error.value) and "in row 2." in str(error.value)


@pytest.mark.any_backend
def test_labels_are_what_the_loss_takes():
    model = labelled(TextClassifier, 2)
    shares = np.tile(np.array([0.25, 0.75], "float32"), (ROWS, 1))
    model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    checked_batch(model, inputs(), shares)
    with pytest.raises(ValueError, match="`y` must be finite"):
        checked_batch(model, inputs(), with_value(shares, NAN))
    loss = keras.losses.SparseCategoricalCrossentropy
    model.compile(loss=loss(from_logits=True, ignore_class=-1))
    checked_batch(model, inputs(), -ONE_EACH)
    for sparse in (loss(from_logits=True), "sparse_categorical_crossentropy"):
        model.compile(loss=sparse)
        with pytest.raises(ValueError, match="num_classes=2"):
            checked_batch(model, inputs(), -ONE_EACH)
    # Whole numbers may be floats, as Keras takes them.
    checked_batch(model, inputs(), ONE_EACH.astype("float32"))


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "float64"])
def test_any_type_of_numbers(dtype, masked):
    x, y, _ = batch()
    x = {name: value.astype(dtype) for name, value in x.items()}
    checked_batch(masked, x, y)
    x["token_ids"][3, 4] = 21
    with pytest.raises(ValueError, match="21, in row 3"):
        checked_batch(masked, x, y)
    empty = {name: value[:0] for name, value in x.items()}
    checked_batch(masked, empty, y[:0])
