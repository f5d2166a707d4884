import time

import keras_hub
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer, XLNetTokenizer
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from tests.tiny_sentence_piece import train_sentence_piece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["The Café's ﬁne  mat\u00a0. ", "", "  e\u0301te 🙂 x\x00y\n", "İt ``is'' 'so'"]


def pieces(tokenizer, texts=TEXTS):
    """The bytes of each token, decoded; and the ids."""
    outputs = tf.function(lambda x: tokenize_with_offsets(tokenizer, x))(
        tf.constant(texts)
    )
    ids, starts, ends = (x.to_list() for x in outputs)
    return ids, [
        [text.encode()[i:j].decode() for i, j in zip(*bounds, strict=True)]
        for text, *bounds in zip(texts, starts, ends, strict=True)
    ]


def byte_pair_tokenizer():
    letters = keras_hub.tokenizers.BytePairTokenizer.__module__
    module = __import__(letters, fromlist=["bytes_to_unicode"])
    symbols = [str(symbol) for symbol in module.bytes_to_unicode()[1]]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *symbols, "Ġm", "at", "Ġmat"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = ["Ġ m", "a t", "Ġm at"]
    return keras_hub.tokenizers.RobertaTokenizer(vocabulary, merges)


@pytest.fixture(scope="module")
def sentence_piece():
    texts = [
        *TEXTS,
        "the cafe's fine mat it is so xy",
        "abcdefghijklmnopqrstuvwxyz\"'.",
    ]
    return train_sentence_piece(texts * 20, vocab_size=60)


@pytest.mark.slow
def test_word_piece():
    words = ["the", "cafe", "'", "s", "fine", "mat", ".", "et", "##e", "xy", "x", "y"]
    tokenizer = BertTokenizer([*SPECIALS, *words], lowercase=True)
    ids, found = pieces(tokenizer)
    assert found[0] == ["The", "Café", "'", "s", "ﬁne", "mat", "."]
    assert found[1] == []
    assert found[2][:3] == ["e\u0301t", "e", "🙂"]
    plain = tokenizer(tf.constant([TEXTS[0], TEXTS[1]]))
    assert [list(map(int, row)) for row in plain] == ids[:2]


@pytest.mark.parametrize("kind", ["NFC", "NFKC"])
@pytest.mark.parametrize(
    "text",
    [
        "ｶﾞ ﾊﾟ a",
        "가\u11a8 각 a",
        "\u1100\u1161\u11a8a",
        "ㄱㅏa",
        "ﾡￂ a",
        "e\u0301a",
        "ab\0a ab",
    ],
)
def test_what_is_composed_across_characters(text, kind):
    steps = {"normalizer": [{"type": kind}], "pre_tokenizer": [{"type": "Whitespace"}]}
    tokenizer = BertTokenizer([*SPECIALS, "a", "ab"], **steps)
    ids, found = pieces(tokenizer, [text])
    assert ids == [[*map(int, tokenizer(text))]]
    assert len(ids[0]) == len(found[0]) > 0


def test_syllables_have_places_of_their_own():
    letters = [chr(code) for code in (*range(0x1100, 0x1113), *range(0x1161, 0x11C3))]
    steps = {"normalizer": [{"type": "NFD"}]}
    steps["pre_tokenizer"] = [{"type": "BertPreTokenizer"}]
    vocabulary = [*SPECIALS, *letters, *(f"##{letter}" for letter in letters)]
    _, found = pieces(BertTokenizer(vocabulary, **steps), ["한국 가\u11a8"])
    assert [*dict.fromkeys(found[0])] == ["한", "국", "가\u11a8"]


@pytest.mark.slow
def test_byte_pair():
    ids, found = pieces(byte_pair_tokenizer(), ["the mat mat", "", "a 0  b"])
    assert found == [["t", "h", "e", "mat", "mat"], [], ["a", "", "0", "", "", "b"]]
    assert ids[0][3] == ids[0][4]


@pytest.mark.slow
def test_byte_pair_without_all_bytes():
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "c", "ac"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = keras_hub.tokenizers.RobertaTokenizer(vocabulary, ["a c"])
    assert pieces(tokenizer, ["aac"])[1] == [["a", "ac"]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="lacks bytes"):
        pieces(tokenizer, ["ab"])


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [False, True])
def test_sentence_piece_after_clean_up(sentence_piece, lowercase):
    tokenizer = XLNetTokenizer(sentence_piece, lowercase=lowercase)
    ids, found = pieces(tokenizer)
    plain = tokenizer(tf.constant([TEXTS[0], TEXTS[1], TEXTS[3]]))
    assert [list(map(int, row)) for row in plain] == [ids[0], ids[1], ids[3]]
    for text, row in zip(TEXTS, found, strict=True):
        # Every character but white space is in a token; one that was split, in two.
        joined = "".join(row)
        assert {*text} - {*" \u00a0\n\x00"} <= {*joined}
        assert all(not part[:1].isspace() for part in row)
    assert "``" in "".join(found[3])


def test_invisible_characters_before_a_space_belong_to_no_word(sentence_piece):
    tokenizer = XLNetTokenizer(sentence_piece)
    texts = ["the\u200b mat", "the \u200cmat", "\u200b \ufeff the"]
    found = ["".join(row) for row in pieces(tokenizer, texts)[1]]
    assert found == ["themat", "the\u200cmat", "the"]


def test_sentence_piece_without_clean_up(sentence_piece):
    tokenizer = keras_hub.tokenizers.SentencePieceTokenizer(sentence_piece)
    assert "".join(pieces(tokenizer, ["the mat it"])[1][0]) == "themat" + "it"


def test_refuses_other_tokenizers():
    tokenizer = keras_hub.tokenizers.WordPieceTokenizer([*SPECIALS, "a"])
    with pytest.raises(TypeError, match="Received: WordPieceTokenizer"):
        tokenize_with_offsets(tokenizer, tf.constant(["a"]))


@pytest.mark.slow
@pytest.mark.data
def test_real_answers_come_back_exactly(data_dir):
    from keras_bertfam.datasets import load_examples

    data = data_dir / "squad11" / "dev-v1.1.json"
    examples = load_examples("squad", data=data)[::40]
    folder = data_dir / "tokenizers" / "bert_uncased"
    tokenizer = BertTokenizer(str(folder / "vocab.txt"), lowercase=True)
    contexts = examples.x["context"]
    _, starts, ends = tokenize_with_offsets(tokenizer, tf.constant(contexts))
    exact = 0
    for row, (context, answers) in enumerate(zip(contexts, examples.y, strict=True)):
        text, at = answers["text"][0], answers["answer_start"][0]
        begin = len(context[:at].encode())
        end = begin + len(text.encode())
        first = starts[row][ends[row] > begin][0]
        last = ends[row][starts[row] < end][-1]
        found = context.encode()[first:last].decode()
        assert text in found
        exact += found == text
    # A few answers are a part of a word, "Japan" of "Japanese".
    assert exact > 0.99 * len(contexts)


def test_places_in_a_long_text_take_as_long_as_it_is():
    text = "the cat sat " * 15_000
    tokenizer = BertTokenizer([*SPECIALS, "the", "cat", "sat"])
    start = time.process_time()
    ids, starts, ends = tokenize_with_offsets(tokenizer, tf.constant([text]))
    assert time.process_time() - start < 5  # in the square of the length: a minute
    assert ids.shape[1] is None and int(ids.row_lengths()[0]) == 45_000
    last = len(text) - 4
    assert (int(starts[0, -1]), int(ends[0, -1])) == (last, last + 3)
