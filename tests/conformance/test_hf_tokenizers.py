"""Tokenizers give the ids that those of `transformers` give."""

import json
import pathlib

import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.tokenizers import train_byte_pair, train_sentence_piece
from keras_bertfam.tokenizers.pipeline_ops import tokenize

transformers = pytest.importorskip("transformers")
TEXTS = [
    "2½ sacks, km² … ﬁne № ㈱ Ⅷ 60″ N",
    "Preußische Στις ΟΔΟΣ Ångström İstanbul ǅ",
    "in\u00advisible zero\u200bwidth \ufeffmark a\u00a0b tab\tline\x0bpage\x0c\x1c",
    "中文 字 カタカナ 한국어 नमस्ते ไทย",
    "👩\u200d👩\u200d👧 😀 “quoted”—dash €5 a\u0301b \u0345",
    "",
]


def check(vocabulary, lowercase, texts):
    ours = BertTokenizer(vocabulary, lowercase=lowercase)(texts).to_list()
    theirs = transformers.BertTokenizer(vocabulary, do_lower_case=lowercase)
    for text, ids in zip(texts, ours, strict=True):
        assert ids == theirs.convert_tokens_to_ids(theirs.tokenize(text)), text


@pytest.mark.parametrize("lowercase", [True, False])
def test_unusual_characters(minilm, lowercase):
    check(str(pathlib.Path(minilm, "vocab.txt")), lowercase, TEXTS)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["bert_uncased", "bert_cased"])
def test_real_texts(data_dir, name):
    (path,) = (data_dir / "squad11").glob("dev*.json")
    articles = json.loads(path.read_text("utf-8"))["data"]
    texts = [part["context"] for article in articles for part in article["paragraphs"]]
    tweets = (data_dir / "wnut17").glob("*.conll")
    texts += [line for file in tweets for line in file.read_text("utf-8").splitlines()]
    vocabulary = str(data_dir / "tokenizers" / name / "vocab.txt")
    check(vocabulary, name == "bert_uncased", texts)


def test_t5_with_sentinels(tmp_path):
    """But for a sentinel that no space follows, which T5 never writes."""
    documents = tf.data.Dataset.from_tensor_slices([*TEXTS[:5], "a bat & a cat sat"])
    tokenizer = train_sentence_piece(documents, 400, family="t5")
    pathlib.Path(tmp_path, "spiece.model").write_bytes(tokenizer.proto)
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path, extra_ids=0)
    texts = ["<extra_id_0> a bat <extra_id_1> sat <extra_id_99>", "a<extra_id_7>"]
    # Without runs of a character, which two orders of pieces make equally probable.
    same = str.maketrans({"\x0b": " ", "…": " ", "Ⅷ": " "})
    texts += [text.translate(same) for text in TEXTS]
    graph = tf.function(lambda x: tokenize(tokenizer, x))
    ours = graph(tf.constant(texts)).to_list()
    assert [ids + [tokenizer.end_token_id] for ids in ours] == theirs(texts).input_ids


@pytest.mark.slow
def test_gpt():
    documents = tf.data.Dataset.from_tensor_slices([*TEXTS[:4], "a bat & a cat sat"])
    tokenizer = train_byte_pair(documents.repeat(2), 200, family="gpt")
    merges = [tuple(merge.split(" ")) for merge in tokenizer.merges]
    theirs = transformers.OpenAIGPTTokenizer(tokenizer.vocabulary, merges)
    ours = tf.function(lambda x: tokenize(tokenizer, x))(tf.constant(TEXTS))
    assert ours.to_list() == theirs(TEXTS).input_ids
