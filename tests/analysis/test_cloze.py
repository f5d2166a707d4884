import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import models, tasks
from keras_bertfam.analysis import cloze_facts
from keras_bertfam.analysis.cloze import ClozeReport, single_token_words
from keras_bertfam.analysis.fact_files import Facts
from keras_bertfam.tasks import TextEmbedder
from keras_bertfam.tokenizers import (
    train_byte_pair,
    train_sentence_piece,
    train_word_piece,
)
from tests import tiny_fine_tuning
from tests import tiny_masked_lm as tiny

FACTS = {
    "animals": Facts(
        [
            ("the [MASK] sat", "cat"),
            ("a [MASK] ran on the mat", "Dog"),
            ("the [MASK] saw [MASK]", "cat"),
            ("a [MASK] ran", "catdog"),
            ("a [MASK] ran", "horse"),
            ("a [MASK] ran", "[MASK]"),
            (f"{'the ' * 20}[MASK]", "cat"),
        ],
        kind="N-1",
    ),
    "colors": [("the [MASK] hat", "red"), ("a tree [MASK]", "blue")],
    "none": [("the [MASK]", "green")],
}


@pytest.fixture(scope="module")
def model():
    return tiny.make_model()


def scores(model, text):
    """Logits at the first mask of a text, a row of the whole vocabulary."""
    inputs = {k: np.asarray(v) for k, v in model.preprocessor.encode([text]).items()}
    mask = model.preprocessor.tokenizer.mask_token_id
    place = inputs["token_ids"][0].tolist().index(mask)
    return ops.convert_to_numpy(model(inputs, training=False))[0, place]


def rank(row, token, candidates):
    return sorted(candidates, key=lambda k: -row[k]).index(token) + 1


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [2, 64])
def test_ranks_are_those_by_hand(model, batch_size):
    report = cloze_facts(model, FACTS, batch_size=batch_size)
    tokenizer = model.preprocessor.tokenizer
    words = [*map(tokenizer.token_to_id, tiny.WORDS)]
    asked = [*FACTS["animals"][:3], *FACTS["colors"]]
    expected, typed = [], []
    for text, target in asked:
        token = tokenizer.token_to_id(target.lower())
        others = ("red", "blue") if target in ("red", "blue") else ("cat", "dog")
        row = scores(model, text)
        expected.append(rank(row, token, words))
        typed.append(rank(row, token, [*map(tokenizer.token_to_id, others)]))
    assert report.ranks["animals"].tolist() == expected[:3]
    assert report.ranks["colors"].tolist() == expected[3:]
    assert report.typed_ranks["animals"].tolist() == typed[:3]
    assert report.typed_ranks["colors"].tolist() == typed[3:]
    assert report.left_out == {"animals": 4, "colors": 0, "none": 1}
    assert report.candidates == len(tiny.WORDS)
    assert report.kinds == {"animals": "N-1", "colors": None, "none": None}
    [first, *_] = report.answers
    best = int(scores(model, asked[0][0])[words].argmax())
    assert first == {
        "relation": "animals",
        "text": "the [MASK] sat",
        "object": "cat",
        "predicted": tiny.WORDS[best],
        "rank": expected[0],
    }


@pytest.mark.slow
@pytest.mark.any_backend
def test_only_words_of_the_vocabulary_are_candidates(model):
    given = ["blue", "RED", "red", "unknown", "cat dog", "[MASK]", "[PAD]", "", "tree"]
    report = cloze_facts(model, FACTS, vocabulary=given)
    assert report.candidates == 3
    assert report.left_out == {"animals": 7, "colors": 0, "none": 1}
    ids = [*map(model.preprocessor.tokenizer.token_to_id, ("blue", "red", "tree"))]
    row = scores(model, "the [MASK] hat")
    assert report.ranks["colors"][0] == rank(row, ids[1], ids)
    words = ["blue", "red", "tree"]
    assert report.answers[0]["predicted"] == words[int(row[ids].argmax())]


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_tie_is_lost(model, monkeypatch, value):
    size = model.preprocessor.tokenizer.vocabulary_size()

    def logits(batch):
        return np.full((len(batch["token_ids"]), 1, size), value)

    monkeypatch.setattr(model, "masked_lm_logits", logits)
    report = cloze_facts(model, FACTS)
    assert report.ranks["colors"].tolist() == [len(tiny.WORDS)] * 2
    assert report.typed_ranks["colors"].tolist() == [2, 2]


@pytest.mark.any_backend
def test_short_facts_are_not_as_wide_as_long_ones(model, monkeypatch):
    shapes, logits = [], model.masked_lm_logits

    def seen(batch):
        shapes.append(batch["token_ids"].shape)
        return logits(batch)

    monkeypatch.setattr(model, "masked_lm_logits", seen)
    long = (f"{'the ' * 12}[MASK]", "cat")
    pairs = [long, ("[MASK]", "dog"), ("a [MASK]", "cat")]
    report = cloze_facts(model, {"a": pairs}, batch_size=2)
    assert shapes == [(2, 4), (2, 15)]
    assert [each["text"] for each in report.answers] == [text for text, _ in pairs]
    for (text, target), found in zip(pairs, report.ranks["a"], strict=True):
        ids = [*map(model.preprocessor.tokenizer.token_to_id, tiny.WORDS)]
        token = model.preprocessor.tokenizer.token_to_id(target)
        assert found == rank(scores(model, text), token, ids)


# Of each kind of tokenizer one family, and the families that have their own.
KINDS = {
    "word_piece": "Bert",
    "roberta": "Roberta",
    "modernbert": "ModernBert",
    "albert": "Albert",
    "deberta-v2": "DebertaV2",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
}
TEXTS = ["the cat sat on the red mat", "a dog and a bird met", "It's (42), unusually!"]


def trained(kind):
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 8)
    if kind == "word_piece":
        return train_word_piece(documents, 60)
    if kind in ("roberta", "modernbert"):
        return train_byte_pair(documents, 300, family=kind)
    return train_sentence_piece(documents, 60, family=kind)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer(kind):
    """Words are one token with the mark of a word; masks are each tokenizer's own."""
    tokenizer = trained(kind)
    words = single_token_words(tokenizer)
    assert "the" in words and len({*words}) == len(words)
    assert not {*words} & {*tokenizer.special_tokens} and "usual" not in words
    backbone = getattr(models, f"{KINDS[kind]}Backbone")(
        tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
    )
    preprocessor = tasks.MaskedLMPreprocessor(tokenizer, sequence_length=16)
    model = tasks.MaskedLM(backbone, preprocessor)
    # The head answers with one token, whatever it is asked.
    strings = model.token_strings()
    ids = np.asarray(preprocessor.encode(["on the mat"])["token_ids"])[0]
    [token] = [k for k in ids if strings[k].strip("▁ ") == "the"]
    bias = np.zeros(model.head.bias.shape)
    bias[token] = 1e3
    model.head.bias.assign(bias)
    facts = {"of the": [("cat on [MASK] mat", "the"), ("sat on [MASK].", "the")]}
    report = cloze_facts(model, facts)
    assert report.ranks["of the"].tolist() == [1, 1]
    assert report.answers[0]["predicted"] == "the"
    assert report.candidates == len(words)


@pytest.mark.any_backend
def test_report(tmp_path):
    ranks = {
        "a": np.array([1, 11, 2, 1]),
        "b": np.array([4]),
        "c": np.array([], int),
        "d": np.array([1]),
    }
    kinds = {"a": "N-1", "b": "N-1", "c": "N-M", "d": "1-1"}
    left_out = {"a": 0, "b": 1, "c": 3, "d": 0}
    typed = {**ranks, "b": np.array([1])}
    report = ClozeReport(ranks, typed, left_out, kinds, 50, [{}] * 6)
    of_a = (0.5, 0.75, (1 + 1 / 11 + 0.5 + 1) / 4, 0.5)
    scores = {name: tuple(each.values()) for name, each in report.scores.items()}
    assert scores["a"] == pytest.approx(of_a) and scores["b"] == (0, 1, 0.25, 1)
    assert np.isnan(scores["c"]).all()
    means = np.mean([scores["a"], scores["b"]], axis=0)
    assert scores["mean of N-1"] == pytest.approx(tuple(means))
    means = np.mean([scores["a"], scores["b"], scores["d"]], axis=0)
    assert scores["mean"] == pytest.approx(tuple(means))
    columns, rows = report.table()
    names = "relation,facts,left out,P@1,P@10,MRR,typed P@1"
    assert ",".join(columns) == names
    assert [row[:3] for row in rows] == [
        ["a", 4, 0],
        ["b", 1, 1],
        ["c", 0, 3],
        ["d", 1, 0],
        ["mean of N-1", 5, 1],
        ["mean of 1-1", 1, 0],
        ["mean", 6, 4],
    ]
    title = "P@1 0.5, the mean of 3 relation(s); 6 facts, 4 left out; 50 candidates"
    assert str(report).splitlines()[0] == title
    report.plot(tmp_path / "facts.png")
    assert (tmp_path / "facts.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.any_backend
def test_each_folder_has_a_mean():
    """A label, which is behind the name, may have a slash; those without have none."""
    firsts = {"x/A/P1": 1, "x/A/P2, team / speciality": 2, "x/B/test": 1, "own": 2}
    ranks = {name: np.array([rank]) for name, rank in firsts.items()}
    none, zeros = (dict.fromkeys(ranks, value) for value in (None, 0))
    report = ClozeReport(ranks, ranks, zeros, none, 9, [{}] * 4)
    precisions = [each["P@1"] for each in report.scores.values()]
    assert precisions == [1, 0, 1, 0, 0.5, 1, 0.5]
    assert [*report.scores][4:] == ["mean in x/A", "mean in x/B", "mean"]
    of_a = {name: ranks[name] for name in [*ranks][:2]}
    alone = ClozeReport(of_a, of_a, zeros, none, 9, [{}] * 2)
    assert [*alone.scores] == [*of_a, "mean"]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"facts": {}}, "`facts` must have at least one .* 0 facts, 16 words"),
        ({"facts": {"x": []}}, "`facts` must have at least one"),
        ({"facts": {"x": [("[MASK]", "green")]}}, "`facts` must have at least one"),
        ({"facts": {"x": ["ab"]}}, r"`facts` must have tuples .* 'x': 'ab'"),
        ({"facts": {"x": [("the cat", "cat")]}}, r"a text with \[MASK\]"),
        ({"facts": {"x": [("[MASK]", None)]}}, r"`facts` must have tuples"),
        ({"facts": {"x": [(f"{'the ' * 20}[MASK]", "cat")]}}, "isn't cut off"),
        *(
            ({"facts": {name: [("[MASK]", "cat")]}}, f"no relation .*: '{name}'")
            for name in ("mean", "mean of N-1", "mean in TREx")
        ),
        ({"facts": "nothing"}, "`path` must be of a folder"),
        ({"vocabulary": "cat"}, "`vocabulary` must be several strings"),
        ({"vocabulary": [1]}, "`vocabulary` must be strings"),
        ({"vocabulary": []}, "0 words"),
        ({"batch_size": 0}, "`batch_size` must be"),
    ],
)
def test_what_cannot_be_asked(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        cloze_facts(model, **{"facts": FACTS, **arguments})


@pytest.mark.any_backend
def test_who_cannot_be_asked(model):
    embedder = TextEmbedder(backbone=tiny_fine_tuning.make_backbone(num_layers=1))
    with pytest.raises(ValueError, match="`task` must be a masked .* TextEmbedder"):
        cloze_facts(embedder)
    bare = tasks.MaskedLM(model.backbone)
    with pytest.raises(ValueError, match="`task` must have a preprocessor"):
        cloze_facts(bare)
