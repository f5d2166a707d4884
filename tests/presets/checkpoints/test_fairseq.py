"""fairseq's RoBERTa: `model.pt` and `dict.txt`."""

import argparse
import json
import os
import pickle
import re
import shutil

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import RobertaBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints.fairseq import open_source
from keras_bertfam.tasks import MaskedLM, TextClassifier
from tests.converted import assert_converts_whole

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = np.array([[0, 7, 9, 12, 2, 1]])
NAMES = (
    (r"^roberta\.encoder\.layer\.(\d+)", r"decoder.sentence_encoder.layers.\1"),
    (r"^roberta\.embeddings\.word_embeddings", "decoder.sentence_encoder.embed_tokens"),
    (
        r"^roberta\.embeddings\.position_embeddings",
        "decoder.sentence_encoder.embed_positions",
    ),
    (r"^roberta\.embeddings\.LayerNorm", "decoder.sentence_encoder.emb_layer_norm"),
    (r"attention\.self\.query", "self_attn.q_proj"),
    (r"attention\.self\.key", "self_attn.k_proj"),
    (r"attention\.self\.value", "self_attn.v_proj"),
    (r"attention\.output\.dense", "self_attn.out_proj"),
    (r"attention\.output\.LayerNorm", "self_attn_layer_norm"),
    (r"intermediate\.dense", "fc1"),
    (r"(layers\.\d+)\.output\.dense", r"\1.fc2"),
    (r"(layers\.\d+)\.output\.LayerNorm", r"\1.final_layer_norm"),
    (r"^lm_head\.decoder\.weight", "lm_head.weight"),
    (r"^lm_head", "decoder.lm_head"),
)


@pytest.fixture(scope="module")
def roberta():
    config = transformers.RobertaConfig(
        vocab_size=14,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    torch.manual_seed(0)
    model = transformers.RobertaForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        model.roberta.embeddings.token_type_embeddings.weight.zero_()  # it has none
    return model


def state_of(model, fused):
    state = {}
    for name, tensor in model.state_dict().items():
        if "token_type" in name or name in ("lm_head.decoder.bias",):
            continue
        for pattern, replacement in NAMES:
            name = re.sub(pattern, replacement, name)
        state[name] = tensor.clone()
    if fused:
        for layer in range(2):
            at = f"decoder.sentence_encoder.layers.{layer}.self_attn."
            for kind in ("weight", "bias"):
                parts = [state.pop(f"{at}{part}_proj.{kind}") for part in "qkv"]
                state[f"{at}in_proj_{kind}"] = torch.cat(parts)
    return state


ARGUMENTS = argparse.Namespace(
    encoder_attention_heads=2, activation_fn="gelu", dropout=0.2, arch="roberta_base"
)


def save(folder, roberta, fused=True, **content):
    content = {"args": ARGUMENTS, "model": state_of(roberta, fused), **content}
    torch.save(content, folder / "model.pt")
    lines = [f"{token} 1" for token in (5, 3, 8, 0, 1, 2, 4, 6, "madeupword0000")]
    (folder / "dict.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("ending", ["", "model.pt"])
def test_states_and_logits(fused, ending, roberta, tmp_path):
    path = str(save(tmp_path, roberta, fused) / ending)
    task = MaskedLM.from_preset(path)
    assert task.backbone.dropout == 0.2 and task.backbone.max_sequence_length == 10
    mask = IDS != 1
    with torch.no_grad():
        expected = roberta(
            torch.tensor(IDS),
            attention_mask=torch.tensor(mask),
            output_hidden_states=True,
        )
    data = {"token_ids": IDS, "padding_mask": mask}
    states = ops.convert_to_numpy(task.backbone(data)["sequence_output"])
    theirs = expected.hidden_states[-1].numpy()
    np.testing.assert_allclose(states[mask], theirs[mask], atol=1e-5)
    logits = ops.convert_to_numpy(task(data))
    np.testing.assert_allclose(logits[mask], expected.logits.numpy()[mask], atol=1e-4)


def test_a_file_of_another_name(roberta, tmp_path):
    save(tmp_path, roberta)
    expected = MaskedLM.from_preset(str(tmp_path))
    best = (tmp_path / "model.pt").rename(tmp_path / "checkpoint_best.pt")
    for path in (tmp_path, best):
        loaded = MaskedLM.from_preset(str(path))
        for one, other in zip(loaded.weights, expected.weights, strict=True):
            if "seed" not in one.path:
                np.testing.assert_array_equal(*map(ops.convert_to_numpy, (one, other)))
    shutil.copy(best, tmp_path / "checkpoint_last.pt")
    with pytest.raises(ValueError, match=r"not complete.*There are: checkpoint_best"):
        MaskedLM.from_preset(str(tmp_path))  # which of two isn't said


def test_the_head_is_converted(roberta, tmp_path):
    path = save(tmp_path, roberta)
    assert_converts_whole(MaskedLM, path, tmp_path / "out")


def classification_head(name, classes):
    """The tensors of a head as fairseq's `register_classification_head` makes it."""
    at = f"classification_heads.{name}"
    shapes = {"dense": (16, 16), "out_proj": (classes, 16)}
    torch.manual_seed(classes)
    return {
        **{f"{at}.{k}.weight": torch.randn(shape) for k, shape in shapes.items()},
        **{f"{at}.{k}.bias": torch.randn(shape[0]) for k, shape in shapes.items()},
    }


def test_the_head_of_a_classifier(roberta, tmp_path):
    state = state_of(roberta, fused=True)
    head = classification_head("mnli", 3)
    save(tmp_path, roberta, model={**state, **head})
    with pytest.warns(UserWarning, match="left out: lm_head.*") as warned:
        task = TextClassifier.from_preset(str(tmp_path))
    assert "head/" not in str(warned[0].message) and task.num_classes == 3
    with torch.no_grad():
        first = roberta.roberta(torch.tensor(IDS[:, :5])).last_hidden_state[:, 0]
        dense, out = (
            [
                head[f"classification_heads.mnli.{k}.{part}"]
                for part in ("weight", "bias")
            ]
            for k in ("dense", "out_proj")
        )
        linear = torch.nn.functional.linear
        expected = linear(torch.tanh(linear(first, *dense)), *out)
    received = ops.convert_to_numpy(task({"token_ids": IDS[:, :5]}))
    np.testing.assert_allclose(received, expected.numpy(), atol=1e-4)
    # Neither of two is taken.
    heads = {**head, **classification_head("rte", 2)}
    save(tmp_path, roberta, model={**state, **heads})
    left_out = r"and new: .*logits.*left out: .*classification_heads\.mnli.*heads\.rte"
    with pytest.warns(UserWarning, match=left_out):
        TextClassifier.from_preset(str(tmp_path), num_classes=2)


def test_heads_without_arguments(roberta, tmp_path):
    save(tmp_path, roberta, args=None)
    assert open_source(str(tmp_path)).config["num_attention_heads"] == 1


@pytest.mark.slow
def test_the_vocabulary_is_renumbered(roberta, tmp_path):
    save(tmp_path, roberta)
    assert MaskedLM.from_preset(str(tmp_path)).preprocessor is None  # no BPE files
    ids = {token: index for index, token in enumerate([*"abcdefgh", "ab"])}
    (tmp_path / "encoder.json").write_text(json.dumps(ids))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\na b\n")
    source = open_source(str(tmp_path))
    with open(source.tokenizer_files["vocab.json"]) as file:
        vocabulary = json.load(file)
    assert vocabulary == {
        **{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3},
        **{"f": 4, "d": 5, "ab": 6, "a": 7, "b": 8, "c": 9, "e": 10, "g": 11},
        **{"madeupword0000": 12, "<mask>": 13},
    }
    task = MaskedLM.from_preset(str(tmp_path))
    tokenizer = task.preprocessor.tokenizer
    assert list(tokenizer("abdb")) == [6, 5, 8]
    assert tokenizer.mask_token_id == 13


@pytest.mark.data
def test_the_published_vocabulary(data_dir, roberta, tmp_path):
    from keras_bertfam.presets.checkpoints import fairseq

    folder = data_dir / "tokenizers"
    lines = (folder / "roberta" / "fairseq_dict.txt").read_text().splitlines()
    (tmp_path / "dict.txt").write_text("\n".join(lines[:50260]))
    for name, there in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt")):
        (tmp_path / name).write_bytes((folder / "gpt2" / there).read_bytes())
    tokens = fairseq._read_dictionary(str(tmp_path), 50265)
    files = fairseq._tokenizer_files(str(tmp_path), tokens)
    with (
        open(files["vocab.json"]) as ours,
        open(folder / "roberta" / "vocab.json") as file,
    ):
        assert json.load(ours) == json.load(file)


# === Damaged, or made to do harm ===


class Payload:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize("key", ["args", "model", "extra"])
def test_a_payload_does_not_run(key, roberta, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path, roberta, **{key: Payload()})
    refused = r"holds code and was refused.*Received: (os|posix|nt)\.system\.$"
    with pytest.raises(CheckpointError, match=refused) as caught:
        RobertaBackbone.from_preset(str(tmp_path))
    assert "weights_only" not in str(caught.value)
    assert not os.path.exists("ran")


def test_a_bare_pickle_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").write_bytes(pickle.dumps(Payload(), protocol=2))
    with pytest.raises(CheckpointError):
        RobertaBackbone.from_preset(str(tmp_path))
    assert not os.path.exists("ran")


@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_truncated(share, roberta, tmp_path):
    path = save(tmp_path, roberta) / "model.pt"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match="model.pt"):
        RobertaBackbone.from_preset(str(tmp_path))


@pytest.mark.parametrize("content", [[1], {"model": 3}, {"weights": {}}])
def test_without_a_model(content, tmp_path):
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="tensors of a `model`"):
        RobertaBackbone.from_preset(str(tmp_path))


def test_a_missing_tensor(roberta, tmp_path):
    state = state_of(roberta, False)
    del state["decoder.sentence_encoder.layers.1.fc1.bias"]
    save(tmp_path, roberta, model=state)
    with pytest.raises(CheckpointError, match="layer.1.intermediate.dense.bias"):
        RobertaBackbone.from_preset(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], "Expected: 14.*Received: 13"),
        (lambda lines: [*lines, "99 1"], "Expected: 14.*Received: 15"),
        (lambda lines: [*lines[:-1], "5 1"], "once. Received: '5' 2 times"),
    ],
)
def test_a_dictionary_of_another_length(change, message, roberta, tmp_path):
    path = save(tmp_path, roberta) / "dict.txt"
    path.write_text("\n".join(change(path.read_text().split("\n")[:-1])))
    with pytest.raises(CheckpointError, match=message):
        RobertaBackbone.from_preset(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_attention_heads", 10**9),
        ("encoder_attention_heads", 0),
        ("activation_fn", "unknown"),
        ("dropout", float("nan")),
        ("attention_dropout", -0.1),
    ],
)
def test_arguments_that_no_model_has(name, value, roberta, tmp_path):
    arguments = argparse.Namespace(**{**vars(ARGUMENTS), name: value})
    path = save(tmp_path, roberta, args=arguments)
    with pytest.raises(CheckpointError):
        RobertaBackbone.from_preset(str(path))
