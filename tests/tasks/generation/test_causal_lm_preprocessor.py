"""Rows whose targets are the next tokens, prompts, and what is written to them."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.tasks import CausalLMPreprocessor
from keras_bertfam.tokenizers import BertTokenizer
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from tests.tasks.generation.text_to_text_tokenizers import (
    as_dataset,
    random_texts,
    t5,
    word_piece,
)


def make(length=16, **kwargs):
    return CausalLMPreprocessor(word_piece(), length, **kwargs)


START, END = 2, 3


def token_lists(texts):
    graph = tf.function(lambda x: tokenize(word_piece(), x))
    return graph(tf.constant(texts)).to_list()


@pytest.mark.slow
def test_the_stream_is_all_documents():
    texts = random_texts(40)
    batches = [*make().dataset(as_dataset(texts), 4, packing="stream", training=False)]
    x = np.concatenate([part["token_ids"] for part, *_ in batches])
    y = np.concatenate([part for _, part, _ in batches])
    weight = np.concatenate([part for *_, part in batches])
    expected = sum(([*ids, END] for ids in token_lists(texts)), [])
    rows = [[first, *rest] for (first, *_), rest in zip(x, y, strict=True)]
    assert np.concatenate(rows)[: len(expected)].tolist() == expected
    assert (x[:, 1:] == y[:, :-1]).all() and weight[:-1].all()
    assert weight[-1].sum() == len(expected) - 17 * (len(x) - 1) - 1


@pytest.mark.slow
def test_no_document_is_predicted_by_another():
    texts = random_texts(40, 9)
    data = make(sequence_ids=True).dataset(as_dataset(texts), 4, training=False)
    predicted = 0
    for x, _, weight in data:
        parts = (x["token_ids"], x["sequence_ids"], weight)
        ids, of, weight = map(np.array, parts)
        assert (weight[ids == END] == 0).all()
        assert (weight[:, :-1] == (of[:, 1:] == of[:, :-1]) * (of[:, 1:] > 0)).all()
        predicted += weight.sum()
    assert predicted > 100


@pytest.mark.slow
def test_packed_texts():
    """Between start and end tokens, in rows that hold several."""
    texts = random_texts(60, 6)
    data = make().dataset(as_dataset(texts), 4, packing="best_fit", training=False)
    found = []
    for x, y, weight in data:
        parts = (x["token_ids"], x["sequence_ids"], y, weight)
        for ids, of, following, weights in zip(*map(np.array, parts), strict=True):
            for number in range(1, of.max() + 1):
                inside = of == number
                text = [*ids[inside], *following[inside][-1:]]
                text = text[: 1 + int(weights[inside].sum())]
                assert (text[0], text[-1]) == (START, END)
                found.append(text[1:-1])
    assert sorted(found) == sorted(token_lists(texts))


@pytest.mark.slow
def test_passes_and_resumption():
    preprocessor = make(seed=3)
    dataset = preprocessor.dataset(as_dataset(random_texts(60)), 4)

    def ids():
        return [x["token_ids"].numpy().tolist() for x, *_ in dataset]

    first, second = ids(), ids()
    assert first != second and len(first) == len(second) > 4
    preprocessor.position.set(1, 2)
    assert ids() == second[2:]


@pytest.mark.slow
def test_strings_are_rows_of_their_own():
    x, y, weight = make(6)(["the cat", "the old dog ran under the big mat"])
    (ids,) = token_lists(["the cat"])
    assert x["token_ids"][0].numpy().tolist() == [START, *ids, END, 0, 0]
    assert y[0].numpy().tolist() == [*ids, END, 0, 0, 0]
    assert weight.numpy().tolist() == [[1, 1, 1, 0, 0, 0], [1] * 6]


@pytest.mark.slow
def test_prompts():
    prompts = ["the cat", ""]
    (ids,) = token_lists(["the cat"])
    rows = make(6).generate_preprocess(prompts, 8)
    assert rows["token_ids"].numpy().tolist() == [
        [START, *ids, 0, 0, 0, 0, 0],
        [START, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert [*make(6).generate_postprocess(rows)] == prompts
    single = make(6).generate_preprocess("the cat")
    assert single["token_ids"].numpy().tolist() == [START, *ids, 0, 0, 0]
    assert make(6).generate_postprocess(single) == "the cat"
    with pytest.raises(ValueError, match="fewer than 3 tokens.*Received one of 3"):
        make().generate_preprocess(prompts, 3)
    with pytest.raises(ValueError, match="`x` must be strings"):
        make().generate_preprocess([7])
    # T5 has no start token.
    rows = CausalLMPreprocessor(t5(), 8).generate_preprocess([""])
    assert not rows["padding_mask"].numpy().any()


@pytest.mark.slow
def test_a_start_token_that_ends_texts_too():
    """As GPT-2's: only an empty prompt begins with it, as there is nothing else."""
    tokenizer, prompts = BertTokenizer(word_piece().get_vocabulary()), ["the cat", ""]
    tokenizer.start_token_id = tokenizer.end_token_id
    preprocessor = CausalLMPreprocessor(tokenizer, 6)
    (ids,) = token_lists(["the cat"])

    @tf.function
    def there_and_back(x):
        rows = preprocessor.generate_preprocess(x)
        return rows, preprocessor.generate_postprocess(rows)

    rows, texts = there_and_back(tf.constant(prompts))
    expected = [[*ids, 0, 0, 0, 0], [END, 0, 0, 0, 0, 0]]
    assert rows["token_ids"].numpy().tolist() == expected
    assert texts.numpy().tolist() == [b"the cat", b""]
    x, *_ = preprocessor(["the cat"])
    assert x["token_ids"].numpy().tolist() == [[END, *ids, END, 0, 0]]


def test_answers_that_are_cut_are_told_of():
    long = "the old dog ran under the big mat"
    with pytest.warns(UserWarning, match="cut 1 of 2 answers to sequence_length=6"):
        _, y, _ = make(6)(["the", "the"], ["cat", long])
    assert y.shape == (2, 6)
