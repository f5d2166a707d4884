"""Questions with passages that are looked up for them."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.retrieval import Index
from keras_bertfam.tasks import PassageSearch
from tests import tiny_passages
from tests.tasks.generation.text_to_text_tokenizers import WORDS, word_piece

TITLED = [(text.split()[0], f"{text} {text}") for text in tiny_passages.passages()]


def make(search, **kwargs):
    settings = {"sequence_length": 16, "num_passages": 3, "target_length": 6}
    preprocessor = tasks.RetrievalAugmentedGeneratorPreprocessor(
        word_piece(), **{**settings, **kwargs}
    )
    preprocessor.search = search
    return preprocessor


@pytest.fixture(scope="module")
def search():
    retriever, _ = tiny_passages.known()
    return PassageSearch(retriever, Index.build(TITLED, retriever))


def words(ids, mask):
    vocabulary = word_piece().get_vocabulary()
    return [vocabulary[i] for i in np.asarray(ids)[np.asarray(mask)]]


@pytest.mark.slow
def test_rows_have_passage_and_question(search):
    preprocessor = make(search, title_separator=" . ", passage_separator=" . . ")
    questions = ["the cat ate", "a big mat"]
    x, y, weights = preprocessor(questions, ["dog", "red bat"])
    vectors = search.retriever.encode(questions)
    _, expected = search.index.search(vectors, 3)
    np.testing.assert_array_equal(x["passage_ids"], expected)
    np.testing.assert_allclose(
        x["passage_vectors"], search.index.vectors(expected), rtol=1e-6
    )
    assert x["query_token_ids"].shape == (2, 12)
    for row, question in enumerate(questions):
        for column, number in enumerate(expected[row]):
            title, text = TITLED[number]
            asked = [".", ".", *question.split(), "[SEP]"]
            passage = [title, ".", *text.split()][: 16 - 1 - len(asked)]
            ids, mask = x["encoder_token_ids"], x["encoder_padding_mask"]
            found = words(ids[row, column], mask[row, column])
            assert found == ["[CLS]", *passage, *asked]
    assert words(y[1], weights[1] > 0) == ["[CLS]", "red", "bat", "[SEP]"]
    single = preprocessor.generate_preprocess("the cat ate")
    assert single["encoder_token_ids"].shape == (3, 16)
    np.testing.assert_array_equal(
        single["encoder_token_ids"], x["encoder_token_ids"][0]
    )


@pytest.mark.slow
def test_batches_and_their_order(search):
    preprocessor = make(search)
    questions = tiny_passages.passages(5, seed=3)
    data = preprocessor.dataset((questions, WORDS[:5]), batch_size=2)
    first, second = [*data], [*data]
    assert len(first) == 3
    for x, y, _ in first:
        assert x["encoder_token_ids"].shape == (2, 3, 16) and y.shape == (2, 6)
    assert float(tf.reduce_max(first[-1][2][1])) == 0.0  # fills the batch up
    preprocessor.position.set(1, 1)
    resumed = [*data]
    for batch, other in zip(second[1:], resumed, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, other)
    config = preprocessor.get_config()
    again = type(preprocessor).from_config(config).get_config()
    assert again | {"tokenizer": config["tokenizer"]} == config


@pytest.mark.slow
def test_what_is_refused(search):
    preprocessor = make(search)
    question = " ".join(WORDS[:10])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`x` must be questions"):
        make(search, sequence_length=12)([question], ["cat"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`x` must be queries"):
        preprocessor([" ".join(WORDS[:12])], ["cat"])
    bare = tasks.RetrievalAugmentedGeneratorPreprocessor(word_piece())
    for call in (
        lambda: bare(["a cat"], ["dog"]),
        lambda: bare.generate_preprocess(["a cat"]),
        lambda: bare.dataset((["a cat"], ["dog"]), batch_size=1),
    ):
        with pytest.raises(ValueError, match="`search` must be set to a `Passage"):
            call()
    with pytest.raises(ValueError, match="`num_passages` must be at most 12.*: .*13"):
        make(search, num_passages=13)
    retriever = search.retriever
    stranger = tiny_passages.make_retriever(towers=1)
    for arguments, message in (
        ((retriever, Index(6, encoder=retriever)), "`index` must have passages"),
        ((stranger, search.index), "must be of this encoder"),
        ((retriever, search.index, [0, 1]), "`sources` must be 12 ints"),
        ((retriever, search.index, [-1] * 12), "`sources` must be at least 0: .*: -1"),
        ((retriever, search.index, None, "no"), "`stale` must be"),
    ):
        with pytest.raises(ValueError, match=message):
            PassageSearch(*arguments)
    small = Index(4)
    small.add(np.ones((1, 4)), ["a cat"])
    with pytest.raises(ValueError, match="of the retriever's size, dim=6. .*dim=4"):
        PassageSearch(retriever, small, stale="allow")
    wide = Index(6, encoder=retriever)
    wide.add(np.ones((1, 6)), ["a cat"])
    others = Index(6, encoder=retriever)
    others.add(np.ones((12, 6)), [f"cat {number}" for number in range(12)])
    for index, count in ((wide, 1), (others, 12)):
        with pytest.raises(ValueError, match=f"same 12 passages, .*: one of {count},"):
            search.adopt(index, None, 1)
    grown = PassageSearch(retriever, wide)
    wide.add(np.zeros((1, 6)), ["a dog"])
    with pytest.raises(
        ValueError, match="must still have its 1 passages.*: 2 passages"
    ):
        grown.check_count(1)
