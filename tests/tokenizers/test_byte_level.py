"""Byte-level BPE beside `tokenizers`, the reference, on texts that are drawn anew."""

import json
import random
import unicodedata

import keras_hub
import pytest
import tensorflow as tf
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from keras_bertfam.tokenizers import (
    GPTTokenizer,
    ModernBertTokenizer,
    RobertaTokenizer,
    merging,
    train_byte_pair,
)
from keras_bertfam.tokenizers.byte_level import words_of
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer, tokenize

slow = pytest.mark.slow
FAMILIES = ["roberta", *(pytest.param(f, marks=slow) for f in ("bart", "gpt2"))]
FAMILIES += ["modernbert"]
# TensorFlow's ICU and RE2 don't know the kind of newer characters.
OLD = unicodedata.ucd_3_2_0
SPACES = ["  ", "   ", "\n", "\n\n", "\t", "\r\n", "\x0b", "\x85", "\xa0", "\u2009"]
SPACES += ["\u2028", "\u3000", " \n ", "", " ", " ", " ", " "]
WORDS = """the of it's we'll I'm 's 'S x1 3.14 foo_bar == -> ... :) <s> <mask> [MASK]
    </s> <|endoftext|> ĴA ĴAŬDO (६) ६६ café cafe\u0301 naïve \x1c \u200d ½ ²""".split()
SCRIPTS = [(0x21, 0x250), (0x370, 0x590), (0x5D0, 0x700), (0x900, 0xE80)]
SCRIPTS += [(0x1100, 0x1380), (0x1E00, 0x2BFF), (0x3041, 0x3100), (0x4E00, 0x9FA0)]
SCRIPTS += [(0xAC00, 0xD7A0), (0x1F300, 0x1F700)]
KNOWN = [
    "One\n\nTwo",
    "(६)",
    "६६",
    "ĴAŬDO ĴB ĴC ĴD",
    "",
    " ",
    "  ",
    " 's",
    "  's",
    "\n's",
]
KNOWN += [" a  b\n\nc ", "a\n", "\n\n", "a <mask>b", "<s><s>", "  \n x", "１２ ٣"]


def draw(random_, count):
    """Texts of words, letters of all scripts, numbers, marks and all white space."""

    def word():
        kind = random_.random()
        if kind < 0.4:
            return random_.choice(WORDS)
        if kind < 0.7:
            ranges = (random_.choice(SCRIPTS) for _ in range(random_.randrange(1, 6)))
            drawn = (chr(random_.randrange(*each)) for each in ranges)
            return "".join(c for c in drawn if OLD.category(c) != "Cn")
        if kind < 0.8:
            return str(random_.randrange(10**6))
        return "".join(random_.choices("abcdefgh'-.,;!?()[]{}\"", k=4))

    return [
        "".join(word() + random_.choice(SPACES) for _ in range(random_.randrange(14)))
        for _ in range(count)
    ]


def reference(tokenizer, family):
    """`tokenizers`' own of the same vocabulary."""
    merges = [tuple(m.split(" ")) for m in tokenizer.merges if "#version" not in m]
    made = tokenizers.Tokenizer(models.BPE(dict(tokenizer.vocabulary), merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=tokenizer.add_prefix_space
    )
    if family == "modernbert":
        made.normalizer = normalizers.NFC()
    mask = getattr(tokenizer, "mask_token", None)
    made.add_special_tokens(
        [
            tokenizers.AddedToken(token, lstrip=token == mask, normalized=False)
            for token in tokenizer.unsplittable_tokens
        ]
    )
    return made


def compare(tokenizer, family, texts):
    expected = [e.ids for e in reference(tokenizer, family).encode_batch(texts)]
    layer = as_graph_layer(tokenizer)
    eagerly = tokenize(layer, tf.constant(texts)).to_list()
    dataset = tf.data.Dataset.from_tensors(texts).map(lambda t: tokenize(layer, t))
    (in_graph,) = (rows.to_list() for rows in dataset)
    wrong = [
        (text, ours, theirs)
        for text, ours, theirs in zip(texts, eagerly, expected, strict=True)
        if ours != theirs
    ]
    assert not wrong, f"{len(wrong)} of {len(texts)}: {wrong[:3]}"
    assert in_graph == eagerly


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_tokenizers(family, seed):
    texts = KNOWN + draw(random.Random(seed), 300)
    documents = tf.data.Dataset.from_tensor_slices(texts)
    tokenizer = train_byte_pair(documents, 600, family=family)
    compare(tokenizer, family, texts)
    if family == "modernbert":
        return
    texts = [text for text in texts if "<mask>" not in text]  # takes the space before
    read = tokenizer.detokenize(tokenize(tokenizer, tf.constant(texts)))
    assert [*read] == texts


def test_tokens_that_are_written_as_they_are():
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"] * 2)
    learned = train_byte_pair(documents, 300, family="modernbert")
    vocabulary = dict(learned.vocabulary)
    for token in ("  ", "   ", "é日", " of"):
        vocabulary[token] = len(vocabulary)
    added = [{"content": "é日"}, {"content": " of"}, {"content": "<new>"}]
    tokenizer = ModernBertTokenizer(vocabulary, learned.merges, added_tokens=added)
    text = "a:\n   the  cat é日 of ñ<new>b"
    ids = tokenizer([text])
    assert {vocabulary["é日"], vocabulary["   "], len(vocabulary)} <= {
        *ids.to_list()[0]
    }
    assert tokenizer.detokenize(ids).numpy()[0].decode() == text
    assert tokenizer.detokenize(ids[0]).numpy().decode() == text
    known = ModernBertTokenizer(vocabulary, learned.merges)
    assert known.detokenize(ids[:, :-2]) == [text.removesuffix("<new>b")]


def test_what_no_vocabulary_has():
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    learned = train_byte_pair(documents, 300)
    vocabulary, merges = learned.vocabulary, learned.merges
    size = len(vocabulary)
    for ids in ({**vocabulary, "zzz": size + 5}, {**vocabulary, "zzz": 5}):
        with pytest.raises(ValueError, match=r"`vocabulary` must have the ids 0, 1, "):
            RobertaTokenizer(ids, merges)
    step = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    spaced = RobertaTokenizer(vocabulary, merges, pre_tokenizer=[step])
    plain = RobertaTokenizer(vocabulary, merges, add_prefix_space=True)
    assert spaced(["a cat"]).to_list() == plain(["a cat"]).to_list()
    assert spaced.add_prefix_space
    given = {"pre_tokenizer": [step], "add_prefix_space": False}
    assert not RobertaTokenizer(vocabulary, merges, **given).add_prefix_space
    assert train_byte_pair(documents, 300, pre_tokenizer=[step]).add_prefix_space
    learned = train_byte_pair(documents, 40, family="gpt")
    config = {**learned.get_config(), "add_prefix_space": True}
    assert not GPTTokenizer.from_config(config).add_prefix_space
    with pytest.raises(ValueError, match="must be `False` for a GPTTokenizer"):
        GPTTokenizer(add_prefix_space=True)


def test_paths_of_files(tmp_path):
    documents = tf.data.Dataset.from_tensor_slices(["a bat", "a cat sat"])
    learned = train_byte_pair(documents, 300)
    learned.save_assets(tmp_path)
    read = RobertaTokenizer(tmp_path / "vocabulary.json", tmp_path / "merges.txt")
    assert read(["a cat"]).to_list() == learned(["a cat"]).to_list()


@pytest.mark.slow
def test_a_space_before_the_text():
    texts = KNOWN + draw(random.Random(1), 100)
    documents = tf.data.Dataset.from_tensor_slices(texts)
    plain = train_byte_pair(documents, 400, family="roberta")
    tokenizer = keras_hub.tokenizers.RobertaTokenizer(
        plain.vocabulary, plain.merges, add_prefix_space=True
    )
    compare(tokenizer, "roberta", texts)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["roberta", "gpt2"])
def test_published_vocabularies(name, seed, data_dir):
    folder = data_dir / "tokenizers" / name
    cls = {"roberta": "RobertaTokenizer", "gpt2": "GPT2Tokenizer"}[name]
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    merges = (folder / "merges.txt").read_text("utf-8").splitlines()
    merges = [line for line in merges if not line.startswith("#version")]
    tokenizer = getattr(keras_hub.tokenizers, cls)(vocabulary, merges)
    compare(tokenizer, name, KNOWN + draw(random.Random(seed), 3000))


def test_words():
    words = words_of(tf.constant(["a  b\n\nc", "", " x's ", "(६)"])).to_list()
    assert [[word.decode() for word in row] for row in words] == [
        ["a", " ", " b", "\n", "\n", "c"],
        [],
        [" x", "'s", " "],
        ["(", "६", ")"],
    ]


@pytest.mark.slow
def test_one_long_text_takes_as_much_memory_as_it_has_words():
    words = words_of(tf.constant(["a b " * 500_000]))
    assert words.flat_values.shape[0] == 1_000_001


@pytest.mark.slow
def test_words_are_merged_in_parts_of_the_memory(monkeypatch):
    documents = tf.data.Dataset.from_tensor_slices(["abc abcab cab b" * 4])
    texts = ["abcab " + "abc" * 20, "cab" * 3 + " b a bc", "", "abc"]
    expected = train_byte_pair(documents, 266)(texts).to_list()
    monkeypatch.setattr(merging, "_AT_ONCE", 64)  # the longest alone, others together
    assert train_byte_pair(documents, 266)(texts).to_list() == expected


CHANGED = [
    "one cafe\u0301 here",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \u212b x",
    "a\u0301",
]


@pytest.mark.slow
@pytest.mark.parametrize("eagerly", [True, False])
def test_places_in_texts_that_nfc_changes(eagerly):
    documents = tf.data.Dataset.from_tensor_slices([*CHANGED, "one cafe here x"])
    tokenizer = train_byte_pair(documents, 300, family="modernbert")

    def places(texts):
        return tokenize_with_offsets(tokenizer, texts)

    found = (places if eagerly else tf.function(places))(tf.constant(CHANGED))
    for text, *bounds in zip(CHANGED, *(x.to_list() for x in found[1:]), strict=True):
        data = text.encode()
        starts, ends = bounds
        # Each token is where its letter is, accents included, and none is left out.
        covered = {k for i, j in zip(starts, ends, strict=True) for k in range(i, j)}
        spaces = {k for k, byte in enumerate(data) if byte == ord(" ")}
        heads = {k for k, byte in enumerate(data) if byte < 0x80} - spaces
        assert heads <= covered
        assert max(ends) == len(data) and starts == sorted(starts)
