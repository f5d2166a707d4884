import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.steps import clean_texts
from keras_bertfam.tokenizers.word_piece import (
    SPECIAL_TOKENS,
    BertTokenizer,
)


def cleaned(character, lowercase):
    """BERT's `_clean_text`, lower-casing and `_run_strip_accents`, one by one.

    Private-use characters go as in `transformers`; the original code keeps them.
    """
    category, private = (
        unicodedata.category(character),
        "\ue000" <= character <= "\uf8ff",
    )
    if character in " \t\n\r" or category in ("Zs", "Zl", "Zp"):
        return " "
    if character in "\0\ufffd" or category in ("Cc", "Cf") or private:
        return ""
    if lowercase:
        parts = unicodedata.normalize("NFD", character.lower())
        return "".join(part for part in parts if unicodedata.category(part) != "Mn")
    return character


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character(lowercase):
    texts = [chr(k) for k in range(sys.maxunicode + 1) if not 0xD800 <= k < 0xE000]
    clean = clean_texts(tf.constant([text.encode() for text in texts]), lowercase)
    expected = np.array([cleaned(text, lowercase).encode() for text in texts], object)
    wrong = np.flatnonzero(clean.numpy() != expected)
    assert not wrong.size, [texts[k] for k in wrong[:10]]


WORDS = {
    "2½ sacks": ["2½", "sacks"],
    "Preußische Στις": ["preußische", "στις"],
    "km² … ﬁne": ["km²", "…", "ﬁne"],
    "in\u00advisible no\u200bwidth a\u00a0b\x0c": ["invisible", "nowidth", "a", "b"],
    "nul\0l": ["null"],
    "Ångström İstanbul ÉCOLE": ["angstrom", "istanbul", "ecole"],
}


@pytest.mark.parametrize("text", WORDS)
def test_words_as_bert_has_them(text):
    tokenizer = BertTokenizer([*SPECIAL_TOKENS, *WORDS[text]], lowercase=True)
    ids = list(range(5, 5 + len(WORDS[text])))
    assert tokenizer([text]).to_list() == [ids]
    # The characters left out belong to the words that they are in the midst of.
    _, starts, ends = tokenize_with_offsets(tokenizer, tf.constant([text]))
    found = [
        text.encode()[start:end].decode()
        for start, end in zip(*starts.to_list(), *ends.to_list(), strict=True)
    ]
    assert found == text.replace("\u00a0", " ").rstrip("\x0c").split(" ")
