import random

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.presets.tokenizer_presets import has_vocabulary
from keras_bertfam.tokenizers import (
    GemmaTokenizer,
    GPTTokenizer,
    RobertaTokenizer,
    merging,
    train_byte_pair,
    train_sentence_piece,
    train_word_piece,
)
from keras_bertfam.tokenizers.gemma import BYTES
from keras_bertfam.tokenizers.pipeline_ops import (
    as_graph_layer,
    token_strings,
    tokenize,
    tokenize_with_masks,
    word_prefix,
    word_start_table,
)
from keras_bertfam.tokenizers.text_tokenizer import add_tokens
from keras_bertfam.tokenizers.training import BYTE_PAIR
from tests.tiny_masked_lm import SPECIALS

SPECIALS_OF_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_pair_tokenizer():
    tokens = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        *"amt",
        "Ġ",
        "Ġm",
        "at",
        "Ã",
        "©",
        "Ã©",
    ]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return keras_hub.tokenizers.RobertaTokenizer(vocabulary, ["Ġ m", "a t", "Ã ©"])


def test_what_only_byte_level_tokenizers_have():
    tokenizer = byte_pair_tokenizer()
    word_piece = BertTokenizer([*SPECIALS, "at", "##m"])
    assert (word_prefix(tokenizer), word_prefix(word_piece)) == (" ", "")
    assert token_strings(tokenizer)[5:] == [
        "a",
        "m",
        "t",
        " ",
        " m",
        "at",
        "�",
        "�",
        "é",
    ]
    assert token_strings(word_piece) == [*SPECIALS, "at", "##m"]


GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *BYTES, "▁", "a", "▁a", "##"]
GPT = ["<unk>", "a", "b", "a</w>", "ba</w>"]


def numbered(tokens):
    return {token: number for number, token in enumerate(tokens)}


def test_strings_of_byte_pairs_of_characters():
    gemma = GemmaTokenizer(numbered(GEMMA), ["▁ a"])
    strings = token_strings(gemma)
    assert strings[:5] == GEMMA[:5] and strings[-4:] == [" ", "a", " a", "##"]
    assert strings[5 : 5 + 0x80] == [chr(number) for number in range(0x80)]
    assert strings[5 + 0x80 : 5 + 0x100] == ["�"] * 0x80
    gpt = GPTTokenizer(numbered(GPT), ["b a</w>"])
    assert token_strings(gpt) == ["<unk>", "a", "b", "a", "ba"]
    for tokenizer in (gemma, gpt):
        more = token_strings(add_tokens(tokenizer, ["<new>"]))
        assert more == [*token_strings(tokenizer), "<new>"]
    roberta = RobertaTokenizer(numbered([*SPECIALS_OF_ROBERTA, "Ġ", "a"]), ["Ġ a"])
    more = token_strings(add_tokens(roberta, ["<new>"]))
    assert more == [*SPECIALS_OF_ROBERTA, " ", "a", "<new>"]


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (lambda: GemmaTokenizer(numbered(GEMMA), ["▁ a"]), ["a a", "é"]),
        (lambda: GPTTokenizer(numbered(GPT), ["b a</w>"]), ["ba", "ba a"]),
    ],
)
def test_ids_of_any_form(tokenizer, expected):
    tokenizer = tokenizer()
    is_gemma = isinstance(tokenizer, GemmaTokenizer)
    rows = [[262, 263], [5 + 0xC3, 5 + 0xA9]] if is_gemma else [[2, 3], [4, 3]]
    dense = tf.constant(rows)
    forms = [rows, np.array(rows), dense, tf.cast(dense, tf.int64)]
    forms += [tf.ragged.constant(rows), keras.ops.convert_to_tensor(rows)]
    for form in forms:
        texts = tokenizer.detokenize(form).numpy()
        assert [text.decode() for text in texts] == expected
    single = tokenizer.detokenize(dense[0])
    assert single.numpy().decode() == expected[0]
    graph = tf.function(tokenizer.detokenize, autograph=False)(dense).numpy()
    assert [text.decode() for text in graph] == expected
    assert tokenizer.detokenize([]).numpy() == b""


def test_word_starts_by_kind():
    """A token that begins like another kind's says nothing."""
    gemma = GemmaTokenizer(numbered([*GEMMA, "Ġ"]), ["▁ a"])
    table = word_start_table(gemma)
    assert table == [True] * 5 + [False] * 256 + [True, False, True, False, False]
    tokens = [*SPECIALS_OF_ROBERTA, "Ġ", "a", "Ġa", "##", "▁"]
    roberta = RobertaTokenizer(numbered(tokens), ["Ġ a"])
    special = [True, True, True, False, True]  # <unk> isn't, in KerasHub
    assert word_start_table(roberta) == [*special, True, False, True, False, False]
    # White space begins the word behind it.
    tokens = [*SPECIALS_OF_ROBERTA, "a", "Ġa", "  ", "Ċ", "ĠĠ", "Ġ"]
    assert word_start_table(RobertaTokenizer(numbered(tokens), ["Ġ a", "Ġ Ġ"])) == [
        *special,
        False,
        *[True] * 5,
    ]
    words = BertTokenizer([*SPECIALS, "Ġ", "▁", "a", "##a"])
    assert word_start_table(words) == [True] * 8 + [False]
    with pytest.raises(ValueError, match="words by `Ġ`, for whole words. Rec"):
        word_start_table(GPTTokenizer(numbered([*GPT, "##", "▁"]), ["b a</w>"]))


def ids(tokenizer, texts):
    """In a graph: in eager mode KerasHub's tokenizers give lists."""
    graph = tf.function(lambda x: tokenize_with_masks(as_graph_layer(tokenizer), x))
    return graph(tf.constant(texts)).to_list()


@pytest.mark.slow
def test_masks_in_texts():
    tokenizer = byte_pair_tokenizer()
    texts = ["at <mask> m", "<mask>", ""]
    assert ids(tokenizer, texts) == [[10, 4, 9], [4], []]
    without = keras_hub.tokenizers.GPT2Tokenizer(
        {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3}, ["a b"]
    )
    assert ids(without, ["abab", ""]) == [[3, 3], []]
    assert has_vocabulary(tokenizer) and not has_vocabulary(BertTokenizer())


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["keras_hub", "bert", "mpnet", "albert", "xlnet", "t5", *BYTE_PAIR]
)
def test_text_goes_on_after_a_zero_byte(kind):
    documents = tf.data.Dataset.from_tensor_slices(["at at mat", "at a cat"] * 9)
    if kind == "keras_hub":
        tokenizer = as_graph_layer(byte_pair_tokenizer())
    elif kind in ("bert", "mpnet"):
        tokenizer = train_word_piece(documents, 24, family=kind)
    elif kind in BYTE_PAIR:
        tokenizer = train_byte_pair(documents, 270, family=kind)
    else:
        tokenizer = train_sentence_piece(documents, 24, family=kind)
    # BERT's clean-up leaves it out.
    gap = "" if kind in ("bert", "mpnet") else " "
    mask = getattr(tokenizer, "mask_token", None) or "at"
    for method in (tokenize, tokenize_with_masks):
        encode = tf.function(lambda texts, method=method: method(tokenizer, texts))
        texts = [f"at {mask} m\0at at", f"at {mask} m{gap}at at"]
        ids = encode(tf.constant(texts)).to_list()
        assert ids[0] == ids[1] and len(ids[0]) >= 4


def test_a_tokenizer_that_pads_its_rows():
    tokenizer = BertTokenizer([*SPECIALS, "a"], sequence_length=6)
    assert tokenizer(["a"]).shape == (1, 6)
    with pytest.raises(ValueError, match=r"`sequence_length=None`: .* Received: 6."):
        tokenize(tokenizer, tf.constant(["a"]))


@pytest.mark.slow
def test_eager_calls_run_the_graph_that_was_traced_once(monkeypatch):
    tokenizer = as_graph_layer(as_graph_layer(byte_pair_tokenizer()))
    loops, merge = [], merging._merge

    def count(tokenizer, letters):
        loops.append(letters)
        return merge(tokenizer, letters)

    monkeypatch.setattr(merging, "_merge", count)
    texts = ["at mat", "", "mat\0at", "tam"]
    expected = ids(tokenizer, texts)
    for given in (texts, tuple(texts), np.array(texts), tf.constant(texts)):
        assert tokenizer(given).to_list() == expected
    for text, row in zip(texts, expected, strict=True):
        assert keras.ops.convert_to_numpy(tokenizer(text)).tolist() == row
    assert len(loops) == 2  # one by `ids`
    assert tokenizer([["at"]]).to_list() == [[[10]]]
    size = tokenizer.vocabulary_size()
    tokenizer.set_vocabulary_and_merges(
        {t: size - 1 - number for t, number in tokenizer.vocabulary.items()},
        tokenizer.merges,
    )
    assert (expected[0][0], tokenizer(["at"]).to_list()) == (10, [[size - 11]])


@pytest.mark.parametrize("family", BYTE_PAIR)
def test_all_places_of_a_pair_are_merged_at_once(family, seed):
    """A long text without spaces then takes steps as there are merges, not tokens."""
    generator = random.Random(seed)
    runs = ["".join(generator.choices("aab", k=200)) for _ in range(20)]
    documents = tf.data.Dataset.from_tensor_slices(runs)
    tokenizer = train_byte_pair(documents, 320, family=family)
    assert tokenizer.merges_in_order
    if family in ("gpt2", "gpt"):
        found = tokenizer(runs).to_list()
        merges = [*tokenizer.merges]
        tokenizer.set_vocabulary_and_merges(dict(tokenizer.vocabulary), merges)
        tokenizer.merges_in_order = False
        assert tokenizer(runs).to_list() == found
    merges = [*reversed(tokenizer.merges)]
    tokenizer.set_vocabulary_and_merges(dict(tokenizer.vocabulary), merges)
    assert not tokenizer.merges_in_order


def test_word_starts_of_a_published_vocabulary(data_dir):
    """It has tokens of `#` alone, which continue no word of WordPiece."""
    files = (data_dir / "tokenizers/roberta" / n for n in ("vocab.json", "merges.txt"))
    tokenizer = RobertaTokenizer(*map(str, files))
    tokens = tokenizer.get_vocabulary()
    assert "##" in tokens
    table = word_start_table(tokenizer)
    expected = {t for t in tokens if t.startswith("Ġ")}
    found = {t for t, starts in zip(tokens, table, strict=True) if starts}
    assert expected <= found and len(found - expected) < 10


def test_punctuation_is_a_word_in_sentence_pieces():
    """As in the code of ALBERT, XLNet and DeBERTa; in RoBERTa's it is none."""
    gemma = GemmaTokenizer(numbered([*GEMMA, ".", "…", "$", "..", "é", "5"]), ["▁ a"])
    assert word_start_table(gemma)[-6:] == [True, True, True, False, False, False]
    tokens = [*SPECIALS_OF_ROBERTA, "Ġ", "a", "Ġa", ".", "$"]
    roberta = RobertaTokenizer(numbered(tokens), ["Ġ a"])
    assert word_start_table(roberta)[-2:] == [False, False]
