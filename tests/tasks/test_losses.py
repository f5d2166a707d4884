import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.tasks import CosineSimilarityError, MaskedCrossentropy, losses
from keras_bertfam.tasks.finetuning import embedding_losses, ranking_losses
from keras_bertfam.tasks.generation import language_model
from keras_bertfam.tasks.losses import (
    DetectionCrossentropy,
    Perplexity,
    TokenAccuracy,
    UnweightedAccuracy,
    WeightedMeanSquaredError,
)
from keras_bertfam.tasks.retrieval.open_question_answering import UnweightedShare


def batch():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 300, (4, 3))
    logits = rng.normal(size=(4, 3, 300)).astype("float32") * 3
    weights = np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]], "float32")
    return ids, logits, weights


def crossentropy(ids, logits):
    shifted = logits - logits.max(-1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -np.take_along_axis(log_probabilities, ids[..., None], -1)[..., 0]


def test_loss_against_numpy():
    ids, logits, weights = batch()
    losses = crossentropy(ids, logits)
    received = MaskedCrossentropy()(ids, logits, weights)
    assert float(received) == pytest.approx((losses * weights).sum() / 6, abs=1e-5)
    assert float(MaskedCrossentropy()(ids, logits)) == pytest.approx(
        losses.mean(), abs=1e-5
    )


def test_loss_is_float32_and_keeps_large_ids():
    # bfloat16 has no number between 256 and 258.
    ids = np.array([[257, 299]])
    logits = np.zeros((1, 2, 300), "float32")
    logits[0, 0, 257] = logits[0, 1, 299] = 30
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        loss = MaskedCrossentropy()(ids, ops.cast(logits, "bfloat16"))
    finally:
        keras.config.set_dtype_policy("float32")
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert float(loss) < 1e-3


def test_labels_of_too_few_axes_make_no_scores_of_logits():
    ids, logits = np.array([1, 2]), np.zeros((2, 3, 5), "float32")
    for read in (MaskedCrossentropy(), Perplexity().update_state):
        with pytest.raises(ValueError, match="`y_true` must be an id for each"):
            read(ids, logits)
    with pytest.raises(Exception):  # noqa: B017 (Keras's, another on each backend)
        TokenAccuracy().update_state(ids, logits)


def test_loss_of_probabilities():
    ids, logits, weights = batch()
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = exponents / exponents.sum(-1, keepdims=True)
    received = MaskedCrossentropy(from_logits=False)(ids, probabilities, weights)
    expected = float(MaskedCrossentropy()(ids, logits, weights))
    assert float(received) == pytest.approx(expected, abs=1e-4)


def test_detection_against_numpy():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (4, 5))
    logits = rng.normal(size=y.shape).astype("float32") * 3
    weights = rng.integers(0, 2, y.shape).astype("float32")
    probabilities = 1 / (1 + np.exp(-logits.astype("float64")))
    losses = -np.log(np.where(y, probabilities, 1 - probabilities))
    loss = DetectionCrossentropy()
    assert float(loss(y, logits)) == pytest.approx(losses.mean(), abs=1e-5)
    expected = (losses * weights).sum() / weights.sum()
    assert float(loss(y, logits, weights)) == pytest.approx(expected, abs=1e-5)
    # Sure and wrong, sure and right: neither infinite nor below 0.
    assert float(loss([[0, 1]], [[200.0, 200.0]])) == pytest.approx(100)


def test_squared_error_against_numpy():
    y, predicted = np.array([1.0, 5.0, 2.0]), np.array([3.0, 5.0, 0.0], "float32")
    weights = np.array([1.0, 3.0, 0.0])
    assert float(WeightedMeanSquaredError()(y, predicted)) == pytest.approx(8 / 3)
    assert float(WeightedMeanSquaredError()(y, predicted, weights)) == pytest.approx(1)


@pytest.mark.parametrize(
    "loss", [CosineSimilarityError, DetectionCrossentropy, WeightedMeanSquaredError]
)
def test_a_column_of_labels_is_one_for_each_example(loss):
    y, w = np.array([0.5, -0.5, 0.0]), np.array([1.0, 2.0, 3.0])
    predicted = np.array([0.0, 1.0, 2.0])
    if loss is CosineSimilarityError:
        predicted = np.random.default_rng(0).normal(size=(3, 2, 4))
    expected = loss()(y, predicted, w)
    received = loss()(y[:, None], predicted, w[:, None])
    assert float(received) == pytest.approx(float(expected))


def test_a_column_of_classes():
    logits = np.random.default_rng(0).normal(size=(3, 4))
    y, w = np.array([0, 3, 1]), np.array([1.0, 2.0, 0.0])
    expected = MaskedCrossentropy()(y, logits, w)
    received = MaskedCrossentropy()(y[:, None], logits, w[:, None])
    assert float(received) == pytest.approx(float(expected))


def test_no_masked_token_gives_zero():
    ids, logits, weights = batch()
    assert float(MaskedCrossentropy()(ids, logits, 0 * weights)) == 0


def test_perplexity_over_batches():
    ids, logits, weights = batch()
    metric = Perplexity()
    for rows in (slice(0, 1), slice(1, 4)):
        metric.update_state(ids[rows], logits[rows], weights[rows])
    expected = np.exp((crossentropy(ids, logits) * weights).sum() / 6)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "cls",
    [DetectionCrossentropy, MaskedCrossentropy, Perplexity, WeightedMeanSquaredError],
)
def test_serialisation(cls):
    other = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(cls())
    )
    assert type(other) is cls


@pytest.mark.any_backend
def test_saved_files_name_metrics_as_they_were_called():
    for name, cls in (
        ("AccuracyOfEach", losses.UnweightedAccuracy),
        ("ErrorOfEach", losses.UnweightedError),
        ("AccuracyOfLabels", losses.LabelSetAccuracy),
        ("F1OfLabels", losses.LabelSetF1),
        ("ShareOfEach", UnweightedShare),
    ):
        assert keras.saving.get_registered_object(f"keras_bertfam>{name}") is cls


@pytest.mark.parametrize(
    "cls",
    [
        cls
        for module in (losses, language_model, embedding_losses, ranking_losses)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, losses.WeightedMeanLoss)
    ],
)
def test_no_loss_takes_arguments_that_it_doesnt_know(cls):
    with pytest.raises(TypeError, match="reduction"):
        cls(reduction="sum")


@pytest.mark.any_backend
@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity, UnweightedAccuracy])
def test_slots_of_batches_of_all_widths_count_alike(metric):
    rng = np.random.default_rng(0)
    batches = [
        (
            rng.integers(0, 5, (2, width)),
            rng.normal(size=(2, width, 5)).astype("float32"),
            rng.integers(0, 2, (2, width)).astype("float32"),
        )
        for width in (8, 64, 3)
    ]
    found, flat = metric(), metric()
    for y, logits, weights in batches:
        found.update_state(y, logits, weights)
    joined = [
        np.concatenate([x.reshape(-1, *x.shape[2:]) for x in part])
        for part in zip(*batches, strict=True)
    ]
    flat.update_state(*joined)
    assert float(found.result()) == pytest.approx(float(flat.result()), rel=1e-5)
    rows = metric()
    rows.update_state(*batches[0][:2], np.array([1.0, 0.0], "float32"))
    first = metric()
    first.update_state(batches[0][0][:1], batches[0][1][:1])
    assert float(rows.result()) == pytest.approx(float(first.result()), rel=1e-5)


@pytest.mark.any_backend
def test_weights_of_rows():
    logits = np.random.default_rng(0).normal(size=(2, 2, 4)).astype("float32")
    loss, y = MaskedCrossentropy(), np.array([[1, 2], [3, 0]])
    expected = float(loss(y[:1], logits[:1]))
    for weights in ([1.0, 0.0], [[1.0], [0.0]]):
        assert float(loss(y, logits, np.array(weights))) == pytest.approx(expected)


def test_weights_of_more_axes_than_losses_are_refused():
    with pytest.raises(
        ValueError, match=r"of shape \(2,\). Received: shape=\(2, 3, 4\)"
    ):
        losses.weights_of(keras.ops.ones(2), keras.ops.ones((2, 3, 4)))
