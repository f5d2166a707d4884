"""Texts beside their translations, from strings to masked batches and logits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from keras_bertfam.layers import BertTokenizer, mark_languages, sample_corpora
from keras_bertfam.tasks import MaskedLMPreprocessor

WORDS = [f"w{i}" for i in range(30)]
TOKENIZER = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
CLS, SEP = 2, 3
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


def ids(*words):
    return [5 + word for word in words]


def text(*words):
    return " ".join(WORDS[word] for word in words)


def dataset(*documents):
    return tf.data.Dataset.from_tensor_slices([*documents])


def pair(a, b):
    return mark_languages({"a": text(*a), "b": text(*b)}).numpy()


def make(length=12, **kwargs):
    return MaskedLMPreprocessor(TOKENIZER, length, seed=3, **kwargs)


def sequences_of(rows):
    """Each sequence of rows, as a list of columns without padding, sorted."""
    found = []
    for row in rows.as_numpy_iterator():
        for number in range(1, row["sequence_ids"].max() + 1):
            own = row["sequence_ids"] == number
            names = ("token_ids", "position_ids", "language_ids")
            found.append([row[n][own].tolist() for n in names if n in row])
    return sorted(found)


@pytest.mark.parametrize("separators", [1, 2])
def test_positions_begin_anew_with_the_translation(separators):
    documents = dataset(pair([0, 1, 2], [10, 11]), pair([3], []))
    rows = make(languages=["b", "a"], separators=separators).pack(documents)
    if separators == 1:
        expected = [
            [CLS, *ids(0, 1, 2), SEP, *ids(10, 11), SEP],
            [0, 1, 2, 3, 4, 0, 1, 2],
            [1, 1, 1, 1, 1, 0, 0, 0],
        ]
    else:  # the last of two is the translation's
        expected = [
            [CLS, *ids(0, 1, 2), SEP, SEP, *ids(10, 11), SEP],
            [0, 1, 2, 3, 4, 0, 1, 2, 3],
            [1, 1, 1, 1, 1, 0, 0, 0, 0],
        ]
    assert sequences_of(rows) == [expected]


def test_texts_of_one_language_and_what_is_too_long():
    documents = dataset(
        pair([0, 1, 2, 3, 4, 5, 6], [10, 11, 12, 13]),
        text(7),
        mark_languages({"a": text(*range(20, 28))}).numpy(),
        "",
    )
    rows = make(8).pack(documents, "translations")
    assert sequences_of(rows) == [
        [[CLS, *ids(0, 1, 2), SEP, *ids(10, 11), SEP], [0, 1, 2, 3, 4, 0, 1, 2]],
        [[CLS, *ids(7), SEP], [0, 1, 2]],
        [[CLS, *ids(20, 21, 22, 23, 24, 25), SEP], [*range(8)]],
        [[CLS, *ids(26, 27), SEP], [0, 1, 2, 3]],
    ]


def test_prompts_have_languages_too():
    preprocessor = make(languages=["a", "b"])
    marked = mark_languages({"b": ["w1 [MASK]"], "a": ["w2"]}).numpy()
    rows = preprocessor.encode([*marked, "w3"])
    assert rows["token_ids"].numpy().tolist() == [
        [CLS, *ids(1), 4, SEP, *ids(2), SEP],
        [CLS, *ids(3), SEP, 0, 0, 0],
    ]
    languages = np.where(rows["padding_mask"], rows["language_ids"], 9)
    assert languages.tolist() == [[1, 1, 1, 1, 0, 0], [-1, -1, -1, 9, 9, 9]]
    assert rows["position_ids"][0].numpy().tolist() == [0, 1, 2, 3, 0, 1]


def corpora():
    rng = np.random.default_rng(0)
    pairs = [pair(*rng.choice(30, (2, rng.integers(1, 6)))) for _ in range(30)]
    alone = [text(*rng.choice(30, rng.integers(2, 20))) for _ in range(20)]
    alone = mark_languages({"a": alone}).numpy()
    return {"a+b": dataset(*pairs), "a": dataset(*alone)}


def batches_of(data):
    return [[np.asarray(x).tolist() for x in tf.nest.flatten(batch)] for batch in data]


@pytest.mark.slow
def test_a_mixture_goes_on_in_the_middle_of_a_pass():
    mixed = sample_corpora(corpora(), exponent=0.5)
    whole = make(languages=["a", "b"]).dataset(mixed, 4)
    first, second = batches_of(whole), batches_of(whole)
    assert first != second
    resumed = make(languages=["a", "b"])
    again = resumed.dataset(mixed, 4)
    resumed.position.set(1, 2)
    assert batches_of(again) == second[2:]
    masked = next(iter(whole))[0]
    assert (masked["language_ids"].numpy() == 1).any()


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["Roberta", "ModernBert"])
def test_a_pair_is_read_as_if_it_were_alone(family):
    """Rows of several pairs predict what rows of one do; its halves see each other."""
    keras.utils.set_random_seed(0)
    given = {"attention_window": 64} if family == "ModernBert" else {}
    cls = getattr(models, f"{family}Backbone")
    model = tasks.MaskedLM(cls(35, **SIZES, max_sequence_length=24, **given))
    documents = dataset(pair([0, 1, 2], [10, 11]), pair([3], [4, 5]), text(6, 7))
    (row,) = make(24, separators=2).pack(documents, "translations").as_numpy_iterator()

    def logits(row):
        rows = {name: values[None] for name, values in row.items()}
        return keras.ops.convert_to_numpy(model.masked_lm_logits(rows))[0]

    found = logits(row)
    assert row["sequence_ids"].max() == 3
    for number in (1, 2, 3):
        own = row["sequence_ids"] == number
        alone = {name: values[own] for name, values in row.items()}
        assert np.abs(found[own] - logits(alone)).max() < 1e-5
        halves = np.cumsum(alone["position_ids"] == 0)
        if halves.max() == 2:
            other = np.where(halves == 2, 30, alone["token_ids"])
            changed = logits({**alone, "token_ids": other})
            assert np.abs(found[own] - changed)[halves == 1].max() > 1e-4


def test_a_language_that_isnt_known():
    expected = r"\[`documents` must be of the languages a, c. Received: b.\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        make(languages=["a", "c"]).encode([pair([0], [1]), pair([2], [3])])


def test_prompts_without_languages_are_paragraphs():
    marked = mark_languages({"b": ["w1 [MASK]"], "a": ["w2"]}).numpy()
    rows = make().encode(marked)
    assert rows["token_ids"].numpy().tolist() == [[CLS, *ids(1), 4, *ids(2), SEP]]


@pytest.mark.parametrize(
    ("kwargs", "packing", "message"),
    [
        ({"languages": ["a", "a"]}, None, "`languages` must have names of languages"),
        ({"languages": []}, None, "`languages` must have names of languages"),
        ({"languages": ["a"]}, "full", '`packing` must be "translations" with'),
        ({"length": 4}, "translations", "`sequence_length` must be at least 5"),
        ({}, "pairs", "`packing` must be one of"),
        ({"separators": 0}, None, "`separators` must be an int of at least 1"),
    ],
)
def test_errors(kwargs, packing, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs).dataset(dataset(pair([0], [1])), 1, packing=packing)


def test_rows_too_short_for_a_translation():
    short = make(4, languages=["a", "b"])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`sequence_length` must be at least 5"
    ):
        short([pair([0], [1])])
    alone = mark_languages({"a": text(0)}).numpy()
    assert short([alone])[0]["token_ids"].numpy().shape == (1, 4)
