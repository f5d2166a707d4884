"""Cross-encoders of `sentence-transformers`, in and out, and their losses."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from tests import small_bert_folder

library = pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

LONG = "a b c d e f a b c d e f"
QUERIES = ["a b", "c", "d e f a b c d e f", LONG, LONG[::-1]]
PASSAGES = [LONG, "", LONG[::-1], "f e d c b a f e d", LONG]


def write(folder, activation):
    """Write a folder with their library; their model."""
    base = small_bert_folder.write(
        folder / "base", cls="BertForSequenceClassification", num_labels=1
    )
    theirs = library.CrossEncoder(
        str(base), max_length=16, device="cpu", activation_fn=activation
    )
    theirs.save_pretrained(str(folder / "theirs"))
    return theirs


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_scores_of_their_folder_and_of_ours(activation, tmp_path):
    theirs = write(tmp_path, getattr(torch.nn, activation)())
    expected = theirs.predict(list(zip(QUERIES, PASSAGES, strict=True)))
    ours = tasks.CrossEncoder.from_preset(str(tmp_path / "theirs"))
    assert ours.activation == {"Sigmoid": "sigmoid"}.get(activation)
    assert ours.preprocessor.sequence_length == 16
    scores = ours.predict((QUERIES, PASSAGES), verbose=0)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    ranked = ours.rank("a b", PASSAGES[:4])
    by_them = theirs.rank("a b", PASSAGES[:4])
    assert [place for place, _ in ranked] == [hit["corpus_id"] for hit in by_them]
    ours.export_to_transformers(str(tmp_path / "ours"))
    back = library.CrossEncoder(str(tmp_path / "ours"), device="cpu", max_length=16)
    found = back.predict(list(zip(QUERIES, PASSAGES, strict=True)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_folder_that_names_no_activation(tmp_path):
    """Then `sentence-transformers` takes the sigmoid, too."""
    write(tmp_path, torch.nn.Sigmoid())
    path = tmp_path / "base" / "config.json"
    assert "activation" not in path.read_text()
    theirs = library.CrossEncoder(str(path.parent), device="cpu", max_length=16)
    expected = theirs.predict(list(zip(QUERIES, PASSAGES, strict=True)))
    ours = tasks.CrossEncoder.from_preset(str(path.parent))
    assert ours.activation == "sigmoid"
    scores = ours.predict((QUERIES, PASSAGES), verbose=0)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert tasks.TextRegressor.from_preset(str(path.parent)).activation is None


class Scores:
    """What their losses ask of a model, which gives the scores that it is made with."""

    device = "cpu"
    num_labels = 1

    def __init__(self, scores):
        self.scores = torch.tensor(scores)

    def preprocess(self, pairs, **kwargs):
        return {"places": torch.tensor([int(passage) for _, passage in pairs])}

    def __call__(self, tokens):
        return {"scores": self.scores[tokens["places"]][:, None]}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (tasks.LambdaLoss(), "LambdaLoss"),
        (tasks.PairwiseLogistic(), "RankNetLoss"),  # in bits
        (tasks.ListwiseCrossentropy(softmax_labels=True), "ListNetLoss"),
    ],
    ids=lambda x: getattr(x, "name", x),
)
@pytest.mark.parametrize("seed", range(3))
def test_losses_of_a_list(ours, theirs, seed):
    from sentence_transformers.cross_encoder import losses

    rng = np.random.default_rng(seed)
    scores = (3 * rng.normal(size=7)).astype("float32")
    labels = rng.integers(0, 3, 7).astype("float32")
    loss = getattr(losses, theirs)(Scores(scores))
    inputs = [["a query"], [[str(place) for place in range(7)]]]
    expected = float(loss(inputs, [torch.tensor(labels)]))
    found = float(ops.convert_to_numpy(ours(labels[None], scores[None])))
    found /= np.log(2) if theirs == "RankNetLoss" else 1
    assert found == pytest.approx(expected, rel=1e-5)
