"""DeBERTa's tokenizers: special tokens where the published ones are."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.presets.checkpoints import huggingface
from keras_bertfam.presets.tokenizer_formats import tokenizer_files
from keras_bertfam.tokenizers import train_byte_pair, train_sentence_piece

TEXTS = ["a bat sat on the mat", "the cat, on 2 mats!", "Der Ölofen naïve"]
SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
WRITTEN = [*TEXTS, " a  b", "don't  stop", "[UNK] x", "x[MASK]y [SEP]", "\n\tcafé ☃"]
KINDS = {
    "deberta": (train_byte_pair, 290),
    "deberta-v2": (train_sentence_piece, 45),
}


@pytest.mark.parametrize("family", KINDS)
def test_special_tokens_and_transformers(family, tmp_path):
    train, size = KINDS[family]
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 4)
    tokenizer = train(documents, size, family=family)
    vocabulary = tokenizer.get_vocabulary()
    if isinstance(vocabulary, dict):
        vocabulary = sorted(vocabulary, key=vocabulary.get)
    assert vocabulary[:4] == SPECIALS and vocabulary[-1] == "[MASK]"
    assert tokenizer.vocabulary_size() == len(vocabulary) <= size
    assert tokenizer.mask_token_id == len(vocabulary) - 1
    assert (tokenizer.start_token_id, tokenizer.end_token_id) == (1, 2)
    rows = tokenizer([*TEXTS, "a [MASK] sat"])
    if family == "deberta-v2":
        assert tokenizer.mask_token_id in rows[3].numpy()
        # Published without it.
        own = type(tokenizer)(tokenizer.proto_in_own_order())
        np.testing.assert_array_equal(
            own(TEXTS).flat_values, tokenizer(TEXTS).flat_values
        )
        assert own.get_vocabulary() == tokenizer.get_vocabulary()
    config = tokenizer.get_config()
    assert type(tokenizer).from_config(config).get_config() == config

    transformers = pytest.importorskip("transformers")
    ids = tokenizer_files.export_tokenizer(tokenizer, tmp_path)
    assert ids["pad_token_id"] == 0
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.mask_token, theirs.cls_token) == ("[MASK]", "[CLS]")
    for text, row in zip(TEXTS, rows, strict=False):
        assert theirs(text)["input_ids"] == [1, *row.numpy(), 2], text


@pytest.mark.slow
@pytest.mark.any_backend
def test_either_form_of_the_first_versions_files(tmp_path):
    """With the ids of the release, where GPT-2's files are; else a small vocabulary."""
    transformers = pytest.importorskip("transformers")
    there = pathlib.Path(os.environ.get("BERTFAM_DATA", ""), "tokenizers", "gpt2")
    files = tmp_path / "files"
    files.mkdir()
    if there.exists():
        known = json.loads((there / "vocab.json").read_text("utf-8"))
        tokens = [*SPECIALS, *sorted(known, key=known.get), "a0", "a1", "a2", "[MASK]"]
        (files / "vocab.json").write_text(
            json.dumps({token: number for number, token in enumerate(tokens)})
        )
        shutil.copy(there / "merges.txt", files)
        assert len(tokens) == 50265
    else:
        documents = tf.data.Dataset.from_tensor_slices(TEXTS * 4)
        tokenizer = train_byte_pair(documents, 290, family="deberta")
        tokenizer_files.export_tokenizer(tokenizer, files)
    config = transformers.DebertaConfig(
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    )
    config.save_pretrained(files)
    theirs = transformers.DebertaTokenizer.from_pretrained(files)
    theirs.save_pretrained(tmp_path / "json")
    config.save_pretrained(tmp_path / "json")
    assert (tmp_path / "json" / "tokenizer.json").exists()
    for folder in (files, tmp_path / "json"):
        source = huggingface.open_source(str(folder))
        ours = tokenizer_files.load_tokenizer(source)
        ids = [ours.pad_token_id, ours.start_token_id, ours.end_token_id]
        assert [*ids, ours.unk_token_id] == [0, 1, 2, 3]
        assert ours.mask_token_id == ours.vocabulary_size() - 1 == theirs.mask_token_id
        for text in WRITTEN:
            assert theirs(text)["input_ids"][1:-1] == ours(text).numpy().tolist(), text
