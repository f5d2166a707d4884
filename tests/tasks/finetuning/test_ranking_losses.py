import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.tasks.finetuning.cross_encoder_preprocessor import GAP
from keras_bertfam.tasks.finetuning.ranking_losses import PointwiseOrListwise

LABELS = np.array([[2, 0, 1, 0], [0, 1, GAP, GAP], [0, 0, 0, GAP]], "float32")
SCORES = np.array([[0.3, 1, -2, 0.1], [2, 0.5, 9, 7], [1, 2, 3, 4]], "float32")
WEIGHTS = np.array([1, 2, 0.5], "float32")
LOSSES = [
    tasks.PointwiseCrossentropy,
    tasks.ListwiseCrossentropy,
    tasks.PairwiseLogistic,
    tasks.LambdaLoss,
]


def value(loss, labels, scores, weights=None):
    return float(ops.convert_to_numpy(loss(labels, scores, sample_weight=weights)))


def pointwise(labels, scores):
    p = 1 / (1 + np.exp(-scores))
    return -np.mean(labels * np.log(p) + (1 - labels) * np.log(1 - p))


def listwise(labels, scores):
    if not labels.sum():
        return 0.0
    shares = np.exp(scores) / np.exp(scores).sum()
    return -np.sum(labels / labels.sum() * np.log(shares))


def of_pairs(labels, loss):
    pairs = [
        (i, j) for i, a in enumerate(labels) for j, b in enumerate(labels) if a > b
    ]
    return np.mean([loss(i, j) for i, j in pairs]) if pairs else 0.0


def pairwise(labels, scores):
    return of_pairs(labels, lambda i, j: np.log1p(np.exp(scores[j] - scores[i])))


def lambda_loss(labels, scores, mu=10.0):
    gains = 2**labels - 1
    places = np.arange(1, len(labels) + 1)
    ideal = np.sum(np.sort(gains)[::-1] / np.log2(1 + places))
    place = {k: n + 1 for n, k in enumerate(np.argsort(-scores))}

    def loss(i, j):
        apart = abs(place[i] - place[j])
        near = 1 / np.log2(1 + apart) - 1 / np.log2(2 + apart)
        lower, upper = 1 / np.log2(1 + place[i]), 1 / np.log2(1 + place[j])
        weight = abs(gains[i] - gains[j]) / ideal * (mu * near + abs(lower - upper))
        return weight * np.log2(1 + np.exp(scores[j] - scores[i]))

    return of_pairs(labels, loss)


@pytest.mark.parametrize(
    ("loss", "oracle"),
    [
        (cls(), oracle)
        for cls, oracle in zip(
            LOSSES, (pointwise, listwise, pairwise, lambda_loss), strict=True
        )
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_losses_against_numpy(loss, oracle):
    there = LABELS >= 0
    rows = zip(LABELS, SCORES, there, strict=True)
    expected = [oracle(y[k].astype(float), s[k].astype(float)) for y, s, k in rows]
    found = value(loss, LABELS, SCORES, WEIGHTS)
    mean = np.sum(WEIGHTS * expected) / WEIGHTS.sum()
    assert found == pytest.approx(mean, rel=1e-5)
    # What fills a list up counts for nothing.
    other = np.where(there, SCORES, -50).astype("float32")
    assert value(loss, LABELS, other, WEIGHTS) == pytest.approx(found, rel=1e-6)


def test_shares_by_a_softmax():
    loss = tasks.ListwiseCrossentropy(softmax_labels=True)
    labels, scores = LABELS[0].astype(float), SCORES[0].astype(float)
    shares = np.exp(labels) / np.exp(labels).sum()
    expected = -np.sum(shares * np.log(np.exp(scores) / np.exp(scores).sum()))
    assert value(loss, LABELS[:1], SCORES[:1]) == pytest.approx(expected, rel=1e-5)


def test_margins_of_a_teacher_of_any_scale():
    loss = tasks.ScoreMargins()
    teacher = np.array([[-1, -4, -2, GAP]], "float32")
    expected = np.mean(np.square([0.3 - 1 - 3, 0.3 + 2 - 1]))
    assert value(loss, teacher, SCORES[:1]) == pytest.approx(expected, rel=1e-5)
    moved = np.where(teacher < -9, teacher, teacher + 7)
    assert value(loss, moved, SCORES[:1]) == pytest.approx(expected, rel=1e-5)


def test_one_passage_for_each_query():
    labels, scores = np.array([[1, 0.2], [0.5, -1]], "float32")[..., None]
    expected = np.mean([pointwise(*pair) for pair in zip(labels, scores, strict=True)])
    for loss in (tasks.PointwiseCrossentropy(), PointwiseOrListwise()):
        assert value(loss, labels, scores) == pytest.approx(expected, rel=1e-5)
    listed = value(PointwiseOrListwise(), LABELS, SCORES)
    assert listed == value(tasks.ListwiseCrossentropy(), LABELS, SCORES)
    for cls in (*LOSSES[1:], tasks.ScoreMargins):
        with pytest.raises(ValueError, match="`x` must have a list of passages"):
            cls()(labels, scores)


@pytest.mark.parametrize("cls", [*LOSSES, tasks.ScoreMargins, PointwiseOrListwise])
def test_round_trip_and_nothing_undefined(cls):
    loss = keras.losses.deserialize(keras.losses.serialize(cls()))
    assert type(loss) is cls
    huge = np.array([[1e4, -1e4, 0, 3]] * 3, "float32")
    assert np.isfinite(value(loss, LABELS, huge))
    assert np.isfinite(value(loss, LABELS * 0, SCORES * 0))
    assert np.isfinite(value(loss, LABELS * 0 + GAP, SCORES))
