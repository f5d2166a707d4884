import json

import keras_hub
import pytest

from keras_bertfam.corpora import shards
from keras_bertfam.corpora.manifest import (
    Manifest,
    describe_tokenizer,
    tokenizer_digest,
)
from keras_bertfam.tokenizers import BertTokenizer, train_byte_pair
from tests.corpora.tiny_shards import documents

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s"]


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(WORDS, lowercase=True)


@pytest.fixture
def manifest(tokenizer, tmp_path):
    written = [shards.write_shard(tmp_path, k, 2, documents()) for k in range(2)]
    manifest = Manifest(
        tokenizer=describe_tokenizer(tokenizer),
        dtype="uint16",
        shards=written,
        filters=[{"name": "min_words", "arguments": {"value": 5}, "dropped": 2}],
        sources=[{"name": "ä.txt", "bytes": 7}],
        settings={"split": "train"},
    )
    manifest.write(tmp_path)
    return manifest


def test_what_is_written_is_read(manifest, tmp_path):
    assert Manifest.read(tmp_path) == manifest
    first = manifest.shards[0]
    assert manifest.counts == {
        "documents": 6,
        "sentences": 412,
        "tokens": 2 * first.tokens,
    }
    content = json.loads((tmp_path / "manifest.json").read_text())
    assert content["counts"] == manifest.counts
    assert content["format"] == 1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": 2}, "must be of format 1"),
        ({"dtype": "float32"}, "dtype='float32'"),
        ({"shards": [["../tokens-0-of-1.tfrecord", *[0] * 5, "", ""]]}, "shard '../"),
        ({"shards": [[1, 2]]}, "TypeError"),
        ({"counts": {"documents": 1}}, "counts="),
        ({"tokenizer": {"digest": 1}}, "tokenizer digest=1"),
        ({"shard_columns": []}, "shard_columns="),
    ],
)
def test_other_manifests_are_refused(manifest, tmp_path, change, match):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=match):
        Manifest.read(tmp_path)


def test_what_is_no_corpus(manifest, tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text()[:200])
    with pytest.raises(ValueError, match="must be JSON: "):
        Manifest.read(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="without it a corpus isn't whole"):
        Manifest.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="the folder of a prepared corpus"):
        Manifest.read(tmp_path / "none")


def test_another_tokenizer_is_refused(manifest, tokenizer, tmp_path):
    manifest.check_tokenizer(tokenizer)
    tokenizer.save_to_preset(tmp_path / "preset")
    manifest.check_tokenizer(BertTokenizer.from_preset(tmp_path / "preset"))
    manifest.check_tokenizer(BertTokenizer(WORDS, lowercase=True, sequence_length=8))
    for other in (
        BertTokenizer(WORDS),
        BertTokenizer([*WORDS[:-2], "##s", "cat"], lowercase=True),
        keras_hub.tokenizers.BertTokenizer(WORDS, lowercase=True),
    ):
        with pytest.raises(ValueError, match="the corpus was prepared with"):
            manifest.check_tokenizer(other)


def test_tables_and_merges_make_a_digest(tmp_path):
    tokenizer = train_byte_pair({"cat": 9, "cats": 9, "at": 3}, 265)
    digest = tokenizer_digest(tokenizer)
    vocabulary = {**tokenizer.vocabulary}
    turned = dict(reversed(vocabulary.items()))
    kind = type(tokenizer)
    assert tokenizer_digest(kind(turned, tokenizer.merges)) == digest
    assert tokenizer_digest(kind(vocabulary, tokenizer.merges[:-1])) != digest
