"""What prompts become, and what isn't one."""

import types

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.tasks.generation import prompts
from keras_bertfam.tokenizers import (
    train_byte_pair,
    train_sentence_piece,
    train_word_piece,
)
from tests.tiny_text_to_text import make

pytestmark = pytest.mark.any_backend
TEXTS = ["the cat sat on a mask", "a dog < a cat > 1 | 2"]
BYTE_LEVEL = ["bart", "deberta", "eurobert", "modernbert", "roberta"]
KINDS = [*BYTE_LEVEL, "word_piece", "albert", "xlnet"]


def trained(kind):
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 8)
    if kind == "word_piece":
        return train_word_piece(documents, 60)
    if kind in BYTE_LEVEL:
        return train_byte_pair(documents, 300, family=kind)
    return train_sentence_piece(documents, 50, family=kind)


def rows_of(tokenizer, text):
    task = types.SimpleNamespace(
        preprocessor=types.SimpleNamespace(tokenizer=tokenizer)
    )
    [row], strings = prompts.token_rows(task, text, specials=True)
    first, end = prompts.special_ids(tokenizer)
    assert strings and row[: len(first)] == first and row[len(row) - len(end) :] == end
    return row[len(first) : len(row) - len(end)]


@pytest.mark.parametrize("kind", KINDS)
def test_masks_in_prompts(kind):
    tokenizer = trained(kind)
    mask, number = tokenizer.mask_token, tokenizer.mask_token_id
    for text in TEXTS:  # signs that mean something in patterns are text
        assert rows_of(tokenizer, text) == np.asarray(tokenizer(text)).tolist()
    before, after = (np.asarray(tokenizer(x)).tolist() for x in ("a", " cat"))
    for space in (" ", "\n") if kind in BYTE_LEVEL else (" ",):
        found = rows_of(tokenizer, f"a{space}{mask} cat")
        assert found.count(number) == 1
        if kind in BYTE_LEVEL:  # whose masks have the space before them
            assert found == [*before, number, *after]
    assert rows_of(tokenizer, f"{mask}{mask}").count(number) == 2


def test_broken_prompts_are_those_of_graphs():
    assert prompts.as_prompts([b"a\xffb"]) == ["a\ufffdb"]


def test_what_is_no_prompt_and_no_end():
    model = tasks.CausalLM(make("GPT2"))
    row = {"token_ids": np.array([5, 6, 7]), "padding_mask": np.ones(3, bool)}
    with pytest.raises(ValueError, match=r"of the shape `\(batch, length\)`"):
        model.generate(row, 6)
    for stop in ([-1], [[4], [-1]]):
        with pytest.raises(ValueError, match="`stop_token_ids` must have ids of at le"):
            model.generate([[5, 6], [7]], 8, stop_token_ids=stop)
    for name in ("forced_first_token", "forced_second_token", "forced_last_token"):
        with pytest.raises(ValueError, match=f"`{name}` must be an id below"):
            model.generate([[5, 6]], 8, settings={name: 30})
    for word in (b"bad", [1.7]):
        with pytest.raises(ValueError, match="`bad_words` must be strings, or"):
            tasks.GenerationSettings(bad_words=[word])


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_are_not_written_behind_a_space(kind):
    tokenizer = trained(kind)
    task = types.SimpleNamespace(
        backbone=types.SimpleNamespace(vocabulary_size=10**4),
        preprocessor=types.SimpleNamespace(tokenizer=tokenizer),
    )
    settings = tasks.GenerationSettings(bad_words=["cat"])
    banned = prompts.words_as_ids(task, settings).bad_words
    text = np.asarray(tokenizer("the cat sat")).tolist()
    assert any(
        tuple(text[k : k + len(word)]) == tuple(word)
        for word in banned
        for k in range(len(text))
    )
    empty = tasks.GenerationSettings(bad_words=[""])
    with pytest.raises(ValueError, match="`bad_words` must be words that have tokens"):
        prompts.words_as_ids(task, empty)
