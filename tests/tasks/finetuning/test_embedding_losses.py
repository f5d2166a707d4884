"""Losses of vectors against the few lines of NumPy that they are."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks

LOSSES = {
    "in_batch": lambda: tasks.InBatchNegatives(),
    "one_direction_more": lambda: tasks.InBatchNegatives(
        5.0, symmetric=True, margin=0.1, hard_negative_weight=0.5
    ),
    "inner_products": lambda: tasks.InBatchNegatives(1.0, normalize=False),
    "guided": lambda: tasks.GuidedNegatives(10.0),
    "cosent": lambda: tasks.CoSENT(),
    "cosine": lambda: tasks.CosineSimilarityError(),
    "triplet": lambda: tasks.TripletMargin(0.8),
    "euclidean": lambda: tasks.TripletMargin(0.8, distance="euclidean"),
    "margin": lambda: tasks.MarginError(),
    "scores": lambda: tasks.ScoreDistillation(2.0),
    "vectors": lambda: tasks.VectorDistillation(),
    "matryoshka": lambda: tasks.Matryoshka(
        tasks.InBatchNegatives(), [8, 4], weights=[1.0, 0.5]
    ),
}
COLUMNS = dict.fromkeys(("cosent", "cosine"), 2)


def ids(rows, columns):
    return np.arange(rows * columns, dtype="int32").reshape(rows, columns)


def example(name, rows=5, width=8, seed=0):
    """Vectors and what the loss takes as labels."""
    rng = np.random.default_rng(seed)
    columns = COLUMNS.get(name, 4)
    vectors = rng.normal(size=(rows, columns, width)).astype("float32")
    labels = {
        "guided": rng.normal(size=(rows, columns, 6)),
        "cosent": rng.integers(0, 6, rows),
        "cosine": rng.uniform(-1, 1, rows),
        "margin": rng.normal(size=(rows, columns - 1)),
        "scores": rng.normal(size=(rows, columns - 1)),
        "vectors": rng.normal(size=(rows, columns, width)),
    }
    y = labels[name].astype("float32") if name in labels else ids(rows, columns)
    return y, vectors


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def logsumexp(x):
    return np.log(np.exp(x.astype("float64")).sum(-1))


def in_batch(v, scale=20.0, normalize=True):
    v = unit(v) if normalize else v
    passages = np.concatenate([v[:, k] for k in range(1, v.shape[1])])
    scores = scale * v[:, 0] @ passages.T
    return (logsumexp(scores) - np.diag(scores)).mean()


def both_directions(v, scale=5.0, margin=0.1, weight=0.5):
    v, count = unit(v), len(v)
    passages = np.concatenate([v[:, k] for k in range(1, v.shape[1])])
    scores, own = scale * v[:, 0] @ passages.T, np.arange(count)
    scores[own, own] -= scale * margin
    for column in range(1, v.shape[1] - 1):
        scores[own, column * count + own] += weight
    back = scale * v[:, 1] @ v[:, 0].T
    back[own, own] -= scale * margin
    losses = [logsumexp(s) - s[own, own] for s in (scores, back)]
    return np.mean(losses)


def guided(v, guide, scale=10.0):
    v, guide, count = unit(v), unit(guide), len(v)

    def table(x):
        passages = np.concatenate([x[:, k] for k in range(1, x.shape[1])])
        return np.concatenate(
            [x[:, 0] @ passages.T, x[:, 0] @ x[:, 0].T, x[:, 1] @ x[:, 1].T], 1
        )

    ours, theirs, own = scale * table(v), table(guide), np.arange(count)
    out = theirs > theirs[own, own][:, None]
    for block in (-2 * count, -count):
        out[own, block + own] = True
    out[own, own] = False
    return (logsumexp(np.where(out, -1e9, ours)) - ours[own, own]).mean()


def cosent(v, y, scale=20.0):
    s = scale * (unit(v[:, 0]) * unit(v[:, 1])).sum(-1)
    terms = [s[j] - s[i] for i in range(len(y)) for j in range(len(y)) if y[i] > y[j]]
    return np.log1p(np.exp(np.asarray(terms, "float64")).sum())


def triplet(v, distance):
    near, far = distance(v[:, :1], v[:, 1:2]), distance(v[:, :1], v[:, 2:])
    return np.maximum(near - far + 0.8, 0).mean()


def divergence(v, y, temperature=2.0):
    ours = (v[:, :1] * v[:, 1:]).sum(-1) / temperature
    ours = ours - logsumexp(ours)[:, None]
    theirs = y / temperature - logsumexp(y / temperature)[:, None]
    return temperature**2 * (np.exp(theirs) * (theirs - ours)).sum(-1).mean()


def margin_error(v, y):
    s = (v[:, :1] * v[:, 1:]).sum(-1)
    return ((s[:, :1] - s[:, 1:] - y[:, :1] + y[:, 1:]) ** 2).mean()


BY_HAND = {
    "in_batch": lambda y, v: in_batch(v),
    "one_direction_more": lambda y, v: both_directions(v),
    "inner_products": lambda y, v: in_batch(v, 1.0, False),
    "guided": lambda y, v: guided(v, y),
    "cosent": lambda y, v: cosent(v, y),
    "cosine": lambda y, v: ((y - (unit(v[:, 0]) * unit(v[:, 1])).sum(-1)) ** 2).mean(),
    "triplet": lambda y, v: triplet(v, lambda a, b: 1 - (unit(a) * unit(b)).sum(-1)),
    "euclidean": lambda y, v: triplet(v, lambda a, b: np.linalg.norm(a - b, axis=-1)),
    "margin": lambda y, v: margin_error(v, y),
    "scores": lambda y, v: divergence(v, y),
    "vectors": lambda y, v: ((y - v) ** 2).mean(),
    "matryoshka": lambda y, v: in_batch(v) + 0.5 * in_batch(v[..., :4]),
}


def value(loss, *args):
    return float(ops.convert_to_numpy(loss(*args)))


@pytest.mark.parametrize("name", LOSSES)
def test_by_hand(name, seed):
    y, vectors = example(name, seed=seed)
    expected = BY_HAND[name](y, vectors)
    assert value(LOSSES[name](), y, vectors) == pytest.approx(expected, abs=2e-5)
    # Of packed rows, where examples are in slots.
    parts = [x[None] for x in (y, vectors)]
    weights = np.ones((1, len(y)), "float32")
    packed = value(LOSSES[name](), *parts, weights)
    assert packed == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_what_has_no_weight_is_no_candidate(name):
    y, vectors = example(name)
    weights = np.array([1, 1, 0, 1, 0], "float32")
    there = weights > 0
    received = value(LOSSES[name](), y, vectors, weights)
    expected = value(LOSSES[name](), y[there], vectors[there])
    assert received == pytest.approx(expected, abs=1e-5)
    assert value(LOSSES[name](), y, vectors, 0 * weights) == 0


@pytest.mark.parametrize("name", LOSSES)
def test_config(name):
    loss = LOSSES[name]()
    config = keras.saving.serialize_keras_object(loss)
    other = keras.saving.deserialize_keras_object(config)
    assert other.get_config() == loss.get_config()
    y, vectors = example(name)
    assert value(other, y, vectors) == value(loss, y, vectors)


def cosines_as(table):
    """Vectors of queries and passages with this table of inner products."""
    table = np.asarray(table, "float32")
    count = len(table)
    queries = np.eye(count, dtype="float32")
    return np.stack([queries, table.T], 1)


def test_golden_values():
    dot = {"normalize": False}
    table = cosines_as([[0.9, 0.3], [0.2, 0.8]])
    y = ids(2, 2)
    near = tasks.InBatchNegatives(1.0, **dot)
    assert value(near, y, table) == pytest.approx(0.437488, abs=1e-6)
    sharp = tasks.InBatchNegatives(20.0, **dot)
    other = cosines_as([[0.9, 0.7], [0.6, 0.8]])
    assert value(sharp, y, other) == pytest.approx(0.018150, abs=1e-5)
    both = tasks.InBatchNegatives(20.0, symmetric=True, **dot)
    assert value(both, y, table) == pytest.approx(1.46297e-5, abs=2e-6)
    right, scores = np.zeros((3, 2, 3), "float32"), (0.9, 0.5, 0.2)
    right[:, :, 0] = 1
    right[:, 1, 0], right[:, 1, 1] = scores, np.sqrt(1 - np.square(scores))
    labels = np.array([1, 0.5, 0], "float32")
    assert value(tasks.CoSENT(), labels, right) == pytest.approx(0.002811, abs=1e-5)
    labels = np.array([0, 1, 0.5], "float32")
    assert value(tasks.CoSENT(), labels, right) == pytest.approx(14.002477, abs=1e-4)


def test_equal_texts_are_no_negatives():
    y, vectors = example("in_batch", rows=3)
    loss = tasks.InBatchNegatives()
    # The second passage is that of the first query as well, the third query the first.
    y[1, 1], y[2, 0] = y[0, 1], y[0, 0]
    v = unit(vectors)
    passages = np.concatenate([v[:, k] for k in (1, 2, 3)])
    scores = 20 * v[:, 0] @ passages.T
    for row, column in ((0, 1), (1, 0), (0, 2), (2, 0)):
        scores[row, column] = -1e9
    expected = (logsumexp(scores) - np.diag(scores)).mean()
    assert value(loss, y, vectors) == pytest.approx(expected, abs=2e-5)


def test_copies_of_a_passage_are_no_negatives_of_a_guide():
    # Whatever the rounding: all examples have the same two texts, so nothing is left.
    for rows in (2, 7, 33):
        _, vectors = example("guided", rows)
        vectors[:] = vectors[:1]
        loss = tasks.GuidedNegatives(contrast_queries=False, contrast_passages=False)(
            vectors[:, :2], vectors[:, :2]
        )
        assert abs(float(ops.convert_to_numpy(loss))) < 1e-5


def test_errors():
    y, vectors = example("in_batch")
    floats = np.zeros(5, "float32")
    with pytest.raises(ValueError, match="`y` must be `None` for InBatchNegatives"):
        tasks.InBatchNegatives()(floats, vectors)
    with pytest.raises(ValueError, match=r"shape \(batch\) for CoSENT.*None"):
        tasks.CoSENT()(y[:, :2], vectors[:, :2])
    with pytest.raises(ValueError, match=r"\(batch, 3\) for MarginError.*\(batch\)"):
        tasks.MarginError()(floats, vectors)
    with pytest.raises(ValueError, match="at least 3 texts for TripletMargin.*of 2"):
        tasks.TripletMargin()(y[:, :2], vectors[:, :2])
    with pytest.raises(ValueError, match="a guide's vectors.*None"):
        tasks.GuidedNegatives()(y, vectors)
    with pytest.raises(ValueError, match=r"at most 8.*\[16\]"):
        tasks.Matryoshka(tasks.InBatchNegatives(), [16])(y, vectors)
    with pytest.raises(ValueError, match="VectorDistillation"):
        tasks.Matryoshka(tasks.VectorDistillation(), [4])
    with pytest.raises(ValueError, match="as many"):
        tasks.Matryoshka(tasks.CoSENT(), [4], weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="`scale`.*0"):
        tasks.InBatchNegatives(scale=0.0)
    with pytest.raises(ValueError, match="`distance`.*'dot'"):
        tasks.TripletMargin(distance="dot")
    with pytest.raises(ValueError, match="`temperature`"):
        tasks.ScoreDistillation(-1.0)
