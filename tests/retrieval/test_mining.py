"""Hard negatives are what a search finds, less what answers."""

import numpy as np
import pytest

from keras_bertfam.retrieval import Index, mine_negatives

pytest.importorskip("faiss")

PASSAGES = ["zero", "one", ("two", "2"), "three", "four"]


class Encoder:
    """Texts as directions, 10 degrees from one to the next."""

    names = ("zero", "one", "two 2", "three", "four")

    def encode(self, texts, kind="query", batch_size=32):
        texts = [x if isinstance(x, str) else " ".join(x) for x in texts]
        angles = [np.radians(10 * self.names.index(x.rstrip("?"))) for x in texts]
        return np.stack([np.cos(angles), np.sin(angles)], 1).astype("float32")


@pytest.fixture
def index():
    return Index.build(PASSAGES, Encoder())


def test_what_is_no_negative(monkeypatch):
    class OfForms(Encoder):
        def encode(self, texts, *args):
            texts = [x.strip() if isinstance(x, str) else x for x in texts]
            texts = ["two 2" if x == "2" else x for x in texts]
            return super().encode(texts, *args)

    index = Index.build(PASSAGES, OfForms())
    rows = mine_negatives(index, ["zero", "zero ", "three"], ["one", "2", "four"], 1)
    # Neither the query itself, nor what answers an equal query, whatever its title.
    assert [*zip(*rows, strict=True)] == [
        ("zero", "one", "three"),
        ("zero ", "2", "three"),
        ("three", "four", "two 2"),
    ]


def test_best_ones_without_what_answers(index):
    rows = mine_negatives(
        index, ["zero?", "zero?", "four?"], ["zero", "one", "four"], 2
    )
    assert rows == (
        ["zero?", "zero?", "four?"],
        ["zero", "one", "four"],
        ["two 2", "two 2", "three"],
        ["three", "three", "two 2"],
    )


def test_an_answer_is_known_whatever_its_spaces(index, monkeypatch):
    whole = Encoder.encode
    monkeypatch.setattr(
        Encoder,
        "encode",
        lambda self, texts, *args: whole(
            self, [" ".join(text.split()) for text in texts], *args
        ),
    )
    found = mine_negatives(index, ["two 2?"], [" two  2 "], 4)
    assert "two 2" not in [negative for [negative] in found[2:]]


def test_margins(index):
    def first(**kwargs):
        return mine_negatives(index, ["zero?"], ["zero"], **kwargs)[2]

    assert first() == ["one"]  # .985
    assert first(margin=0.03) == ["two 2"]  # .940
    assert first(relative_margin=0.1) == ["three"]  # .866
    assert first(max_score=0.8) == ["four"]  # .766
    assert first(skip=3) == ["three"]
    drawn = {first(seed=seed)[0] for seed in range(20)}
    assert drawn == {"one", "two 2", "three", "four"}


def test_queries_with_too_few_are_left_out(index):
    rows = mine_negatives(index, ["zero?", "two 2?"], ["zero", PASSAGES[2]], margin=0.2)
    assert rows == (["zero?"], ["zero"], ["four"])
    with pytest.raises(ValueError, match="none of 1 has.*margin=0.5"):
        mine_negatives(index, ["zero?"], ["zero"], margin=0.5)


def test_errors(index):
    with pytest.raises(ValueError, match="equally many. Received: 1 and 2"):
        mine_negatives(index, ["zero?"], ["zero", "one"])
    with pytest.raises(ValueError, match="depth=2, skip=1, count=2"):
        mine_negatives(index, ["zero?"], ["zero"], 2, skip=1, depth=2)
    with pytest.raises(ValueError, match="`queries` must have at least one"):
        mine_negatives(index, [], [])
    index.encoder = None
    with pytest.raises(ValueError, match="must have its encoder"):
        mine_negatives(index, ["zero?"], ["zero"])
