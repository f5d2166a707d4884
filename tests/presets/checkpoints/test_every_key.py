"""Each key of each file of a checkpoint is used, has no meaning here, or is refused."""

import argparse
import json
import math
import warnings

import numpy as np
import pytest

from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.presets import CheckpointError, preset_checks, untrusted_files
from keras_bertfam.presets.checkpoints import (
    allennlp,
    fairseq,
    file_keys,
    huggingface,
    late_interaction,
    mesh,
    sentence_transformers,
    tensorflow1,
    tensorflow2,
)
from keras_bertfam.presets.checkpoints.source import LazyTensor
from keras_bertfam.presets.tokenizer_formats import tokenizer_pipelines
from keras_bertfam.presets.tokenizer_presets import load_given_tokenizer
from tests import key_table
from tests.tiny_sentence_piece import train_sentence_piece

SHAPES = {
    "bert/embeddings/word_embeddings": [9, 8],
    "bert/embeddings/position_embeddings": [12, 8],
    "bert/embeddings/token_type_embeddings": [2, 8],
    "bert/encoder/layer_0/intermediate/dense/kernel": [8, 16],
}
SIZES = {"hidden_size": 8, "intermediate_size": 16, "num_layers": 1, "vocab_size": 9}
SIZES |= {"max_position_embeddings": 12, "type_vocab_size": 2, "embedding_size": 8}
OPTIONS = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 4,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 8,
        "n_layers": 1,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 4]],
        "n_highway": 1,
        "embedding": {"dim": 2},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}
# What gin's file is of, by the names that its settings begin with in the file.
TENSORS = {
    "shared.weight": (9, 8),
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 2),
    "encoder.block.0.layer.0.SelfAttention.q.weight": (8, 8),
    "encoder.block.0.layer.1.DenseReluDense.wi.weight": (16, 8),
}


def of_fairseq(kind):
    torch = pytest.importorskip("torch")
    layer, at = "layers.0.fc1.weight", "decoder.sentence_encoder."
    state = {f"{at}embed_tokens.weight": (9, 8), f"{at}embed_positions.weight": (14, 8)}
    state[f"{at}{layer}"] = (16, 8)
    if kind == "spanbert":
        at = "decoder.bert.embeddings"
        state = {f"{at}.{n}_embeddings.weight": (9, 8) for n in ("word", "position")}
        state[f"{at}.token_type_embeddings.weight"] = (2, 8)
        state["decoder.bert.encoder.layer.0.intermediate.dense.weight"] = (16, 8)
    if kind == "bart":
        state = {"encoder.embed_tokens.weight": (9, 8)}
        for side in ("encoder", "decoder"):
            state |= {f"{side}.embed_positions.weight": (14, 8)}
            state |= {f"{side}.{layer}": (16, 8)}
    state = {name: torch.zeros(shape) for name, shape in state.items()}

    def read(folder, content):
        content = {k: v for k, v in content.items() if k != "cfg"}
        written = {"args": argparse.Namespace(**content)}
        if kind == "bart":  # as later versions write them
            written = {"args": None, "cfg": {"model": content, "task": {"odd": 1}}}
        torch.save({**written, "model": state}, folder / "model.pt")
        source = fairseq.open_source(folder)
        return source.config, source.notes

    return read


def gin(folder, content):
    lines = [f"{name} = {value!r}" for name, value in content.items()]
    (folder / mesh.GIN).write_text("# gin\n" + "\n".join(lines))
    tensors = {n: LazyTensor(lambda: None, shape) for n, shape in TENSORS.items()}
    notes = []
    return mesh.config_of(folder / "model.ckpt", tensors, notes), tuple(notes)


def params(folder, content):
    kind = content.get("type", "bert")
    encoder = {k: v for k, v in content.items() if k != "type"}
    told = {"task": {"model": {"encoder": {"type": kind, "bert": encoder}}}}
    (folder / tensorflow2.PARAMS).write_text(json.dumps({**told, "trainer": {"a": 1}}))
    notes = []
    settings = tensorflow2.settings_of(str(folder), notes)
    config = tensorflow1._config_from_settings(str(folder), "bert", SHAPES, settings)
    return config, tuple(notes)


def bert_config(folder, content):
    (folder / "bert_config.json").write_text(json.dumps(content))
    notes = []
    config = tensorflow1._config(str(folder), "bert", SHAPES, None, notes)
    return config, tuple(notes)


def options(folder, content):
    nested = json.loads(json.dumps(OPTIONS))
    for name, value in content.items():
        *parts, last = name.split(".")
        at = nested
        for part in parts:
            at = at.setdefault(part, {})
        at[last] = value
    (folder / "options.json").write_text(json.dumps(nested))
    return allennlp.elmo_arguments(folder / "options.json"), ()


def tokenizer(file):
    def read(folder, content):
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "B", "中"]
        (folder / "vocab.txt").write_text("\n".join(words), "utf-8")
        (folder / file).write_text(json.dumps(content))
        if file != "tokenizer_config.json":
            (folder / "tokenizer_config.json").write_text("{}")
        made = load_given_tokenizer(folder / "vocab.txt", "bert")
        config = {k: v for k, v in made.get_config().items() if k != "name"}
        return config, ()

    return read


def sentence_piece(folder, content):
    if not (folder / "spiece.model").exists():
        tokens = ["[CLS]", "[SEP]", "[MASK]"]
        proto = train_sentence_piece(["a b", "b a"], tokens, minloglevel=2)
        (folder / "spiece.model").write_bytes(proto)
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    made = load_given_tokenizer(folder / "spiece.model", "albert")
    return {k: v for k, v in made.get_config().items() if k != "name"}, ()


def serialized(folder, content):
    base = {"module": "keras_bertfam", "class_name": "BertBackbone", "config": {}}
    base["registered_name"] = "keras_bertfam>BertBackbone"
    (folder / "config.json").write_text(json.dumps({**base, **content}))
    return untrusted_files.read_config(folder, "config.json"), ()


def metadata(folder, content):
    serialized(folder, {})
    (folder / preset_checks.METADATA_FILE).write_text(json.dumps(content))
    return preset_checks.inspect_backbone(folder), ()


def transformers_config(folder, content):
    base = {"model_type": "bert", "vocab_size": 9}
    (folder / "config.json").write_text(json.dumps({**base, **content}))
    source = huggingface.open_source(folder)
    return source.config, source.notes


def pooling(folder, content):
    (folder / "config.json").write_text(json.dumps(content))
    return sentence_transformers._config(str(folder), "Pooling"), ()


def colbert(folder, content):
    where = folder / "artifact.metadata"
    notes = file_keys.COLBERT.notes(content, where)
    return late_interaction.stanford_arguments(content, where), notes


def tokenizer_json(folder, content):
    model = {"type": "WordPiece", "vocab": {}}
    tokenizer_pipelines.check_keys({"model": model, **content}, folder / "a.json")
    return content, ()


def run(folder, content):
    (folder / "run.yaml").write_text(json.dumps(content))
    return vars(PretrainingRun.read(folder / "run.yaml")), ()


FORMATS = {
    "model.pt": (of_fairseq("roberta"), file_keys.FAIRSEQ),
    "model.pt of RoBERTa": (of_fairseq("roberta"), file_keys.FAIRSEQ_ROBERTA),
    mesh.GIN: (gin, file_keys.GIN),
    tensorflow2.PARAMS: (params, file_keys.PARAMS),
    "options.json": (options, file_keys.ELMO),
    "tokenizer_config.json": (
        tokenizer("tokenizer_config.json"),
        file_keys.TOKENIZER_CONFIG,
    ),
    "special_tokens_map.json": (
        tokenizer("special_tokens_map.json"),
        file_keys.SPECIAL_TOKENS_MAP,
    ),
    "config.json of a preset": (serialized, file_keys.SERIALIZED),
    "metadata.json of a preset": (metadata, file_keys.METADATA),
    "added_tokens.json": (tokenizer("added_tokens.json"), file_keys.ADDED_TOKENS),
    "bert_config.json": (bert_config, None),
    "config.json": (transformers_config, None),
    "Pooling": (pooling, None),
    "artifact.metadata": (colbert, file_keys.COLBERT),
    "tokenizer.json": (tokenizer_json, None),
    "run.yaml": (run, None),
}
# Other models of the same files: a key is used if it is by one of them.
OTHERS = {
    "model.pt": [of_fairseq("bart"), of_fairseq("spanbert")],
    "tokenizer_config.json": [sentence_piece],
}
# Of the files above, what a change needs beside it.
BASE = {tensorflow2.PARAMS: SIZES, "bert_config.json": {"hidden_act": "relu"}}
# What a key may be where what is odd for others isn't for it.
ODD = {"type": None, "additional_special_tokens": ["[NEW]"], "extra_ids": None}
ODD |= {"*": 8, "extra_special_tokens": ["[NEW]"]}
ODD |= {"add_prefix_space": None, "special_tokens_in_strings": True}
# Tests of their own: they are arguments of fine-tuning's preprocessors.
ODD |= {"model_max_length": None, "truncation_side": None}
ODD |= {"added_tokens_decoder": {"99": {"content": "x"}}}


def outcome(read, folder, content):
    """What a reader gives, and what it says: a sentence, or an error's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            config, notes = read(folder, content)
        except (CheckpointError, ValueError) as error:
            return None, str(error)
    return config, " ".join([*notes, *(str(w.message) for w in caught)])


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("name", FORMATS)
def test_unknown_and_changed_keys(name, tmp_path):
    read, keys = FORMATS[name]
    base = BASE.get(name, {})
    others = [
        (other, outcome(other, tmp_path, base)[0]) for other in OTHERS.get(name, ())
    ]
    plain, said = outcome(read, tmp_path, base)
    assert plain is not None and not said, said
    assert all(expected is not None for _, expected in others)
    # One that nobody knows is named, with its value.
    _, said = outcome(read, tmp_path, {**base, "odd_key": "odd_value"})
    assert "odd_key" in said and (name == "run.yaml" or "odd_value" in said), said
    wrong, rows = [], [*keys.entries()] if keys else []
    nothing = {key.replace("*", "x"): "odd_value" for key, b, _ in rows if "no" in b}
    found, said = outcome(read, tmp_path, {**base, **nothing})
    assert not said and found in (plain, {**plain, **nothing})
    for key, becomes, _ in rows:
        if key.replace("*", "x") in nothing:
            continue
        if becomes == "used" and key in ODD and ODD[key] is None:
            continue  # of other classes of tokenizers, or of no one class
        value = ODD.get(key, "odd_value") if becomes == "used" else "odd_value"
        found, said = outcome(read, tmp_path, {**base, key: value})
        if becomes == "refused":
            fits = found is None and f"have {key}=" in said and "'odd_value'" in said
        elif becomes == "used":
            changes = [{**base, key: odd} for odd in (value, False, True, 7)]
            fits = any(
                outcome(each, tmp_path, change)[0] != expected
                for each, expected in [(read, plain), *others]
                for change in changes
            )
        if not fits:
            wrong.append((key, becomes, said))
    assert not wrong


def test_sizes_of_settings_are_those_of_the_tensors(tmp_path):
    roberta, (bart, _) = FORMATS["model.pt"][0], OTHERS["model.pt"]
    for read, right in (
        (roberta, {"encoder_layers": 1, "encoder_embed_dim": 8}),
        (bart, {"decoder_layers": 1, "encoder_ffn_embed_dim": 16}),
        (gin, {"d_model": 8, "num_heads": 2}),
        (params, SIZES),
    ):
        assert outcome(read, tmp_path, right)[0] is not None
        for key in right:
            found, said = outcome(read, tmp_path, {**right, key: 7})
            assert found is None and f"'{key}' in" in said and "7" in said


def test_what_the_model_garden_says_is_used(tmp_path):
    told = {**SIZES, "num_attention_heads": 4, "dropout_rate": 0.25}
    config, _ = params(tmp_path, {**told, "hidden_activation": "relu"})
    assert (config["num_attention_heads"], config["hidden_dropout_prob"]) == (4, 0.25)
    assert config["hidden_act"] == "relu"
    assert params(tmp_path, told)[0]["hidden_act"] == "gelu_new"


def test_unused_variables_of_tensorflow_2_are_named(tmp_path):
    import tensorflow as tf

    module = tf.Module()
    module.listed = [
        tf.Variable(np.zeros((3, 2)), name="word_embeddings/embeddings"),
        tf.Variable(np.zeros((2, 2)), name="some_head/kernel"),
    ]
    path = tf.train.Checkpoint(model=module).save(tmp_path / "ckpt")
    reader = tensorflow2.ReaderByName(tf.train.load_checkpoint(path), path)
    assert [*reader.get_variable_to_shape_map()] == ["bert/embeddings/word_embeddings"]
    (note,) = reader.notes
    assert note == "In the checkpoint, and not known here: some_head/kernel."


def test_the_table_of_keys_is_printed(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["key_table", "--counts"])
    key_table.main()
    *lines, total = capsys.readouterr().out.splitlines()
    numbers = [int(word) for word in total.split()[1:]]
    columns = zip(*(line.split()[-3:] for line in lines[1:]), strict=True)
    assert [sum(map(int, column)) for column in columns] == numbers
    assert math.prod(numbers) > 0
