"""`python -m keras_bertfam convert`."""

import json

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from keras_bertfam.cli.app import app
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.tasks import (
    DualEncoder,
    DualEncoderPreprocessor,
    MaskedLM,
    MaskedLMPreprocessor,
    MaskedLMSentencePair,
    MaskedLMSentencePairPreprocessor,
    TextClassifier,
    TextClassifierPreprocessor,
    TextEmbedder,
    TextEmbedderPreprocessor,
)

pytest.importorskip("safetensors")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]


def run(*arguments):
    result = CliRunner().invoke(app, ["convert", *map(str, arguments)])
    return result.exit_code, result.output


def make_backbone(pooler=False):
    return BertBackbone(
        vocabulary_size=11,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=8,
        pooler=pooler,
    )


def arrays(model):
    return [keras.ops.convert_to_numpy(v) for v in model.weights]


def assert_equal(first, second):
    for one, other in zip(arrays(first), arrays(second), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_task_there_and_back(tmp_path):
    tokenizer = BertTokenizer(VOCABULARY, lowercase=True)
    model = MaskedLM(make_backbone(), MaskedLMPreprocessor(tokenizer, 8))
    model.save_to_preset(str(tmp_path / "ours"))
    code, output = run(tmp_path / "ours", tmp_path / "theirs", "--to", "transformers")
    assert code == 0, output
    assert "MaskedLM" in output and "for transformers" in output
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    code, output = run(tmp_path / "theirs", tmp_path / "again")
    assert code == 0, output
    assert "Mapped 26 tensors to 22 variables." in output
    assert "left out" not in output and "and new" not in output
    again = MaskedLM.from_preset(str(tmp_path / "again"))
    assert_equal(model, again)
    assert again.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    # Tokenizer and preprocessor by themselves.
    for name in ("ours", "theirs"):
        folder = str(tmp_path / name)
        assert BertTokenizer.from_preset(folder).lowercase
        preprocessor = MaskedLMPreprocessor.from_preset(folder, sequence_length=6)
        assert preprocessor("a b c d e f")[0]["token_ids"].shape == (6,)
    assert MaskedLMPreprocessor.from_preset(str(tmp_path / "ours")).sequence_length == 8


def test_a_backbone_with_its_tokenizer_there_and_back(tmp_path):
    backbone = make_backbone()
    backbone.export_to_transformers(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(VOCABULARY))
    assert run(tmp_path / "theirs", tmp_path / "ours")[0] == 0
    assert run(tmp_path / "ours", tmp_path / "back", "--to", "transformers")[0] == 0
    assert_equal(backbone, BertBackbone.from_preset(str(tmp_path / "back")))
    vocabulary = BertTokenizer.from_preset(str(tmp_path / "back")).get_vocabulary()
    assert vocabulary == VOCABULARY


def test_what_is_left_out_is_said(tmp_path):
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    make_backbone().export_to_transformers(tmp_path)
    tensors = safetensors_numpy.load_file(tmp_path / "model.safetensors")
    tensors["extra"] = np.zeros(3, "float32")
    safetensors_numpy.save_file(tensors, tmp_path / "model.safetensors")
    code, output = run(tmp_path, tmp_path / "ours")
    assert code == 0 and "left out: extra." in output


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no-such-folder"), ('{"model_type": "mamba"}', "model_type='mamba'")],
)
def test_errors_are_one_line(content, message, tmp_path):
    folder = tmp_path / "no-such-folder"
    if content is not None:
        folder.mkdir()
        (folder / "config.json").write_text(content)
    code, output = run(folder, tmp_path / "out")
    assert code == 2
    assert message in output.replace("\n", "").replace("│", "").replace(" ", "")
    assert not (tmp_path / "out").exists()


def test_places_that_can_not_be_written(tmp_path):
    backbone = make_backbone()
    backbone.save_to_preset(str(tmp_path / "ours"))
    files = {p: p.read_bytes() for p in (tmp_path / "ours").iterdir()}
    code, output = run(tmp_path / "ours", tmp_path / "." / "ours")
    assert code == 2 and "another folder" in " ".join(output.split())
    (tmp_path / "file").write_text("")
    for to in ("keras", "transformers"):
        code, output = run(tmp_path / "ours", tmp_path / "file", "--to", to)
        assert code == 2 and "is a file" in " ".join(output.split())
    backbone.save_to_preset(str(tmp_path / "other"))
    code, output = run(tmp_path / "ours", tmp_path / "other", "--to", "transformers")
    assert code == 2 and "preset's folder" in " ".join(output.split())
    assert files == {p: p.read_bytes() for p in (tmp_path / "ours").iterdir()}


@pytest.mark.slow
def test_what_transformers_has_no_place_for_is_said(tmp_path):
    rows = TextEmbedderPreprocessor(BertTokenizer(VOCABULARY), 6)
    TextEmbedder(make_backbone(), rows, pooling="max").save_to_preset(tmp_path / "ours")
    code, output = run(tmp_path / "ours", tmp_path / "theirs", "--to", "transformers")
    said = " ".join(output.split())
    assert code == 0 and "no place for sequence_length=6, how vectors are made" in said


@pytest.mark.slow
def test_a_task_has_its_own_way(tmp_path):
    rows = DualEncoderPreprocessor(BertTokenizer(VOCABULARY), 6)
    model = DualEncoder(make_backbone(), rows, projection_dim=None, pooling="cls")
    model.save_to_preset(tmp_path / "ours")
    code, output = run(tmp_path / "ours", tmp_path / "theirs", "--to", "transformers")
    assert code == 0, output
    assert {each.name for each in (tmp_path / "theirs").iterdir() if each.is_dir()} == {
        "question_encoder",
        "ctx_encoder",
    }
    three = {"sentence_objective": "structural"}
    rows = MaskedLMSentencePairPreprocessor(BertTokenizer(VOCABULARY), 8, **three)
    pair = MaskedLMSentencePair(make_backbone(pooler=True), rows, **three)
    pair.save_to_preset(tmp_path / "pair")
    code, output = run(tmp_path / "pair", tmp_path / "none", "--to", "transformers")
    assert code == 2 and "three classes" in " ".join(output.split()), output
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_longformer_has_its_tasks_settings_for_longer_rows(tmp_path):
    tokenizer = BertTokenizer(VOCABULARY)
    TextClassifier(
        make_backbone(pooler=True),
        preprocessor=TextClassifierPreprocessor(tokenizer, 6, truncate="start"),
        label_names=["no", "yes"],
    ).save_to_preset(str(tmp_path / "short"))
    arguments = (tmp_path / "short", tmp_path / "long", "--longformer", 32)
    code, said = run(*arguments, "--attention-window", 4)
    assert code == 0, said
    made = TextClassifier.from_preset(str(tmp_path / "long"))
    assert made.label_names == ["no", "yes"]
    assert made.preprocessor.sequence_length == 32
    assert made.preprocessor.truncate == "start"
    assert run(*arguments, "--attention-window", 0)[0] == 2
