"""Folders of `sentence-transformers`, in and out, key by key."""

import itertools
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.presets import CheckpointError, names
from keras_bertfam.presets.checkpoints import sentence_transformers
from keras_bertfam.tokenizers import (
    train_byte_pair,
    train_sentence_piece,
    train_word_piece,
)
from keras_bertfam.tokenizers.training import SENTENCE_PIECE, WORD_PIECE
from tests import small_bert_folder
from tests.marks import in_ci
from tests.small_bert_folder import WORDS
from tests.tiny_families import FAMILIES, backbone_of

library = pytest.importorskip("sentence_transformers")
pytest.importorskip("torch")
pytest.importorskip("transformers")

TEXTS = ["a b c d e f a b c d", "b", "c d", ""]
FILES = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder of `transformers`."""
    return small_bert_folder.write(tmp_path_factory.mktemp("base"))


def write(base, folder, pooling="mean", dense=True, normalize=True, **kwargs):
    """Write a folder with their library; their model."""
    from sentence_transformers.sentence_transformer import modules as parts

    modules = [parts.Transformer(str(base), max_seq_length=7)]
    modules.append(parts.Pooling(8, pooling_mode=pooling))
    modules += [parts.Dense(8, 5)] if dense else []
    modules += [parts.Normalize()] if normalize else []
    theirs = library.SentenceTransformer(modules=modules, device="cpu", **kwargs)
    theirs.save(str(folder))
    return theirs


class OwnEmbedder(tasks.TextEmbedder):
    """One that a user has derived."""


def vectors(model):
    return model.predict(TEXTS, batch_size=4, verbose=0)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", names.TRANSFORMER_FILES)
def test_settings_under_each_of_their_names(name, base, tmp_path):
    write(base, tmp_path)
    os.rename(tmp_path / "sentence_bert_config.json", tmp_path / name)
    theirs = library.SentenceTransformer(str(tmp_path), device="cpu")
    ours = tasks.TextEmbedder.from_preset(str(tmp_path))
    assert ours.preprocessor.sequence_length == theirs.max_seq_length == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "pooling",
    [
        name
        if name in ("mean", "last")
        else pytest.param(name, marks=pytest.mark.any_backend)
        for name in sentence_transformers.POOLINGS
    ],
)
def test_vectors_are_theirs_in_and_out(pooling, base, tmp_path):
    named = sentence_transformers.POOLINGS[pooling]
    whole = pooling in ("mean", "last")
    prompts = {"query": "a ", "document": "b b "}
    theirs = write(base, tmp_path / "in", named, whole, whole, prompts=prompts)
    expected = theirs.encode(TEXTS)
    ours = tasks.TextEmbedder.from_preset(str(tmp_path / "in"))
    assert (ours.pooling, ours.normalize) == (pooling, whole)
    assert ours.preprocessor.sequence_length == 7
    np.testing.assert_allclose(vectors(ours), expected, atol=2e-5)
    for kind, encode in (
        ("query", theirs.encode_query),
        ("passage", theirs.encode_document),
    ):
        found = ours.encode(TEXTS[1:], kind)
        np.testing.assert_allclose(found, encode(TEXTS[1:]), atol=2e-5)
    ours.export_to_sentence_transformers(tmp_path / "out")
    again = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=2e-5)
    assert again.max_seq_length == 7 and again.prompts["query"] == "a "
    back = OwnEmbedder.from_preset(str(tmp_path / "out"))
    ours.save_to_preset(str(tmp_path / "preset"))
    kept = tasks.TextEmbedder.from_preset(str(tmp_path / "preset"))
    for other in (back, kept):
        settings = {**ours.get_config(), "backbone": 0, "preprocessor": 0, "name": 0}
        assert (
            settings.items()
            <= {
                **other.get_config(),
                "backbone": 0,
                "preprocessor": 0,
                "name": 0,
            }.items()
        )
        x = {k: np.array(v) for k, v in ours.preprocessor(TEXTS).items()}
        np.testing.assert_allclose(
            *map(np.asarray, (numpy(other(x)), expected)), atol=2e-5
        )


OTHER_ROWS = ("bert", "gpt2", "roberta", "t5", "xlnet", "bart")
DOCUMENTS = ["red fish and blue fish swim", "a cat sat on the mat"] * 9


def of_family(family, size, pooling, **settings):
    """A tiny embedder of a family, with a tokenizer of its kind."""
    data = tf.data.Dataset.from_tensor_slices(DOCUMENTS)
    if family in WORD_PIECE:
        tokenizer = train_word_piece(data, 60, family=family)
    elif family in SENTENCE_PIECE:
        tokenizer = train_sentence_piece(data, 45, family=family)
    else:
        tokenizer = train_byte_pair(data, size, family=family)
    name = next(n for n in FAMILIES if n.lower() == family.replace("-", ""))
    backbone = backbone_of(name, vocabulary_size=tokenizer.vocabulary_size())
    preprocessor = tasks.TextEmbedderPreprocessor(tokenizer, 12, **settings)
    return tasks.TextEmbedder(backbone, preprocessor, pooling)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "family_pooling",
    in_ci(
        [*itertools.product(OTHER_ROWS, sentence_transformers.POOLINGS)],
        *(("gpt2", "mean"), ("t5", "mean"), ("xlnet", "cls"), ("bart", "last")),
    ),
    ids="-".join,
)
def test_families_of_other_rows(family_pooling, tmp_path):
    """Rows without special tokens, those that are read at their end, and others."""
    family, pooling = family_pooling
    texts = ["red fish", "a cat sat on the mat", "fish"]
    settings = {"layout": "bare"} if family == "gpt2" else {}
    ours = of_family(family, 280, pooling, **settings)
    if family == "t5":
        with pytest.raises(ValueError, match="`backbone` must not be T5's"):
            ours.export_to_sentence_transformers(tmp_path / "out")
        return
    ours.export_to_sentence_transformers(tmp_path / "out")
    theirs = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    expected = theirs.encode(texts)
    np.testing.assert_allclose(ours.predict(texts, verbose=0), expected, atol=2e-5)
    again = tasks.TextEmbedder.from_preset(str(tmp_path / "out"))
    assert again.preprocessor.layout == settings.get("layout")
    np.testing.assert_allclose(again.predict(texts, verbose=0), expected, atol=2e-5)
    other = {"gpt2": None}.get(family, "bare")
    wrong = of_family(family, 280, "mean", **({"layout": other} if other else {}))
    with pytest.raises(ValueError, match="`layout` of the preprocessor must be"):
        wrong.export_to_sentence_transformers(tmp_path / "wrong")


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["passage", "document", "corpus"])
def test_prompts_of_passages(name, base, tmp_path):
    prompts = {"query": "a ", name: "b b "}
    theirs = write(base, tmp_path / "in", prompts=prompts)
    ours = tasks.TextEmbedder.from_preset(str(tmp_path / "in"))
    ours.export_to_sentence_transformers(tmp_path / "out")
    own = tasks.TextEmbedder(ours.backbone, ours.preprocessor, prompts=prompts)
    own.export_to_sentence_transformers(tmp_path / "own")
    folders = [str(tmp_path / each) for each in ("out", "own")]
    others = [library.SentenceTransformer(each, device="cpu") for each in folders]
    for model, others_too in ((ours, [theirs, others[0]]), (own, others[1:])):
        found = model.encode(TEXTS[1:], "passage")
        for other in others_too:
            expected = other.encode_document(TEXTS[1:])
            np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_which_end_of_a_text_is_cut_off(base, tmp_path):
    write(base, tmp_path / "in")
    config = tmp_path / "in" / "tokenizer_config.json"
    said = json.loads(config.read_text())
    config.write_text(json.dumps({**said, "truncation_side": "left"}))
    theirs = library.SentenceTransformer(str(tmp_path / "in"), device="cpu")
    expected = theirs.encode(TEXTS)
    ours = tasks.TextEmbedder.from_preset(str(tmp_path / "in"))
    assert ours.preprocessor.truncate == "start"
    np.testing.assert_allclose(vectors(ours), expected, atol=2e-5)
    ours.export_to_sentence_transformers(tmp_path / "out")
    again = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=2e-5)
    assert again.tokenizer.truncation_side == "left"
    with pytest.raises(ValueError, match="`truncate` must be.*'start'"):
        tasks.CrossEncoder.from_preset(str(tmp_path / "in"))
    digest = ours.passage_digest()
    ours.preprocessor.truncate = "middle"
    assert ours.passage_digest() != digest
    with pytest.raises(ValueError, match="`truncate` must be 'end' or 'start'"):
        ours.export_to_sentence_transformers(tmp_path / "other")
    config.write_text(json.dumps({**said, "truncation_side": "odd"}))
    with pytest.raises(CheckpointError, match="truncation_side.*odd"):
        tasks.TextEmbedder.from_preset(str(tmp_path / "in"))


def numpy(x):
    from keras import ops

    return ops.convert_to_numpy(x)


@pytest.mark.slow
@pytest.mark.any_backend
def test_every_key_is_used_known_or_refused(base, tmp_path):
    write(base, tmp_path / "in", prompts={"query": "a "})
    folder = tmp_path / "changed"
    for name in FILES:
        content = json.loads((tmp_path / "in" / name).read_text())
        target = content[0] if isinstance(content, list) else content
        for key in (*target, "odd"):
            shutil.copytree(tmp_path / "in", folder, dirs_exist_ok=True)
            kept = target.get(key)
            target[key] = "odd"
            (folder / name).write_text(json.dumps(content))
            free = sentence_transformers.MEANINGLESS.get(name, {})
            if key in ("name", "idx") or key in free and free[key] is None:
                tasks.TextEmbedder.from_preset(str(folder), load_weights=False)
            elif key == "similarity_fn_name":
                with pytest.warns(UserWarning, match="similarity_fn_name='odd'"):
                    tasks.TextEmbedder.from_preset(str(folder))
            else:
                with pytest.raises(CheckpointError, match="odd"):
                    tasks.TextEmbedder.from_preset(str(folder))
            target.pop(key)
            if kept is not None or key != "odd":
                target[key] = kept


@pytest.mark.slow
@pytest.mark.any_backend
def test_older_folders(tmp_path):
    """Flags of poolings, and the Transformer in a folder of its own."""
    backbone = models.BertBackbone(len(WORDS), 1, 2, 8, 12, max_sequence_length=16)
    inner = tmp_path / "0_Transformer"
    preprocessor = tasks.TextEmbedderPreprocessor(BertTokenizer(WORDS), 16)
    tasks.TextEmbedder(backbone, preprocessor).export_to_transformers(inner)
    listed = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    write_json(
        tmp_path / "modules.json",
        [
            {"idx": k, "name": str(k), "path": path, "type": f"s.models.{kind}"}
            for k, (path, kind) in enumerate(listed)
        ],
    )
    write_json(inner / "sentence_bert_config.json", {"max_seq_length": 9})
    flags = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
    flags |= {"pooling_mode_mean_tokens": False}
    write_json(tmp_path / "1_Pooling" / "config.json", flags)
    model = tasks.TextEmbedder.from_preset(str(tmp_path))
    assert (model.pooling, model.normalize, model.projection) == ("cls", False, None)
    assert model.preprocessor.sequence_length == 9
    flags["pooling_mode_mean_tokens"] = True
    write_json(tmp_path / "1_Pooling" / "config.json", flags)
    with pytest.raises(CheckpointError, match="must be one of .*Received: mean, cls"):
        tasks.TextEmbedder.from_preset(str(tmp_path))


def write_json(path, content):
    pathlib.Path(path).parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
