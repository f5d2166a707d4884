"""Masked texts with passages that are looked up for them."""

import types

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.tokenizers import BertTokenizer
from tests import tiny_passages
from tests.tasks.generation.text_to_text_tokenizers import word_piece
from tests.tiny_passage_tasks import marked

TEXTS = tiny_passages.passages()
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")


def make(sources=None, trained=False, **kwargs):
    settings = {"sequence_length": 9, "passage_length": 7, "num_candidates": 3}
    preprocessor = tasks.KnowledgeAugmentedMaskedLMPreprocessor(
        word_piece(), **{**settings, "mask_selection_length": 3, **kwargs}
    )
    preprocessor.search = tiny_passages.make_search(sources, trained)
    return preprocessor


def words(ids, mask=None):
    vocabulary = word_piece().get_vocabulary()
    ids = np.asarray(ids) if mask is None else np.asarray(ids)[np.asarray(mask)]
    return [vocabulary[i] for i in ids]


@pytest.fixture(scope="module")
def preprocessor():
    return make()


@pytest.mark.slow
def test_one_span_and_its_candidates(preprocessor):
    source = np.arange(4)
    x, y, weights = preprocessor(
        {"text": [marked(TEXTS[i]) for i in source], "source": source}, seed=[0, 1]
    )
    assert x["token_ids"].shape == (4, 3, 16) and y.shape == (4, 3)
    for row in source:
        given = TEXTS[row].split()
        count = int(np.sum(weights[row]))
        places = np.asarray(x["mask_positions"])[row, :count] - 1
        assert [*places] in ([1, 2], [4])
        assert words(y[row, :count]) == [given[i] for i in places]
        expected = [("[MASK]" if i in places else w) for i, w in enumerate(given)]
        query = words(x["query_token_ids"][row], x["query_padding_mask"][row])
        assert query == ["[CLS]", *expected, "[SEP]"]
        numbers = np.asarray(x["passage_ids"])[row]
        assert numbers[0] == -1 and row not in numbers and len({*numbers}) == 3
        for column, number in enumerate(numbers):
            body = TEXTS[number].split() if number >= 0 else []
            ids, mask = x["token_ids"][row, column], x["padding_mask"][row, column]
            assert words(ids, mask) == [*query, *body, "[SEP]"]
            segments = np.asarray(x["segment_ids"][row, column])
            assert segments.sum() == len(body) + 1 and not segments[: len(query)].any()
            ids = x["passage_token_ids"][row, column]
            mask = x["passage_padding_mask"][row, column]
            assert words(ids, mask) == ["[CLS]", *body, "[SEP]"]


@pytest.mark.slow
def test_candidates_are_the_best_of_other_documents():
    sources = np.arange(12) // 3  # documents of three passages
    preprocessor = make(sources, null_passage=False)
    search = preprocessor.search
    x, *_ = preprocessor({"text": [marked(TEXTS[0])], "source": [0]}, seed=[0, 1])
    query = {n[6:]: x[n] for n in x if n.startswith("query_")}
    everything = search.find(query, 12)[0]
    expected = [i for i in everything if sources[i] != 0][:3]
    np.testing.assert_array_equal(x["passage_ids"][0], expected)
    preprocessor = make(sources, null_passage=False, exclude_source=False)
    x, *_ = preprocessor({"text": [marked(TEXTS[0])], "source": [0]}, seed=[0, 1])
    np.testing.assert_array_equal(x["passage_ids"][0], everything[:3])
    with pytest.raises(ValueError, match="`num_passages` must be at most 9"):
        make(sources, num_candidates=11)
    # An index that finds too few doesn't give those of the same document instead.
    found = np.array([[0, 1, 2, 3, -1, -1]])
    search._index = types.SimpleNamespace(search=lambda *_: (None, found))
    with pytest.raises(ValueError, match="`index` must find 6.*fewer in row 0"):
        search.look_up(query, 3, np.array([0]))


@pytest.mark.slow
def test_other_tokens_and_none(preprocessor):
    ablation = make(strategy="tokens", mask_selection_rate=0.4)
    _, _, weights = ablation([marked(TEXTS[0])])
    assert int(np.sum(weights)) == 3
    _, _, weights = preprocessor(TEXTS[:1])  # without a span
    assert float(np.sum(weights)) == 0.0


@pytest.mark.slow
def test_batches_and_their_order(preprocessor):
    rows = {"text": [*map(marked, TEXTS)], "source": np.arange(12)}
    data = preprocessor.dataset(tf.data.Dataset.from_tensor_slices(rows), 5)
    first, second = [*data], [*data]
    assert len(first) == len(second) == 2
    assert not np.array_equal(first[0][0]["token_ids"], second[0][0]["token_ids"])
    preprocessor.position.set(1, 1)
    tf.nest.map_structure(np.testing.assert_array_equal, second[1], next(iter(data)))
    texts = tf.data.Dataset.from_tensor_slices(rows["text"])
    held_out = preprocessor.dataset(texts, 5, training=False)
    assert [len(y) for _, y, _ in held_out] == [5, 5, 2]
    config = preprocessor.get_config()
    again = type(preprocessor).from_config(config).get_config()
    assert again | {"tokenizer": config["tokenizer"]} == config


@pytest.mark.slow
def test_what_is_refused(preprocessor):
    texts = tf.data.Dataset.from_tensor_slices(TEXTS)

    def of(source):
        return {"text": ["⟦the⟧ cat"], "source": source}

    with pytest.raises(Exception, match="`source` must be the number of .*: -7"):
        preprocessor(of([-7]))
    bare = tasks.KnowledgeAugmentedMaskedLMPreprocessor(word_piece())
    for call, message in (
        (lambda: bare(["a cat"]), "`search` must be set to a `PassageSearch`"),
        (lambda: bare.dataset(texts, 2), "`search` must be set to a `PassageSearch`"),
        (lambda: preprocessor.dataset(texts, 2, packing="full"), r"\['packing'\]"),
        (lambda: make(num_candidates=1), "`num_candidates` must be at least 2"),
        (lambda: make(sequence_ids=True), "`sequence_ids` must be left out"),
        (lambda: make(languages=["en"]), "`languages` must be left out"),
        (lambda: make(passage_length=1), "`passage_length` must be at least 2"),
        (lambda: preprocessor({"text": ["a cat"]}), r"`text` and `source`.*\['text'\]"),
        (lambda: preprocessor(of([1, 2])), r"`source` must have a number for each"),
        (lambda: preprocessor(of([0.9])), "`source` must be ints.*float32"),
        (lambda: preprocessor(of([1]), [1]), "`y` must be None"),
        (lambda: preprocessor(of([1]), None, [2.0]), "`sample_weight` must be None"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    other = BertTokenizer([*word_piece().get_vocabulary(), "more"])
    stranger = tasks.KnowledgeAugmentedMaskedLMPreprocessor(other, num_candidates=3)
    with pytest.raises(ValueError, match="with the reader's vocabulary"):
        stranger.search = preprocessor.search
