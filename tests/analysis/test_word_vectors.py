import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis import embed_words
from keras_bertfam.tasks import TokenClassifier, TokenClassifierPreprocessor
from tests import tiny_fine_tuning as tiny
from tests import tiny_masked_lm

SENTENCES = ["the cats sat", ["reding", "mat"], ""]
# Where the pieces of the words are: cat ##s, red ##ing.
PLACES = [[[1], [2, 3], [4]], [[1, 2], [3]], []]


def hidden_states(backbone):
    preprocessor = TokenClassifierPreprocessor(tiny.make_tokenizer(), 24)
    rows = preprocessor([["the", "cats", "sat"], ["reding", "mat"]], None)
    names = ("token_ids", "segment_ids", "padding_mask")
    x = {name: np.asarray(rows[name]) for name in names}
    states = backbone(x, return_hidden_states=True)["hidden_states"]
    return [ops.convert_to_numpy(state) for state in states]


def test_vectors_are_pooled_states():
    model = tiny_masked_lm.make_model()
    tokenizer = tiny.make_tokenizer()
    backbone = tiny.make_backbone()
    states = hidden_states(backbone)
    pools = {"mean": np.mean, "max": np.max, "first": lambda x, axis: x[0]}
    for pieces, pool in pools.items():
        arguments = {"pieces": pieces, "tokenizer": tokenizer, "batch_size": 1}
        found = embed_words(backbone, SENTENCES, **arguments)
        assert [words for words, _ in found] == [
            ["the", "cats", "sat"],
            ["reding", "mat"],
            [],
        ]
        for row, (_, vectors) in enumerate(found):
            assert vectors.shape == (len(PLACES[row]), 16)
            assert vectors.dtype == "float32"
            for place, vector in zip(PLACES[row], vectors, strict=True):
                expected = pool(states[-1][row, place], axis=0)
                np.testing.assert_allclose(vector, expected, atol=1e-5)
    [(_, vectors)] = embed_words(model, ["the cat"])
    assert vectors.shape == (2, model.backbone.hidden_dim)


@pytest.mark.any_backend
def test_layers_are_put_together():
    backbone = tiny.make_backbone()
    states = np.stack(hidden_states(backbone))[[0, -1], 0, 4]  # of "sat"
    expected = {
        "concat": np.concatenate(states),
        "mean": states.mean(0),
        "sum": states.sum(0),
    }
    for combine, vector in expected.items():
        [(_, vectors)] = embed_words(
            backbone,
            ["the cats sat"],
            (0, -1),
            combine=combine,
            tokenizer=tiny.make_tokenizer(),
        )
        np.testing.assert_allclose(vectors[2], vector, atol=1e-5)


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
        (["a"], {"pieces": "last"}, "`pieces` must be of .*'last'"),
        (["a"], {"combine": "max"}, "`combine` must be of .*'max'"),
        (["a"], {"batch_size": 0}, "`batch_size`"),
        (["a"], {"tokenizer": None}, "`tokenizer` must be given"),
    ],
)
def test_what_has_no_vectors(sentences, arguments, message):
    arguments = {"tokenizer": tiny.make_tokenizer(), **arguments}
    with pytest.raises(ValueError, match=message):
        embed_words(tiny.make_backbone(), sentences, **arguments)
