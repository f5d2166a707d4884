import numpy as np
import pytest
from keras import ops

from keras_bertfam import analysis
from keras_bertfam.analysis import embed_words
from keras_bertfam.models import FeatureBackbone
from keras_bertfam.tasks import TokenClassifier, TokenClassifierPreprocessor
from tests import tiny_bidirectional_lm as bidirectional
from tests import tiny_fine_tuning as tiny

SENTENCES = ["the cats sat", np.array(["reding", "mat"]), ""]
# Where the pieces of the words are: cat ##s, red ##ing.
PLACES = [[[1], [2, 3], [4]], [[1, 2], [3]], []]


@pytest.fixture(scope="module")
def backbone():
    return tiny.make_backbone()


def hidden_states(backbone):
    preprocessor = TokenClassifierPreprocessor(tiny.make_tokenizer(), 24)
    rows = preprocessor([["the", "cats", "sat"], ["reding", "mat"]], None)
    names = ("token_ids", "segment_ids", "padding_mask")
    x = {name: np.asarray(rows[name]) for name in names}
    states = backbone(x, return_hidden_states=True)["hidden_states"]
    return [ops.convert_to_numpy(state) for state in states]


@pytest.mark.parametrize("name", ["embed_words", "head_roles", "word_vectors"])
def test_models_without_layers_or_tokens_are_refused(name, backbone):
    analyse = getattr(analysis, name)
    features = FeatureBackbone(tiny.make_backbone(), lstm_dim=4)
    task = TokenClassifier(
        features,
        num_classes=2,
        preprocessor=TokenClassifierPreprocessor(tiny.make_tokenizer(), 24),
    )
    with pytest.raises(ValueError, match="must have layers of its own.*FeatureBackb"):
        analyse(task, ["the cats sat"])
    elmo = bidirectional.make_backbone()
    with pytest.raises(ValueError, match="`model` must "):
        analyse(elmo, ["the cats sat"], tokenizer=tiny.make_tokenizer())


@pytest.mark.slow
def test_vectors_are_means_of_states(backbone):
    tokenizer = tiny.make_tokenizer()
    states = hidden_states(backbone)[-1]
    found = embed_words(backbone, SENTENCES, tokenizer=tokenizer, batch_size=1)
    assert [words for words, _ in found] == [
        ["the", "cats", "sat"],
        ["reding", "mat"],
        [],
    ]
    for row, (_, vectors) in enumerate(found):
        assert vectors.shape == (len(PLACES[row]), 16) and vectors.dtype == "float32"
        for place, vector in zip(PLACES[row], vectors, strict=True):
            np.testing.assert_allclose(vector, states[row, place].mean(0), atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_pieces_and_layers_are_put_together(backbone):
    tokenizer = tiny.make_tokenizer()
    states = np.stack(hidden_states(backbone))[[0, -1], 0, 2:4]  # of "cats"
    expected = {
        ("first", "sum"): states[:, 0].sum(0),
        ("max", "concat"): states.max(1).ravel(),
        ("mean", "mean"): states.mean((0, 1)),
        ("first", (0.5, 2.0)): 0.5 * states[0, 0] + 2.0 * states[1, 0],
    }
    for (pool, combine), vector in expected.items():
        [(_, vectors)] = embed_words(
            backbone, ["the cats sat"], (0, -1), pool, combine, tokenizer=tokenizer
        )
        np.testing.assert_allclose(vectors[1], vector, atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", tiny.fast_families("albert", "xlnet"))
def test_every_family_also_in_parts(family):
    """A long sentence is what its parts are by themselves, none cut in a word."""
    layout = "xlnet" if family == "xlnet" else None
    tokenizer = tiny.make_tokenizer()
    model = TokenClassifier(
        tiny.make_backbone(family),
        2,
        TokenClassifierPreprocessor(tokenizer, 16, layout=layout),
    )
    words = ["a", *["cats"] * (260 if family == "xlnet" else 20)]
    fits = 255 if family == "xlnet" else 11  # 1 + 2 * 10, and the next is cut
    [(found, vectors)] = embed_words(model, [words])
    assert found == words and vectors.shape == (len(words), 16)
    parts = embed_words(model, [words[:fits], words[fits:]])
    np.testing.assert_allclose(
        np.concatenate([part for _, part in parts]), vectors, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "sentences, arguments, message",
    [
        ("the cat", {}, "`sentences` must be a list .* Received: 'the cat'"),
        (None, {}, "`sentences` must be a list .* Received: None"),
        ([3], {}, "`sentences` must have words.*row 0: 3"),
        ([["a", ""]], {}, "`sentences` must have words.*row 0"),
        (["a", "a cat" + "s" * 30], {}, "at most 22 tokens.*row 1: 'cats.*of 31"),
        (["a"], {"layers": ()}, r"`layers` must be ints from -3 to 2.*Received: \[\]"),
        (["a"], {"layers": (3,)}, r"Received: \[3\]"),
        (["a"], {"layers": (0.5,)}, r"Received: \[0.5\]"),
        (["a"], {"pool": "last"}, "`pool` must be one of .*'last'"),
        (["a"], {"combine": "max"}, "`combine` must be one of .*'max'"),
        (["a"], {"combine": None}, "`combine` must be one of .*None"),
        (["a"], {"combine": (0.5, 0.5)}, "`combine` must have .* each of 1 layers"),
        (["a"], {"batch_size": 0}, "`batch_size`"),
        (["a"], {"tokenizer": None}, "`tokenizer` must be given"),
    ],
)
def test_what_has_no_vectors(backbone, sentences, arguments, message):
    arguments = {"tokenizer": tiny.make_tokenizer(), **arguments}
    with pytest.raises(ValueError, match=message):
        embed_words(backbone, sentences, **arguments)
