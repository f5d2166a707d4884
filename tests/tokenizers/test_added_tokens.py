"""Added tokens beside `tokenizers`, the reference, in texts that are drawn anew."""

import functools
import random

import pytest
import tensorflow as tf
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from keras_bertfam.presets.tokenizer_formats.tokenizer_files import export_tokenizer
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer, load_tokenizer
from keras_bertfam.tokenizers import (
    BertTokenizer,
    train_byte_pair,
    train_sentence_piece,
)
from keras_bertfam.tokenizers.added_tokens import AddedToken, split_at
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.word_piece import SPECIAL_TOKENS

LETTERS = [
    "a",
    "b",
    "ab",
    "Ab",
    "é",
    "e\u0301",
    "É",
    "ß",
    "中",
    "<x>",
    "<x",
    "new",
    "N",
]
LETTERS += ["_", "-", ".", " ", "  ", "\n", "\u3000", "7", "NEW", "[MASK]", "<mask>"]
CONTENTS = ["<x>", "<x", "new", "New", "é", "b", "ab a", "中", "-", "<x><x>", "ß."]
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
WORDS = [
    *SPECIAL_TOKENS,
    *"abexnNEw7_-.<>中ß",
    *(f"##{c}" for c in "abexnNEwß7"),
    "é",
    "É",
]
KINDS = ["uncased", "cased", "roberta", "modernbert", "gpt2"]


def texts_of(seed, count=60):
    draw = random.Random(seed)
    lengths = [draw.randrange(12) for _ in range(count)]
    return ["".join(draw.choices(LETTERS, k=length)) for length in lengths]


def tokens_of(seed):
    draw = random.Random(seed)
    tokens = [
        {"content": content, **{flag: draw.random() < 0.4 for flag in FLAGS}}
        for content in draw.sample(CONTENTS, 6)
    ]
    if {"new", "New"} <= {token["content"] for token in tokens}:
        # In lower case they are one, and which is found differs from run to run there.
        tokens = [token for token in tokens if token["content"] != "New"]
    return tokens


@functools.cache
def plain(kind):
    """A tokenizer of ours, and the model and steps of `tokenizers`."""
    if kind in ("cased", "uncased"):
        ours = BertTokenizer(WORDS, lowercase=kind == "uncased")
        numbers = {word: number for number, word in enumerate(WORDS)}
        model = models.WordPiece(numbers, unk_token="[UNK]")
        return (
            ours,
            model,
            normalizers.BertNormalizer(lowercase=kind == "uncased"),
            pre_tokenizers.BertPreTokenizer(),
        )
    documents = tf.data.Dataset.from_tensor_slices(texts_of(0))
    ours = train_byte_pair(documents, 300, family=kind)
    merges = [tuple(m.split(" ")) for m in ours.merges]
    return (
        ours,
        models.BPE(dict(ours.vocabulary), merges),
        normalizers.NFC() if kind == "modernbert" else None,
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    )


def with_tokens(kind, tokens):
    """The two with added tokens."""
    ours, model, normalizer, words = plain(kind)
    settings = {"added_tokens": tokens}
    if kind in ("cased", "uncased"):
        made = BertTokenizer(WORDS, lowercase=ours.lowercase, **settings)
    else:
        made = type(ours)(ours.vocabulary, ours.merges, **settings)
    theirs = tokenizers.Tokenizer(model)
    theirs.pre_tokenizer = words
    if normalizer is not None:
        theirs.normalizer = normalizer
    known = ours.get_vocabulary()
    for token in tokens:
        added = tokenizers.AddedToken(**token, special=False)
        theirs.add_tokens([added])
    if kind not in ("cased", "uncased"):
        mask = getattr(ours, "mask_token", None)
        theirs.add_special_tokens(
            [
                tokenizers.AddedToken(name, lstrip=name == mask, normalized=False)
                for name in ours.unsplittable_tokens
            ]
        )
    assert made.vocabulary_size() >= len(known)
    return made, theirs


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_places_are_those_of_tokenizers(kind, seed):
    texts, tokens = texts_of(seed), tokens_of(seed)
    ours, theirs = with_tokens(kind, tokens)
    expected = theirs.encode_batch(texts, add_special_tokens=False)
    numbers = {t["content"]: ours.token_to_id(t["content"]) for t in tokens}
    assert numbers == {each: theirs.token_to_id(each) for each in numbers}
    found = tokenize(ours, tf.constant(texts)).to_list()
    for text, row, encoding in zip(texts, found, expected, strict=True):
        assert row == encoding.ids, (text, tokens)
    ids, starts, ends = tokenize_with_offsets(ours, tf.constant(texts))
    assert ids.to_list() == found
    # Added tokens are where they are found, less white space before.
    rows = zip(*(x.to_list() for x in (ids, starts, ends)), strict=True)
    for text, row, encoding in zip(texts, rows, expected, strict=True):
        for number, start, end, (first, last) in zip(
            *row, encoding.offsets, strict=True
        ):
            # There, a space that the clean-up puts beside 中 counts as it.
            if number in numbers.values() and "中" not in text[first:last]:
                piece = text.encode()[start:end].decode()
                # Accents that the clean-up removes are of the letter before.
                assert piece.startswith(text[first:last].lstrip()), (text, tokens)


def test_parts_of_texts():
    tokens = [AddedToken("<b>", lstrip=True), AddedToken("c", single_word=True)]
    parts = split_at(tf.constant(["a <b> c", "", "ccc<b>"]), tokens)
    assert parts.texts.to_list() == [[b"a", b"<b>", b" ", b"c"], [], [b"ccc", b"<b>"]]
    assert parts.numbers.to_list() == [[-1, 0, -1, 1], [], [-1, 0]]
    assert parts.starts.to_list() == [[0, 1, 5, 6], [], [0, 3]]
    assert parts.ends.to_list() == [[1, 5, 6, 7], [], [3, 6]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uncased", "roberta", "albert"])
def test_saved_read_and_exported_in_a_graph(kind, tmp_path):
    tokens = ["<q>", AddedToken("fresh", special=True, lstrip=True)]
    if kind == "albert":
        documents = tf.data.Dataset.from_tensor_slices(["a b ab", "b a ba"] * 4)
        plain_one = train_sentence_piece(documents, 30, family="albert")
        ours = type(plain_one)(plain_one.proto, added_tokens=tokens)
    else:
        ours, _ = with_tokens(kind, [])
        plain_one = ours
        given = ours.vocabulary, *([] if kind == "uncased" else [ours.merges])
        ours = type(ours)(*given, added_tokens=tokens)
    size = plain_one.vocabulary_size()
    assert ours.vocabulary_size() == size + 2
    assert ours.get_vocabulary()[-2:] == ["<q>", "fresh"]
    assert [ours.id_to_token(size + k) for k in (0, 1)] == ["<q>", "fresh"]
    [row] = ours(["a <q>b fresh"]).to_list()
    assert size in row and row[-1] == size + 1
    assert ours.detokenize(row).numpy().decode().split() in (
        ["a", "<q>", "b", "fresh"],
        ["a", "<q>bfresh"],  # bytes say where spaces are
    )
    ids = tf.ragged.constant([row], dtype=tf.int32, row_splits_dtype=tf.int32)
    assert ours.detokenize(ids).numpy() == [ours.detokenize(row).numpy()]
    ours.save_to_preset(tmp_path)
    again = load_tokenizer(str(tmp_path))
    assert again(["a <q>b fresh"]).to_list() == [row]
    assert again.added_tokens == ours.added_tokens
    (in_graph,) = tf.data.Dataset.from_tensors(["a <q>b fresh"]).map(again)
    assert in_graph.to_list() == [row]


def test_special_tokens_in_strings_are_found_as_fast_as_others():
    tokenizer = BertTokenizer(WORDS, lowercase=True, special_tokens_in_strings=True)
    assert tokenizer(["A[MASK]é[SEP]"]).to_list() == [[5, 4, 7, 3]]


@pytest.mark.slow
def test_a_zero_byte_ends_no_text():
    tokenizer = BertTokenizer(WORDS, added_tokens=["<q>"])
    expected = tokenizer(["a<q>b"]).to_list()
    assert tokenizer(["a\0<q>\0b"]).to_list() == expected
    roberta, _ = with_tokens("roberta", [{"content": "<q>"}])
    spaces, zeros = (roberta([f"a{x}<q>b{x}"]).to_list() for x in (" ", "\0"))
    assert zeros == spaces


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("<x>", "must be a list"),
        (["<x>", "<x>"], "not repeat a token. Received: '<x>' twice"),
        ([""], "must be a string that isn't empty"),
        (
            [{"content": "a", "lstrip": 1}],
            "`lstrip` of the added token 'a' must be a b",
        ),
        ([{"content": "a", "left": True}], "must have strings, or dicts"),
        ([3], "must have strings"),
    ],
)
def test_what_is_no_added_token(tokens, message):
    with pytest.raises(ValueError, match=message):
        BertTokenizer(WORDS, added_tokens=tokens)


def test_a_file_beside_a_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    (tmp_path / "added_tokens.json").write_text(
        f'{{"new": {len(WORDS)}, "<x>": {len(WORDS) + 1}}}', "utf-8"
    )
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}', "utf-8")
    tokenizer = load_given_tokenizer(tmp_path)
    assert tokenizer(["a<x> New"]).to_list() == [[5, len(WORDS) + 1, len(WORDS)]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "gpt", "albert", "xlnet", "t5"])
def test_there_and_back(kind, tmp_path):
    """`transformers` finds what we find, and we what it writes."""
    transformers = pytest.importorskip("transformers")
    tokens = ["<q>", AddedToken("fresh", special=True, lstrip=True)]
    family = {"uncased": "bert", "cased": "bert", "gpt": "openai-gpt"}.get(kind, kind)
    documents = tf.data.Dataset.from_tensor_slices(
        ["a b ab", "b a ba", "q < > f r"] * 4
    )
    if kind in ("albert", "xlnet", "t5"):
        plain_one = train_sentence_piece(documents, 40, family=kind)
        ours = type(plain_one)(plain_one.proto, added_tokens=tokens)
    elif kind == "gpt":
        plain_one = train_byte_pair(documents, 30, family="gpt")
        ours = type(plain_one)(
            plain_one.vocabulary, plain_one.merges, added_tokens=tokens
        )
    else:
        ours, _ = with_tokens(kind, [])
        given = ours.vocabulary, *([ours.merges] if hasattr(ours, "merges") else [])
        ours = type(ours)(*given, added_tokens=tokens)
    texts = ["a <q>b fresh", "<q><q> freshab", "b a", ""]
    found = tokenize(ours, tf.constant(texts)).to_list()
    export_tokenizer(ours, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(texts, add_special_tokens=False)["input_ids"] == found
    assert len(theirs) == ours.vocabulary_size()
    again = load_given_tokenizer(tmp_path, family)
    assert tokenize(again, tf.constant(texts)).to_list() == found
    # As `transformers` writes them, all in one file.
    theirs.save_pretrained(tmp_path / "theirs")
    last = load_given_tokenizer(tmp_path / "theirs", family)
    assert tokenize(last, tf.constant(texts)).to_list() == found
    assert last.get_vocabulary()[-2:] == ["<q>", "fresh"]
