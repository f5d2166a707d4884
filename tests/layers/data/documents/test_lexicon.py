import random
import re
import time

import pytest
import tensorflow as tf

from keras_bertfam.layers import Lexicon


def mark(lexicon, texts):
    return [text.decode() for text in lexicon(tf.constant(texts)).numpy()]


def test_longest_first_from_the_left_and_whole_words():
    lexicon = Lexicon(["New York", "New York City", "York", "City Hall", "U.S."])
    texts = [
        "He left New York City Hall, not York.",
        "Yorkshire and NewYork; new york; New  York\tCity",
        "New\nYork City",
        "the U.S. army",
        "",
    ]
    assert mark(lexicon, texts) == [
        "He left ⟦New York City⟧ Hall, not ⟦York⟧.",
        "Yorkshire and NewYork; new york; ⟦New  York\tCity⟧",
        "New\n⟦York⟧ City",
        "the ⟦U.S.⟧ army",
        "",
    ]
    assert lexicon(tf.constant("York")).numpy().decode() == "⟦York⟧"


def test_case_scripts_and_kinds():
    lexicon = Lexicon(["哈尔滨", "黑龙江", "École", "ABC"], "phrase", ignore_case=True)
    texts = ["哈尔滨是黑龙江的省会", "ÉCOLE école Abc哈尔滨", "Écoles"]
    assert mark(lexicon, texts) == [
        "⟪哈尔滨⟫是⟪黑龙江⟫的省会",
        "⟪ÉCOLE⟫ ⟪école⟫ ⟪Abc⟫⟪哈尔滨⟫",
        "Écoles",
    ]
    both = [
        x.decode() for x in Lexicon(["龙江的"])(lexicon(tf.constant(texts))).numpy()
    ]
    assert both[0] == "⟪哈尔滨⟫是⟪黑⟦龙江⟫的⟧省会"


def test_what_is_marked_already_stays():
    lexicon = Lexicon(["York", "of York"])
    texts = ["⟦Duke of York⟧ of York", "⟦open York", "York"]
    expected = ["⟦Duke of York⟧ ⟦of York⟧", "⟦open York", "⟦York⟧"]
    assert mark(lexicon, texts) == expected


def test_against_a_plain_loop():
    draw = random.Random(0)
    words = "a b c d".split()
    entries = sorted({" ".join(draw.choices(words, k=k % 5 + 1)) for k in range(40)})
    entries = draw.sample(entries, 15)
    texts = [" ".join(draw.choices(words, k=k)) for k in (0, 1, 2, 60, 200)]
    pattern = re.compile(
        "|".join(sorted(map(r"\b{}\b".format, entries), key=lambda e: -len(e)))
    )
    expected = [pattern.sub(lambda found: f"⟦{found[0]}⟧", text) for text in texts]
    assert mark(Lexicon(entries), texts) == expected


def test_a_file_in_a_dataset(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("Ada Lovelace\nBabbage\n", "utf-8")
    texts = tf.data.Dataset.from_tensor_slices(["Ada Lovelace met Babbage", "Ada"])
    found = [text.decode() for text in texts.map(Lexicon(path)).as_numpy_iterator()]
    assert found == ["⟦Ada Lovelace⟧ met ⟦Babbage⟧", "Ada"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("Ada\n\nBabbage\n", r"must not be empty. Received: '' in line 2\."),
        ("Ada\n  \n", "must not be empty. Received: '  ' in line 2"),
        ("", "must not be empty. Received: '' in line 1"),
        ("a ⟦b⟧\n", "must not contain marks"),
        ("a " * 33 + "\n", "at most 32 words or characters. .* in line 1"),
    ],
)
def test_entries_that_are_none(entries, message, tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text(entries, "utf-8")
    with pytest.raises(ValueError, match=message):
        Lexicon(path)


def test_no_entries_and_another_kind():
    with pytest.raises(ValueError, match="`entries` must not be empty"):
        Lexicon([])
    with pytest.raises(ValueError, match="`kind` must be one of"):
        Lexicon(["a"], "noun")


@pytest.mark.slow
def test_a_million_entries():
    entries = [f"name{i % 1000} of{i // 1000}" for i in range(1_000_000)]
    begin = time.time()
    lexicon = Lexicon(entries)
    assert time.time() - begin < 60
    text = " ".join(f"then name{i} of{i} came" for i in range(2000))
    begin = time.time()
    found = lexicon(tf.constant([text])).numpy()[0].decode()
    assert time.time() - begin < 30
    assert found.count("⟦") == 1000 and "⟦name7 of7⟧" in found


def test_a_file_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("New York\nParis\n", encoding="utf-8-sig")
    assert mark(Lexicon(str(path)), ["in New York"]) == ["in ⟦New York⟧"]
