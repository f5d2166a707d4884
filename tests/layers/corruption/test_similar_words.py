"""Words that become similar words in place of masks, MacBERT's replacement."""

import collections
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import analysis, tasks, tokenizers
from keras_bertfam.layers import BertTokenizer, MaskTokens, NGrams
from keras_bertfam.layers.corruption.similar_words import (
    SimilarWordTable,
    tokens_of_words,
)
from keras_bertfam.presets.families import FAMILIES

pytestmark = pytest.mark.any_backend

MASK = 4
# The word 10 has two similar ones, the word 11 12 one, and 13 none.
TABLE = [([10], [[20], [21]]), ([11, 12], [[22, 23]])]
STARTS = [i not in (12, 23) for i in range(30)]
SETTINGS = {
    "vocabulary_size": 30,
    "mask_token_id": MASK,
    "unselectable_token_ids": [2, 3],
    "starts_word": STARTS,
    "strategy": "words",
    "replacement_unit": "word",
    "similar_tokens": TABLE,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "big", "large", "huge"]
WORDS += ["play", "##ing", "run", "##s", "cat", "dog", ".", "a"]


def test_the_table_finds_words_by_all_their_tokens():
    table = SimilarWordTable(TABLE, 30)
    ids = tf.constant([10, 11, 12, 11, 12, 13, 11, 10, 10])
    words = tf.constant([0, 1, 1, 2, 3, 4, 5, 6, 6])
    others = tf.fill([9], 7)
    found = table.draw(ids, words, others, [0, 1]).numpy().tolist()
    assert found[0] in (20, 21)
    assert found[1:] == [22, 23, 7, 7, 7, 7, 7, 7]
    nothing = tf.zeros([0], tf.int32)
    assert table.draw(nothing, nothing, nothing, [0, 1]).shape == (0,)


def test_laws():
    """80 % a similar word, of which each is as likely; 10 % random; 10 % kept."""
    row = [2, 10, 13, 11, 12, 14, 3, 0]
    rows = np.tile(np.array(row, "int32"), (6000, 1))
    masker = MaskTokens(**SETTINGS, mask_selection_rate=0.6)
    out = masker(rows, seed=[3, 4])
    ids, weights = out["token_ids"].numpy(), out["mask_weights"].numpy() > 0
    assert MASK not in ids and (ids[:, [0, 6, 7]] == [2, 3, 0]).all()
    chosen = np.zeros(rows.shape, bool)
    at = np.nonzero(weights)
    chosen[at[0], out["mask_positions"].numpy()[weights]] = True
    assert (ids[~chosen] == rows[~chosen]).all()
    one = collections.Counter(ids[chosen[:, 1], 1].tolist())
    total = sum(one.values())
    random = 0.1 / 29  # of the ids but the mask
    expected = {20: 0.4 + random, 21: 0.4 + random, 10: 0.1 + random}
    for token, share in expected.items():
        spread = 4 * np.sqrt(share * (1 - share) / total)
        assert abs(one[token] / total - share) < spread, token
    assert len(one) == 29
    both = chosen[:, 3] & chosen[:, 4]
    assert (chosen[:, 3] == chosen[:, 4]).all()
    pairs = collections.Counter(map(tuple, ids[both][:, 3:5].tolist()))
    for pair, share in (((22, 23), 0.8), ((11, 12), 0.1)):
        spread = 4 * np.sqrt(share * (1 - share) / both.sum()) + 0.001
        assert abs(pairs[pair] / both.sum() - share) < spread, pair
    # A word without similar ones: random in 90 %.
    kept = (ids[chosen[:, 2], 2] == 13).mean()
    assert abs(kept - 0.1 - 0.9 / 29) < 4 * np.sqrt(0.13 * 0.87 / chosen[:, 2].sum())


def test_the_mask_token_is_never_drawn():
    masker = MaskTokens(
        **SETTINGS,
        mask_selection_rate=1.0,
        mask_token_rate=0.0,
        random_token_rate=1.0,
        random_token_ids=[MASK, 7],
        random_token_weights=[5.0, 1.0],
    )
    ids = masker(np.full((4, 8), 13, "int32"), seed=[0, 1])["token_ids"].numpy()
    assert (ids == 7).all()
    again = MaskTokens.from_config(masker.get_config())
    assert again.similar_tokens == masker.similar_tokens
    np.testing.assert_array_equal(
        again(np.full((4, 8), 13, "int32"), seed=[0, 1])["token_ids"], ids
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replacement_unit": "token"}, '`replacement_unit` must be "word" or "span"'),
        ({"similar_tokens": []}, "at least one word"),
        ({"similar_tokens": [([10], [[20]]), ([10], [[21]])]}, "no word twice"),
        ({"similar_tokens": [([10], [[20, 21]])]}, "as many ids as the word itself"),
        ({"similar_tokens": [([10], [])]}, "as many ids as the word itself"),
        ({"similar_tokens": [([10], [[30]])]}, r"must be in \[0, 30\)"),
        ({"random_token_ids": [MASK]}, "an id other than the mask token"),
    ],
)
def test_wrong_tables(changes, message):
    with pytest.raises(ValueError, match=message):
        MaskTokens(**{**SETTINGS, **changes})


def test_words_by_their_tokens():
    tokenizer = BertTokenizer(WORDS, lowercase=True)
    similar = {
        "Big": ["large", "huge", "big"],
        "playing": ["runs", "cat", "unknown"],
        "zebra": ["cat"],
        "cat": ["playing"],
    }
    big, playing = WORDS.index("big"), [8, 9]
    assert tokens_of_words(tokenizer, similar) == [
        ([big], [[6], [7]]),
        (playing, [[10, 11]]),
    ]
    with pytest.raises(ValueError, match="1 words, all without"):
        tokens_of_words(tokenizer, {"cat": ["playing"]})
    for wrong in ({"cat": "dog"}, {"cat": [3]}, {3: ["cat"]}):
        with pytest.raises(ValueError, match="dict from words to lists of words"):
            tokens_of_words(tokenizer, wrong)


@pytest.mark.parametrize("kind", ["word_piece", "byte_pair", "sentence_piece"])
def test_any_tokenizer(kind):
    words = "cat dog bird fish sat ran flew swam".split()
    texts = [f"the {a} {b} here" for a in words[:4] for b in words[4:]] * 4
    documents = tf.data.Dataset.from_tensor_slices(texts)
    size = {"word_piece": 60, "byte_pair": 340, "sentence_piece": 50}[kind]
    tokenizer = getattr(tokenizers, f"train_{kind}")(documents, size)
    preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer,
        sequence_length=16,
        strategy=NGrams(4, weights=[4, 3, 2, 1]),
        replacement_unit="word",
        similar_words={"cat": ["dog"], "sat": ["ran"]},
        mask_selection_rate=0.9,
        mask_token_rate=1.0,
        random_token_rate=0.0,
    )
    ids = [preprocessor(["the cat sat here"], seed=[k, 0])[0] for k in range(30)]
    read = [str(tokenizer.detokenize(x["token_ids"])[0]) for x in ids]
    assert any("dog" in text for text in read) and any("ran" in text for text in read)
    assert not any(tokenizer.mask_token_id in x["token_ids"].numpy() for x in ids)
    again = type(preprocessor).from_config(preprocessor.get_config())
    assert again.similar_words == preprocessor.similar_words
    assert again.strategy.probabilities == [0.4, 0.3, 0.2, 0.1]


def test_neighbours_by_static_vectors():
    angles = {"cat": 0.0, "dog": 0.1, "bird": 0.25, "red": 3.0}
    normed = np.array([[np.cos(x), np.sin(x)] for x in angles.values()], "float32")
    vectors = types.SimpleNamespace(
        index_to_key=[*angles],
        key_to_index={word: k for k, word in enumerate(angles)},
        get_normed_vectors=lambda: normed,
    )
    found = analysis.similar_words(vectors, top_k=2)
    assert found["cat"] == ["dog", "bird"] and found["bird"] == ["dog", "cat"]
    assert "red" not in found  # all others are on the other side
    near = analysis.similar_words(vectors, ["cat", "zebra"], least=np.cos(0.2))
    assert near == {"cat": ["dog"]}
    assert analysis.similar_words(vectors, ["red"], least=-1.0)["red"][0] == "bird"
    assert analysis.similar_words(vectors, []) == {}


@pytest.mark.parametrize("weights", [[1], [1, -1, 0, 0], [0] * 4, [1, 2, 3, np.nan]])
def test_weights_of_ngrams(weights):
    with pytest.raises(ValueError, match="`weights` must be max_n=4 numbers"):
        NGrams(4, weights=weights)


def test_the_recipe():
    recipe = tasks.pretraining_recipe("bert", "macbert_base_zh")
    strategy = {**recipe.masking}
    tokenizer = BertTokenizer(WORDS)
    preprocessor = tasks.MaskedLMSentencePairPreprocessor(
        tokenizer,
        sequence_length=16,
        similar_words={"big": ["large"]},
        **strategy,
        **recipe.task_arguments,
    )
    assert preprocessor.strategy.probabilities == [0.4, 0.3, 0.2, 0.1]
    assert preprocessor.sentence_objective == "sop"
    sizes = FAMILIES["bert"].sizes
    assert sizes["macbert_large_zh"].arguments["vocabulary_size"] == 21128


@pytest.mark.parametrize("strategy", ["tokens", "words"])
def test_parts_of_words_are_no_words(strategy):
    """Of the word 10 12, which isn't in the table, the token 10 alone is none."""
    masker = MaskTokens(**{**SETTINGS, "strategy": strategy}, mask_selection_rate=0.5)
    alone, part = (np.tile(np.array(row, "int32"), (400, 1)) for row in ROWS)
    found = {*masker(alone, seed=[1, 2])["token_ids"].numpy()[:, 1].tolist()}
    assert found >= {20, 21}
    drawn = masker(part, seed=[1, 2])["token_ids"].numpy()[:, 1]
    # Similar words would be 80 % of those that changed; random ids are 1 of 29 each.
    similar = np.isin(drawn, [20, 21]).sum()
    assert similar < 0.2 * max((drawn != 10).sum(), 1)


ROWS = ([2, 10, 13, 14, 3], [2, 10, 12, 14, 3])


def test_a_table_is_saved_as_text():
    tokenizer = BertTokenizer(WORDS, lowercase=True)
    table = {"big": ["large", "huge"], "cat": ("dog",)}
    preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer, 8, similar_words=table, replacement_unit="word"
    )
    config = preprocessor.get_config()
    assert config["similar_words"] == "big\tlarge\thuge\ncat\tdog"
    again = tasks.MaskedLMPreprocessor.from_config(config)
    assert again.similar_words == {"big": ["large", "huge"], "cat": ["dog"]}
    for wrong, message in (({"a\tb": ["c"]}, "tabs"), ({"a": 5}, "a dict from words")):
        with pytest.raises(ValueError, match=message):
            tasks.MaskedLMPreprocessor(
                tokenizer, 8, similar_words=wrong, replacement_unit="word"
            )
