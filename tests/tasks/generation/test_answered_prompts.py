"""Prompts with answers as rows of a language model: the answer alone is learned."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.tasks import CausalLM, CausalLMPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from tests.tasks.generation.text_to_text_tokenizers import byte_pair, word_piece
from tests.tiny_text_to_text import make

PROMPTS = ["the cat sat on", "a", "", "the big red dog ran under the old mat"]
ANSWERS = ["a mat", "", "dog", "near the bat"]
START, END = 2, 3


def token_lists(tokenizer, texts):
    return tf.function(lambda x: tokenize(tokenizer, x))(tf.constant(texts)).to_list()


@pytest.mark.slow
def test_rows_of_words():
    tokenizer = word_piece()
    prompts, answers = (token_lists(tokenizer, texts) for texts in (PROMPTS, ANSWERS))
    preprocessor = CausalLMPreprocessor(tokenizer, 8)
    x, y, weight = preprocessor(PROMPTS, ANSWERS)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        room = 9 - len(answer) - 2
        ids = [START, *prompt[max(0, len(prompt) - room) :], *answer, END]
        padded = [*ids, *[0] * (9 - len(ids))]
        assert x["token_ids"][row].numpy().tolist() == padded[:-1]
        assert y[row].numpy().tolist() == padded[1:]
        asked = len(ids) - len(answer) - 2
        expected = [0.0] * asked + [1.0] * (len(answer) + 1)
        assert weight[row].numpy().tolist() == [*expected, *[0.0] * (8 - len(expected))]
        mask = x["padding_mask"][row].numpy().tolist()
        assert mask == [k < len(ids) for k in range(8)]
    single = preprocessor(PROMPTS[0], ANSWERS[0], 0.5)
    np.testing.assert_array_equal(single[0]["token_ids"], x["token_ids"][0])
    np.testing.assert_array_equal(single[2], weight[0] / 2)
    # An answer that leaves no room loses its end, and the prompt all.
    x, y, weight = CausalLMPreprocessor(tokenizer, 4)(["a cat"], ["the old dog ran on"])
    ids = token_lists(tokenizer, ["the old dog"])[0]
    assert x["token_ids"][0].numpy().tolist() == [START, *ids]
    assert y[0].numpy().tolist() == [*ids, END] and weight.numpy().all()


@pytest.mark.slow
def test_a_space_comes_between_unless_there_is_white_space():
    tokenizer = byte_pair("gpt2")
    preprocessor = CausalLMPreprocessor(tokenizer, 24)
    given = ["the cat:", "the cat:\n", "the cat:", ""]
    answers = ["a mat", "a mat", "", "a"]
    x, y, weight = preprocessor(given, answers)
    spaced = ["the cat: a mat", "the cat:\na mat", "the cat:", " a"]
    end = tokenizer.end_token_id
    for row, text in enumerate(spaced):
        inside = x["padding_mask"][row].numpy()
        ids = x["token_ids"][row].numpy()[inside].tolist()
        ids += [end] * (ids[-1] != end or row == 3)
        # GPT-2's start token is that of the end: only an empty prompt begins with it.
        assert (ids[0] == end) == (row == 3)
        assert tokenizer.detokenize([k for k in ids if k != end]) == text
        assert y[row].numpy()[weight[row].numpy() > 0][-1] == end
    assert weight.numpy().sum(1).tolist()[2:] == [1, 2]


@pytest.mark.slow
@pytest.mark.any_backend
def test_pairs_take_the_place_of_documents():
    preprocessor = CausalLMPreprocessor(word_piece(), 12, seed=1)
    data = preprocessor.dataset((PROMPTS, ANSWERS), 3, shuffle_buffer=10)
    batches = [*data]
    assert [len(y) for _, y, _ in batches] == [3, 3]
    assert np.asarray(batches[1][2]).sum(1).tolist()[1:] == [0, 0]
    held_out = [*preprocessor.dataset((PROMPTS, ANSWERS), 3, training=False)]
    x, *_ = preprocessor(PROMPTS[:3], ANSWERS[:3])
    np.testing.assert_array_equal(held_out[0][0]["token_ids"], x["token_ids"])
    with pytest.raises(ValueError, match="`packing` must be left out"):
        preprocessor.dataset((PROMPTS, ANSWERS), 3, packing="best_fit")
    with pytest.raises(ValueError, match="`drop_remainder` must be left out"):
        preprocessor.dataset((PROMPTS, ANSWERS), 3, drop_remainder=False)
    with pytest.raises(ValueError, match="equally many"):
        preprocessor.dataset((PROMPTS, ANSWERS[:2]), 3)


@pytest.mark.slow
def test_a_model_learns_to_answer():
    tokenizer = byte_pair("gpt2")
    model = CausalLM(
        make("GPT2", vocabulary_size=tokenizer.vocabulary_size()),
        CausalLMPreprocessor(tokenizer, 15),
    )
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=False)
    prompts, answers = ["the cat", "the dog"] * 16, ["sat on", "ran"] * 16
    model.fit(prompts, answers, batch_size=8, epochs=25, verbose=0)
    written = model.generate(["the cat", "the dog"], 14)
    assert written == ["the cat sat on", "the dog ran"]
