"""Questions with passages, and where the answers are in them."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.retrieval import Index
from keras_bertfam.tasks import PassageSearch
from tests import tiny_passages
from tests.tasks.generation.text_to_text_tokenizers import WORDS, word_piece

TITLED = [(text.split()[0], f"{text} big") for text in tiny_passages.passages()]
QUESTIONS = ["the cat ate", "a big mat", "the dog"]


@pytest.fixture(scope="module")
def search():
    retriever, _ = tiny_passages.known()
    return PassageSearch(retriever, Index.build(TITLED, retriever))


def make(search, **kwargs):
    settings = {"sequence_length": 12, "num_passages": 3, "max_answer_length": 2}
    preprocessor = tasks.OpenQuestionAnsweringPreprocessor(
        word_piece(), **{**settings, **kwargs}
    )
    preprocessor.search = search
    return preprocessor


def words(ids, mask):
    vocabulary = word_piece().get_vocabulary()
    return [vocabulary[i] for i in np.asarray(ids)[np.asarray(mask)]]


def expected_spans(question, passages, answers):
    """What is in a row, and where the answers begin and how many words follow."""
    for number in passages:
        row = ["[CLS]", *question.split(), "[SEP]"]
        first = len(row)
        row += [*TITLED[number][1].split()[: 11 - first], "[SEP]"]
        found = {
            (at, size)
            for at in range(first, len(row) - 1)
            for size in range(2)
            if " ".join(row[at : at + size + 1]) in answers and at + size < len(row) - 1
        }
        yield row, first, found


@pytest.mark.slow
def test_rows_and_all_spans_of_answers(search):
    preprocessor = make(search)
    vectors = search.retriever.encode(QUESTIONS)
    _, numbers = search.index.search(vectors, 3)
    bodies = [TITLED[n][1].split() for n in numbers[:, 0]]
    answers = [[" ".join(body[1:3]), body[3]] for body in bodies]
    x, y = preprocessor(QUESTIONS, answers)
    np.testing.assert_array_equal(x["passage_ids"], numbers)
    np.testing.assert_allclose(
        x["passage_vectors"], search.index.vectors(numbers), rtol=1e-6
    )
    assert y.shape == (3, 3, 12, 2)
    for row, question in enumerate(QUESTIONS):
        rows = expected_spans(question, numbers[row], answers[row])
        for column, (expected, first, spans) in enumerate(rows):
            ids, mask = (x[n][row, column] for n in ("token_ids", "padding_mask"))
            assert words(ids, mask) == expected
            inside = np.flatnonzero(x["span_mask"][row, column])
            assert inside.tolist() == [*range(first, len(expected) - 1)]
            found = np.argwhere(np.asarray(y[row, column]))
            assert {tuple(place) for place in found.tolist()} == spans
        assert np.asarray(y[row, 0]).sum() >= 2  # both answers
    alone = preprocessor(QUESTIONS[0], answers[0][0])
    np.testing.assert_array_equal(alone[0]["token_ids"][0], x["token_ids"][0])


@pytest.mark.slow
def test_passages_for_a_tower_that_is_trained(search):
    x = make(search, passage_rows=True)(QUESTIONS)
    assert "passage_vectors" not in x and x["passage_token_ids"].shape == (3, 3, 12)
    title, text = TITLED[int(x["passage_ids"][0, 0])]
    ids, mask = (x[f"passage_{n}"][0, 0] for n in ("token_ids", "padding_mask"))
    assert words(ids, mask) == ["[CLS]", title, "[SEP]", *text.split(), "[SEP]"]


@pytest.mark.slow
def test_batches_and_their_order(search):
    preprocessor = make(search)
    answers = [["cat"], ["the", "big"], ["dog"]]
    data = preprocessor.dataset((QUESTIONS, answers), batch_size=2)
    first, second = [*data], [*data]
    assert len(first) == 2
    for x, y, weights in first:
        assert x["token_ids"].shape == (2, 3, 12) and y.shape == (2, 3, 12, 2)
        assert x["query_token_ids"].shape == (2, 12) and weights.shape == (2,)
    assert first[-1][2].numpy().tolist() == [1.0, 0.0]  # fills the batch up
    preprocessor.position.set(1, 1)
    tf.nest.map_structure(np.testing.assert_array_equal, second[1], next(iter(data)))
    rows = tf.data.Dataset.from_generator(
        lambda: zip(QUESTIONS, [{"text": a} for a in answers], strict=True),
        output_signature=(
            tf.TensorSpec([], tf.string),
            {"text": tf.TensorSpec([None], tf.string)},
        ),
    )
    given = [*preprocessor.dataset(rows, 2, training=False)]
    x, y = preprocessor(QUESTIONS, answers)
    np.testing.assert_array_equal(np.concatenate([b[1] for b in given]), y)
    assert len(given[1][2]) == 1
    config = preprocessor.get_config()
    again = type(preprocessor).from_config(config).get_config()
    assert again | {"tokenizer": config["tokenizer"]} == config


@pytest.mark.slow
def test_what_is_refused(search):
    preprocessor = make(search)
    long = " ".join(WORDS[:9])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`x` must be questions"):
        preprocessor([long], ["cat"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`x` must be queries"):
        make(search, sequence_length=20)([" ".join(WORDS[:12])], ["cat"])
    bare = tasks.OpenQuestionAnsweringPreprocessor(word_piece())
    for call in (
        lambda: bare(["a cat"], ["dog"]),
        lambda: bare.dataset((["a cat"], ["dog"]), batch_size=1),
    ):
        with pytest.raises(ValueError, match="`search` must be set to a `Passage"):
            call()
    for call, message in (
        (lambda: make(search, num_passages=13), "`num_passages` must be at most 12"),
        (lambda: make(search, num_passages=0), "`num_passages` must be at least 1"),
        (lambda: make(search, max_answer_length=0), "`max_answer_length` must be"),
        (lambda: preprocessor([3], ["cat"]), "`x` must be strings"),
        (lambda: preprocessor(["a cat"], [[]]), "a string or a list of strings"),
        (lambda: preprocessor.dataset((["a cat"], ["b"]), pool=3), r"\['pool'\]"),
        (lambda: preprocessor.dataset(([], []), 1), "`x` must have at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


EQUALLY_MANY = {
    "matrix": [["cat", "the"], ["the", "big"], ["dog", "a"]],
    "column": [["cat"], ["big"], ["dog"]],
    "vector": ["cat", "big", "dog"],
    "squad": {"text": [["cat", "the"], ["the", "big"], ["dog", "a"]]},
}


@pytest.mark.slow
@pytest.mark.parametrize("form", EQUALLY_MANY)
def test_datasets_with_equally_many_answers(form, search):
    answers = EQUALLY_MANY[form]
    data = tf.data.Dataset.from_tensor_slices((QUESTIONS, answers))
    found = [b[1] for b in make(search).dataset(data, 2, training=False)]
    lists = answers["text"] if form == "squad" else answers
    _, expected = make(search)(QUESTIONS, lists)
    np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.slow
def test_questions_without_an_answer(search):
    preprocessor = make(search)
    for answers in (
        ["cat", "", "dog"],
        tf.ragged.constant([["cat"], [], ["dog"]], dtype=tf.string),
        tf.constant([["cat", ""], ["the", "a"], ["dog", "a"]]),
    ):
        with pytest.raises(ValueError, match="`y` must have the answers to each"):
            preprocessor(QUESTIONS, answers)
        data = tf.data.Dataset.from_tensor_slices((QUESTIONS, answers))
        with pytest.raises(tf.errors.InvalidArgumentError, match="`y` must have the a"):
            [*preprocessor.dataset(data, 2, training=False)]
