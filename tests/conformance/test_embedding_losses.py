"""Losses of vectors against those of `sentence-transformers`, for the same vectors."""

import sys

import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks

pytestmark = pytest.mark.slow

ROWS, WIDTH = 6, 8


class Model:
    """What their losses ask of a model: nothing but its width."""

    def get_embedding_dimension(self):
        return WIDTH


def theirs(name, vectors, labels=None, guide=None, **kwargs):
    """A loss of `sentence-transformers` of given vectors, as a number."""
    pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    from sentence_transformers.sentence_transformer import losses

    cls = getattr(losses, name)
    columns = [torch.tensor(x) for x in vectors.transpose(1, 0, 2)]
    labels = None if labels is None else torch.tensor(labels)
    if name == "GISTEmbedLoss":  # its constructor asks for two tokenizers
        loss = cls.__new__(cls)
        torch.nn.Module.__init__(loss)
        loss.similarity_fct = torch.nn.CosineSimilarity(dim=-1)
        loss.cross_entropy_loss = torch.nn.CrossEntropyLoss()
        settings = {
            "temperature": 0.01,
            "margin_strategy": "absolute",
            "margin": 0.0,
            "contrast_anchors": True,
            "contrast_positives": True,
            "gather_across_devices": False,
            "must_retokenize": False,
            "model": columns,
            "guide": [torch.tensor(x) for x in guide.transpose(1, 0, 2)],
            **kwargs,
        }
        for key, value in settings.items():
            object.__setattr__(loss, key, value)
        module = sys.modules[cls.__module__]
        usual, module.embed_columns = module.embed_columns, lambda model, _: model
        try:
            return float(loss([{}] * len(columns), labels))
        finally:
            module.embed_columns = usual
    if name == "DistillKLDivLoss":
        kwargs = {"similarity_fct": _pairwise_dot, **kwargs}
    loss = cls(Model(), **kwargs)
    return float(loss.compute_loss_from_embeddings(columns, labels))


def _pairwise_dot(a, b):
    return (a * b).sum(-1)


def ours(loss, vectors, labels=None):
    if labels is None:
        labels = np.arange(vectors[..., 0].size, dtype="int32").reshape(ROWS, -1)
    return float(ops.convert_to_numpy(loss(labels, vectors)))


def vectors_of(seed, columns, width=WIDTH):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(ROWS, columns, width)).astype("float32")


@pytest.mark.parametrize("columns", [2, 4])
def test_in_batch_negatives(columns, seed):
    vectors, name = vectors_of(seed, columns), "MultipleNegativesRankingLoss"
    received = ours(tasks.InBatchNegatives(), vectors)
    assert received == pytest.approx(theirs(name, vectors), abs=1e-5)
    both = {
        "directions": ("query_to_doc", "doc_to_query"),
        "partition_mode": "per_direction",
    }
    received = ours(tasks.InBatchNegatives(50.0, symmetric=True), vectors)
    expected = theirs(name, vectors, scale=50.0, **both)
    assert received == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_guided_negatives(columns, margin, seed):
    vectors, guide = vectors_of(seed, columns), vectors_of(seed + 1, columns, 5)
    received = ours(tasks.GuidedNegatives(margin=margin), vectors, guide)
    expected = theirs("GISTEmbedLoss", vectors, guide=guide, margin=margin)
    assert received == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_losses_with_labels(seed):
    rng = np.random.default_rng(seed)
    pairs, four = vectors_of(seed, 2), vectors_of(seed, 4)
    grades = rng.integers(0, 4, ROWS).astype("float32")
    scores = rng.normal(size=(ROWS, 3)).astype("float32")
    received = ours(tasks.CoSENT(), pairs, grades)
    assert received == pytest.approx(theirs("CoSENTLoss", pairs, grades), rel=1e-5)
    received = ours(tasks.MarginError(), four, scores)
    assert received == pytest.approx(theirs("MarginMSELoss", four, scores), rel=1e-5)
    received = ours(tasks.ScoreDistillation(2.0), four, scores)
    expected = theirs("DistillKLDivLoss", four, scores, temperature=2.0)
    assert received == pytest.approx(expected, rel=1e-5)


def test_triplets(seed):
    vectors = vectors_of(seed, 3)
    received = ours(tasks.TripletMargin(5.0, "euclidean"), vectors)
    assert received == pytest.approx(theirs("TripletLoss", vectors), rel=1e-5)
