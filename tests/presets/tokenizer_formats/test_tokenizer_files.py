"""Tokenizers from and to the files of `transformers`, which gives the same ids."""

import json
import shutil

import keras
import keras_hub
import pytest
import tensorflow as tf

from keras_bertfam.layers import (
    AlbertTokenizer,
    BertTokenizer,
    RobertaTokenizer,
    XLNetTokenizer,
)
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints.huggingface import TOKENIZER_FILES
from keras_bertfam.presets.checkpoints.source import CheckpointSource
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import (
    export_tokenizer,
    load_tokenizer,
)
from tests.tasks.generation import text_to_text_tokenizers

TEXTS = [
    "This is a Test, naïve Café ``quoted'' it's 9,9.",
    "hello  world\tx",
    "ÅNGSTRÖM ok 10,000 Ñandú 中文",
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "test", "##s"]
KINDS = {
    "bert": ("bert_uncased", "BertTokenizer", BertTokenizer),
    "roberta": ("roberta", "RobertaTokenizer", RobertaTokenizer),
    "albert": ("albert", "AlbertTokenizer", AlbertTokenizer),
    "xlnet": ("xlnet", "XLNetTokenizer", XLNetTokenizer),
}


def source(family, folder, **config):
    files = {n: str(folder / n) for n in TOKENIZER_FILES if (folder / n).exists()}
    return CheckpointSource(str(folder), family, {}, {}, files, config)


def ids(tokenizer, texts=TEXTS):
    dataset = tf.data.Dataset.from_tensor_slices(texts).map(tokenizer)
    return [list(map(int, row)) for row in dataset.as_numpy_iterator()]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("family", KINDS)
def test_the_ids_are_those_of_transformers(family, data_dir, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder, name, cls = KINDS[family]
    given = tmp_path / "given"
    given.mkdir()
    for file in TOKENIZER_FILES:
        if (data_dir / "tokenizers" / folder / file).exists():
            shutil.copy(data_dir / "tokenizers" / folder / file, given / file)
    theirs = getattr(transformers, name).from_pretrained(given)
    expected = theirs(TEXTS, add_special_tokens=False)["input_ids"]
    ours = load_tokenizer(source(family, given))
    assert type(ours) is cls
    if hasattr(ours, "split_number_commas"):  # which transformers doesn't do
        assert ids(ours) != expected
        ours.split_number_commas = False
        ours.set_proto(ours.proto)
    assert ids(ours) == expected
    assert ours.mask_token_id == theirs.mask_token_id
    # As saved by transformers: only a tokenizer.json.
    theirs.save_pretrained(tmp_path / "fast")
    fast = load_tokenizer(source(family, tmp_path / "fast"))
    assert ids(fast) == ids(load_tokenizer(source(family, given)))
    # Back.
    exported = tmp_path / "exported"
    exported.mkdir()
    special = export_tokenizer(ours, exported)
    again = transformers.AutoTokenizer.from_pretrained(exported)
    assert again(TEXTS, add_special_tokens=False)["input_ids"] == expected
    assert special["pad_token_id"] == again.pad_token_id


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "t5",
        "openai-gpt",
        # Whose graphs take seconds to be made.
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("bart", "gpt2")),
    ],
)
def test_what_writes_text_there_and_back(family, tmp_path):
    transformers = pytest.importorskip("transformers")
    if family == "t5":
        ours = text_to_text_tokenizers.t5()
    else:
        kind = {"openai-gpt": "gpt"}.get(family, family)
        ours = text_to_text_tokenizers.byte_pair(kind)
    special = export_tokenizer(ours, tmp_path)
    texts = text_to_text_tokenizers.random_texts(5)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ids(ours, texts)
    assert special.get("eos_token_id") == ours.end_token_id
    again = load_tokenizer(source(family, tmp_path, **config_of(tmp_path)))
    assert type(again) is type(ours)
    assert again.vocabulary_size() == ours.vocabulary_size()
    assert ids(again, texts) == ids(ours, texts)


def config_of(folder):
    return json.loads((folder / "tokenizer_config.json").read_text("utf-8"))


@pytest.mark.data
@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_saved_and_called_in_eager_mode(family, data_dir, tmp_path):
    folder, _, cls = KINDS[family]
    tokenizer = cls(str(data_dir / "tokenizers" / folder / "spiece.model"))
    assert [list(map(int, row)) for row in tokenizer(TEXTS)] == ids(tokenizer)
    assert list(map(int, tokenizer(TEXTS[0]))) == ids(tokenizer)[0]
    config = keras.saving.serialize_keras_object(tokenizer)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(config)))
    tokenizer.save_assets(tmp_path)
    again.load_assets(tmp_path)
    assert ids(again) == ids(tokenizer)
    with pytest.raises(ValueError, match="must be strings"):
        tokenizer([1, 2])


def write(path, content):
    if not isinstance(content, str):
        content = json.dumps(content)
    path.write_text(content, "utf-8")


def word_piece(ids, normalizer=None):
    return {"model": {"type": "WordPiece", "vocab": ids}, "normalizer": normalizer}


def damaged():
    yield "vocab.txt", "\n".join(WORDS[:4])
    yield "vocab.txt", "\n".join([*WORDS, "a"])
    yield "vocab.json", {"a": 0, "b": 0, "ab": 1}
    yield "vocab.json", {"a": 0, "b": "x"}
    yield "spiece.model", "no proto"
    yield "spiece.model", ""
    yield "tokenizer.json", {}
    yield "tokenizer.json", []
    yield "tokenizer.json", {"model": {"type": "WordLevel"}}
    ids = {word: 2 * index for index, word in enumerate(WORDS)}
    yield "tokenizer.json", word_piece(ids)
    yield "tokenizer.json", {"model": {"type": "BPE", "vocab": [], "merges": 3}}
    yield "tokenizer.json", {"model": {"type": "Unigram", "vocab": [["a"]]}}


@pytest.mark.parametrize(("name", "content"), list(damaged()))
def test_damaged_files_are_named(name, content, tmp_path):
    write(tmp_path / name, content)
    write(tmp_path / "merges.txt", "#version: 0.2\na b\n")
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        family = "albert" if name == "spiece.model" else "bert"
        load_tokenizer(source(family, tmp_path))


def test_a_sentence_piece_model_of_another_family(tmp_path):
    write(tmp_path / "spiece.model", "any")
    with pytest.raises(CheckpointError, match="of the kind 'word_piece', as .*'bert'"):
        load_tokenizer(source("bert", tmp_path))


def test_a_word_piece_tokenizer_json_without_a_normalizer(tmp_path):
    ids = {word: index for index, word in enumerate(WORDS)}
    write(tmp_path / "tokenizer.json", word_piece(ids))
    tokenizer = load_tokenizer(source("bert", tmp_path))
    assert not tokenizer.lowercase
    # Nothing splits the words.
    assert tokenizer(["a", "a test"]).to_list() == [[5], [1]]
    assert tokenizer.get_vocabulary() == WORDS


def test_settings_no_tokenizer_here_has(tmp_path):
    write(tmp_path / "vocab.txt", "\n".join(WORDS))
    for config in ({"do_lower_case": 1}, {"strip_accents": "no"}):
        with pytest.raises(CheckpointError, match="must be a bool"):
            load_tokenizer(source("bert", tmp_path, **config))
    assert not load_tokenizer(source("bert", tmp_path, do_lower_case=False)).lowercase
    with pytest.raises(CheckpointError, match="There is no tokenizer"):
        load_tokenizer(source("bert", tmp_path / "nowhere"))
    unknown = keras_hub.tokenizers.ByteTokenizer()
    with pytest.raises(ValueError, match="no ByteTokenizer"):
        export_tokenizer(unknown, tmp_path)
