import dataclasses

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import distance

from keras_bertfam.analysis import head_roles, prune_heads
from keras_bertfam.analysis.heads.measures import (
    divergences,
    entropies,
    plane_of,
    word_attention,
)
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from tests import tiny_fine_tuning as tiny
from tests.tiny_masked_lm import SPECIALS, WORDS

VOCABULARY = [*SPECIALS, *WORDS, *tiny.PIECES, "."]
LONGEST, WIDTH, STRENGTH = 16, 24, 40.0
RARE, SEPARATOR, STOP = LONGEST, LONGEST + 1, LONGEST + 2
# "tree" is in each once, at changing places; in 2 pieces: cats, reding.
SENTENCES = [
    "the cats saw the tree .".split(),
    "a tree and a dog ran .",
    ["dog", "dog", "reding", "the", "the", "a", "a", "tree"],
]
HEADS = "previous uniform self rare separator again".split()
TO_TREE = [
    [(2, "det"), (5, "x"), (5, "x"), (5, "x"), (0, "root"), (5, "x")],
    [(2, "x"), (0, "root"), (2, "x"), (2, "x"), (2, "x"), (2, "x"), (2, "x")],
    [*[(8, "x")] * 7, (0, "root")],
]


@pytest.fixture(scope="module")
def backbone():
    """Heads of one layer, each made to look at one thing.

    States are one-hot positions, with a feature each for "tree", `[SEP]` and "."; keys
    are states, and so queries say what is looked for.
    """
    model = BertBackbone(
        len(VOCABULARY),
        num_layers=1,
        num_heads=len(HEADS),
        hidden_dim=WIDTH,
        head_dim=WIDTH,
        intermediate_dim=4,
        max_sequence_length=LONGEST,
    )
    tokens = np.zeros((len(VOCABULARY), WIDTH))
    for feature, token in {RARE: "tree", SEPARATOR: "[SEP]", STOP: "."}.items():
        tokens[VOCABULARY.index(token), feature] = 1
    embeddings = model.embeddings
    embeddings.token_embedding.embeddings.assign(tokens)
    embeddings.position_table.assign(np.eye(LONGEST, WIDTH))
    embeddings.segment_table.assign(np.zeros((2, WIDTH)))
    place = np.zeros((WIDTH, WIDTH))
    place[:LONGEST, :LONGEST] = np.eye(LONGEST)
    queries = dict.fromkeys(HEADS, np.zeros((WIDTH, WIDTH)))
    queries["self"] = place
    queries["previous"] = queries["again"] = np.roll(place, -1, axis=1)
    biases = dict.fromkeys(HEADS, np.zeros(WIDTH))
    biases["rare"], biases["separator"] = np.eye(WIDTH)[[RARE, SEPARATOR]]
    kernel = np.zeros((WIDTH, 3, len(HEADS), WIDTH))
    kernel[:, 0] = np.stack([queries[name] for name in HEADS], axis=1) * STRENGTH
    kernel[:, 1] = np.eye(WIDTH)[:, None]
    bias = np.zeros((3, len(HEADS), WIDTH))
    bias[0] = np.stack([biases[name] for name in HEADS]) * STRENGTH**1.3
    qkv = model.encoder.block(0)[0].sublayer.qkv
    qkv.kernel.assign(kernel.reshape(WIDTH, -1))
    qkv.bias.assign(bias.ravel())
    return model


@pytest.mark.slow
@pytest.mark.any_backend
def test_heads_have_the_roles_they_were_made_for(backbone, tmp_path):
    tokenizer = BertTokenizer(VOCABULARY, lowercase=True)
    counts = np.where(np.array(VOCABULARY) == "tree", 1, 9)
    roles = head_roles(
        backbone,
        SENTENCES,
        TO_TREE,
        token_counts=counts,
        tokenizer=tokenizer,
        batch_size=2,
    )
    assert roles.confidence.shape == (1, 6)
    found = dict(zip(HEADS, map(lambda h: roles.roles_of(0, h), range(6)), strict=True))
    assert found["previous"] == found["again"] == ["positional -1"]
    assert found["self"] == ["positional +0"]
    assert found["rare"] == ["syntactic x", "rare token"]
    assert found["uniform"] == found["separator"] == []
    confidence = dict(zip(HEADS, roles.confidence[0], strict=True))
    assert confidence["self"] > 0.99 and confidence["separator"] < 0.01
    patterns = {name: values[0] for name, values in roles.patterns.items()}
    assert patterns["previous"][HEADS.index("previous")] > 0.99
    assert patterns["self"][HEADS.index("self")] > 0.99
    assert patterns["separator"][HEADS.index("separator")] > 0.99
    assert patterns["separator_to_separator"][HEADS.index("separator")] > 0.99
    # Tokens: 7, 7 and 9 of words, and 2 more in each row.
    uniform, sizes = HEADS.index("uniform"), np.array([7, 7, 9])
    mean = np.average(1 / (sizes + 2), weights=sizes)
    for name in ("start", "separator", "self"):
        assert patterns[name][uniform] == pytest.approx(mean, abs=1e-5)
    dots = np.sum(1 / (sizes[:2] + 2) * sizes[:2]) / sizes.sum()
    assert patterns["punctuation"][uniform] == pytest.approx(dots, abs=1e-5)
    logs = np.average(np.log(sizes + 2), weights=sizes + 2)
    assert roles.entropy[0, uniform] == pytest.approx(logs, abs=1e-3)
    assert roles.distances[0, 5] == pytest.approx(0, abs=1e-9)
    assert roles.distances[0, 2] == pytest.approx(np.log(2), abs=0.1)
    np.testing.assert_allclose(roles.map[0], roles.map[5], atol=1e-6)
    assert {(s.relation, s.direction, s.count) for s in roles.relations} == {
        ("x", "to head", 17),
        ("x", "to dependent", 17),
    }
    [score] = [s for s in roles.relations if s.direction == "to head"]
    # The word after is right once in each sentence, the most that an offset is.
    assert score.accuracy[0, HEADS.index("rare")] == 1
    assert score.baseline == pytest.approx(3 / 17) and score.offset == 1
    tables = roles.tables()
    assert [len(rows) for _, rows in tables.values()] == [6, 6, 1, 2]
    assert "positional -1" in repr(roles) and "Relations" in repr(roles)
    figure = roles.plot(tmp_path / "roles.png")
    assert (tmp_path / "roles.png").read_bytes().startswith(b"\x89PNG")
    assert "confidence" in [axes.get_title() for axes in figure.axes]
    [axes] = roles.plot_relations().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "x, to dependent",
        "x, to head",
    ]


@pytest.mark.slow
def test_rare_tokens_by_the_sentences_themselves(backbone):
    tokenizer = BertTokenizer(VOCABULARY, lowercase=True)
    roles = head_roles(backbone, ["the the tree", "the a a the"], tokenizer=tokenizer)
    rare = dict(zip(HEADS, roles.rare[0], strict=True))
    # "tree" once, "a" twice and "the" four times; no "tree" in the second.
    assert 3 / 7 <= rare["rare"] and rare["self"] == pytest.approx(3 / 7)
    assert roles.relations == []
    # Attention to all alike has its greatest weights anywhere, but gives nobody more.
    uniform = HEADS.index("uniform")
    assert roles.rare_margin[0, uniform] == pytest.approx(0, abs=1e-5)
    assert roles.rare_margin[0, HEADS.index("rare")] > 0.2
    by_chance = dataclasses.replace(roles, rare=np.ones_like(roles.rare))
    assert "rare token" not in by_chance.roles_of(0, uniform)
    parts = head_roles(backbone, ["the cat " * 9], tokenizer=tokenizer)
    assert parts.confidence.shape == roles.confidence.shape
    alike = head_roles(backbone, ["the a"], tokenizer=tokenizer)
    assert np.isnan(alike.rare).all() and alike.roles_of(0, 3) != ["rare token"]


@pytest.mark.any_backend
def test_heads_that_are_left_keep_their_roles_and_numbers(backbone):
    arguments = {"tokenizer": BertTokenizer(VOCABULARY, lowercase=True)}
    whole = head_roles(backbone, SENTENCES, TO_TREE, **arguments)
    gone = [HEADS.index("uniform"), HEADS.index("previous")]
    pruned = prune_heads(backbone, {0: gone})
    roles = head_roles(pruned, SENTENCES, TO_TREE, **arguments)
    left = np.delete(np.arange(len(HEADS)), gone)
    for name in ("confidence", "positional", "rare", "entropy"):
        values, others = getattr(roles, name)[0], getattr(whole, name)[0]
        np.testing.assert_allclose(values[left], others[left], atol=1e-5)
        assert np.isnan(values[gone]).all()
    assert roles.offsets[0, left].tolist() == whole.offsets[0, left].tolist()
    distances = roles.distances[np.ix_(left, left)]
    np.testing.assert_allclose(
        distances, whole.distances[np.ix_(left, left)], atol=1e-5
    )
    assert np.isnan(roles.distances[gone]).all() and np.isnan(roles.map[gone]).all()
    apart = np.linalg.norm(roles.map[left][:, None] - roles.map[left], axis=-1)
    assert np.isfinite(apart).all()
    tables = roles.tables()
    assert [row[1] for row in tables["Roles of heads"][1]] == left.tolist()
    assert [row[4] for row in [*tables.values()][-1][1]][1] == HEADS.index("rare")
    assert roles.roles_of(0, gone[0]) == [] and "nan" not in repr(roles)
    assert len(roles.plot().axes) > 5
    assert roles.tables()["Layers"][1][0][1] == pytest.approx(
        roles.entropy[0, left].mean()
    )


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_has_no_roles_is_refused(backbone):
    tokenizer = BertTokenizer(VOCABULARY, lowercase=True)
    wrong = [
        ((backbone, "the cat"), "`sentences` must be a list"),
        ((backbone, []), "`sentences` must have a word.*Received: none"),
        ((backbone, ["the", ""]), "fit into rows of 16 tokens.*0 words in sentence 1"),
        ((backbone, ["the cat " * 9], [[(0, "x")] * 18]), "Received: 18 words"),
        ((backbone, ["the"], []), "`dependencies` must have a list for each of 1"),
        ((backbone, ["the"], [[(1, "x")]]), "`dependencies` must have a head from 0"),
        ((backbone, ["the"], [[]]), "Received for sentence 0"),
        ((prune_heads(backbone, {0: range(6)}), ["the"]), "that has a head left"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            head_roles(*arguments, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="`token_counts` must have a count for each"):
        head_roles(backbone, ["the"], tokenizer=tokenizer, token_counts=np.ones(3))
    with pytest.raises(ValueError, match="`tokenizer` must be given"):
        head_roles(backbone, ["the"])
    roles = head_roles(backbone, ["the cat"], tokenizer=tokenizer)
    with pytest.raises(ValueError, match="`plot_relations` needs relations"):
        roles.plot_relations()


@pytest.mark.any_backend
def test_attention_of_words_is_summed_to_and_averaged_from():
    attention = np.array([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
    np.testing.assert_allclose(
        word_attention(attention, np.array([0, 1, 1])), [[0.2, 0.8], [0.25, 0.75]]
    )
    special = word_attention(np.stack([attention] * 2), np.array([-1, 0, -1]))
    np.testing.assert_allclose(special, [[[0.6]]] * 2)
    for words in ([0, 2, 2], [0, 0]):
        with pytest.raises(
            ValueError, match="`words` must have a number for each of 3"
        ):
            word_attention(attention, np.array(words))


@pytest.mark.any_backend
def test_entropies_and_divergences_are_those_of_scipy():
    attention = np.random.default_rng(0).dirichlet(np.ones(6), (3, 6))
    theirs = stats.entropy(attention, axis=-1)
    np.testing.assert_allclose(entropies(attention), theirs, atol=1e-3)
    for first, second in [(0, 1), (1, 2)]:
        pair = attention[first], attention[second]
        expected = np.mean(distance.jensenshannon(*pair, axis=-1) ** 2)
        found = divergences(attention)[first, second]
        assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.any_backend
def test_measures_of_known_attention():
    even, first, last = np.full((2, 4), 0.25), np.eye(4)[[0, 0]], np.eye(4)[[3, 3]]
    found = entropies(np.stack([even, first]))
    np.testing.assert_allclose(found, [[np.log(4)] * 2, [0, 0]], atol=2e-3)
    distances = divergences(np.stack([even, first, last, first]))
    np.testing.assert_allclose(distances, distances.T)
    assert distances[1, 3] == distances[0, 0] == 0
    assert distances[1, 2] == pytest.approx(np.log(2), abs=1e-2)
    points = np.random.default_rng(0).normal(size=(5, 2))
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    found = plane_of(apart)
    np.testing.assert_allclose(
        np.linalg.norm(found[:, None] - found, axis=-1), apart, atol=1e-9
    )
    assert plane_of(np.zeros((1, 1))).shape == (1, 2)
