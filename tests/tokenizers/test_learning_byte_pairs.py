import collections
import json
import random

import pytest
import tokenizers as hugging_face

from keras_bertfam.corpus import python_documentation
from keras_bertfam.tokenizers.learning import learn_byte_pairs, without_rare_characters


def learned_by_tokenizers(texts, size, special, **kwargs):
    trained = hugging_face.Tokenizer(hugging_face.models.BPE(**kwargs))
    trained.pre_tokenizer = hugging_face.pre_tokenizers.WhitespaceSplit()
    trainer = hugging_face.trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, show_progress=False, special_tokens=special
    )
    trained.train_from_iterator(texts, trainer)
    model = json.loads(trained.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), model["merges"]


def repeated():
    """Words of runs of few letters, where pairs overlap."""
    generator = random.Random(0)
    return [
        " ".join("".join(generator.choices("ab", k=9)) for _ in range(50)),
        "aaaa aaaaa aaa abab ababab",
    ]


@pytest.mark.parametrize("texts", [python_documentation()[:30], repeated()])
@pytest.mark.parametrize("size", [60, 700])
def test_the_same_as_of_the_text(texts, size):
    counts = collections.Counter(word for text in texts for word in text.split())
    tokens, merges = learn_byte_pairs(counts, size, ["<s>"])
    expected_tokens, expected_merges = learned_by_tokenizers(texts, size, ["<s>"])
    assert [*map(list, merges)] == [*map(list, expected_merges)]
    assert tokens == expected_tokens


def test_the_ends_of_words_and_an_alphabet():
    counts = {"cat": 5, "cats": 3, "at": 2}
    tokens, merges = learn_byte_pairs(counts, 99, ["<unk>"], "xyz", word_end="</w>")
    assert tokens[:9] == ["<unk>", *"acstxyz", "s</w>"]
    assert merges[:2] == [("c", "a"), ("ca", "t</w>")]
    assert "cat</w>" in tokens
    assert learn_byte_pairs({}, 9, ["<unk>"]) == (["<unk>"], [])
    assert learn_byte_pairs({"ab": 1}, 9, []) == (["a", "b"], [])


def test_words_without_rare_characters():
    counts = {"ab": 3, "acb": 1, "c": 2, "dd": 1, "ef": 1}
    assert without_rare_characters(counts, 2) == {"ab": 3, "a": 1, "b": 1}
    # Of an alphabet all stay; of equally frequent ones the first.
    expected = {"ab": 3, "acb": 1, "c": 2, "e": 1}
    assert without_rare_characters(counts, 5, "ex") == expected
    assert without_rare_characters(counts, 1, "x") == {}
