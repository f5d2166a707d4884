"""SpanBERT as its authors' fork of fairseq saves it."""

import argparse
import re
import sys
import types

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import BertBackbone, SpanBertBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.tasks import MaskedLM, SpanBoundaryLM
from tests.tiny_masked_lm import SPECIALS, WORDS, documents

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOKENS = [*SPECIALS, *WORDS, "##s"]
PAIR = "decoder.cls.pair_target_predictions"
WIDTH, PLACES, PLACE_WIDTH = 128, 20, 200
BOUNDS = np.array([[[2, 4], [2, 4], [6, 6]]])
POSITIONS = np.array([[2, 4, 6]])
IDS = np.array([[2, 7, 4, 4, 4, 9, 4, 8, 3]])


@pytest.fixture(scope="module")
def bert():
    config = transformers.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
    )
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


@pytest.fixture(scope="module")
def state(bert):
    """The tensors by the fork's names."""
    tensors = {}
    for name, tensor in bert.state_dict().items():
        if name.endswith("predictions.decoder.bias") or "position_ids" in name:
            continue
        if "LayerNorm" in name:
            name = re.sub("weight$", "gamma", re.sub("bias$", "beta", name))
        tensors[f"decoder.{name}"] = tensor.clone()
    table = tensors["decoder.bert.embeddings.word_embeddings.weight"]
    tensors["decoder.cls.predictions.decoder.weight"] = table
    shapes = {
        "position_embeddings.weight": (PLACES, PLACE_WIDTH),
        "mlp_layer_norm.linear1.weight": (WIDTH, 2 * WIDTH + PLACE_WIDTH),
        "mlp_layer_norm.linear2.weight": (WIDTH, WIDTH),
        "bias": (len(TOKENS),),
    }
    shapes |= {f"mlp_layer_norm.linear{k}.bias": (WIDTH,) for k in (1, 2)}
    for part in ("gamma", "beta"):
        shapes |= {f"mlp_layer_norm.layer_norm{k}.{part}": (WIDTH,) for k in (1, 2)}
    made = {f"{PAIR}.{n}": torch.randn(s) * 0.3 for n, s in shapes.items()}
    return tensors | made | {f"{PAIR}.decoder.weight": table}


def span_logits(state, left, right, places):
    """The authors' formula."""

    def norm(x, k):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        gamma, beta = (state[f"{at}layer_norm{k}.{n}"] for n in ("gamma", "beta"))
        return gamma * (x - mean) / torch.sqrt(variance + 1e-12) + beta

    at = f"{PAIR}.mlp_layer_norm."
    table = state[f"{PAIR}.position_embeddings.weight"]
    x = torch.cat([left, right, table[places]], -1)
    for k in (1, 2):
        weight, bias = (state[f"{at}linear{k}.{n}"] for n in ("weight", "bias"))
        x = norm(torch.nn.functional.gelu(x @ weight.T + bias), k)
    return x @ state[f"{PAIR}.decoder.weight"].T + state[f"{PAIR}.bias"]


class BertConfig:
    """As the fork has one, in a module that isn't there when it is read."""

    def __init__(self, ran=None):
        self.num_attention_heads = 2
        self.hidden_act = "gelu"


def write(folder, state, legacy=False, **arguments):
    """A file of the fork's, with its class of settings and an optimizer."""
    module = types.ModuleType("fairseq.models.pair_bert")
    BertConfig.__module__, module.BertConfig = module.__name__, BertConfig
    names = ("fairseq", "fairseq.models", module.__name__)
    sys.modules |= dict.fromkeys(names, module)
    try:
        args = argparse.Namespace(lr=[1e-4], config=BertConfig(), **arguments)
        optimizer = {"state": {0: {"exp_avg": torch.zeros(3)}}}
        content = {"args": args, "model": state, "last_optimizer_state": optimizer}
        folder.mkdir(exist_ok=True)
        new = {"_use_new_zipfile_serialization": not legacy}
        torch.save(content, folder / "model.pt", **new)
    finally:
        for name in names:
            del sys.modules[name]
    (folder / "vocab.txt").write_text("\n".join(TOKENS), "utf-8")
    return folder


@pytest.mark.parametrize("legacy", [False, True])
def test_both_heads(bert, state, tmp_path, legacy):
    model = SpanBoundaryLM.from_preset(write(tmp_path, state, legacy))
    assert isinstance(model.backbone, SpanBertBackbone)
    assert (model.max_span_length, model.position_dim) == (PLACES, PLACE_WIDTH)
    outputs = model(
        {"token_ids": IDS, "mask_positions": POSITIONS, "span_bounds": BOUNDS}
    )
    with torch.no_grad():
        ids = torch.tensor(IDS)
        states = bert.bert(ids)[0]
        left, right = (
            states[0, torch.tensor(BOUNDS[0, :, end] + step)]
            for end, step in ((0, -1), (1, 1))
        )
        places = torch.tensor(POSITIONS[0] - BOUNDS[0, :, 0])
        expected = {
            "masked_lm": bert(ids).logits[0, torch.tensor(POSITIONS[0])],
            "span_boundary": span_logits(state, left, right, places),
        }
    for name, logits in expected.items():
        got = ops.convert_to_numpy(outputs[name])[0]
        np.testing.assert_allclose(got, logits.numpy(), atol=2e-4, rtol=1e-4)


@pytest.mark.slow
def test_training_goes_on(state, tmp_path):
    model = SpanBoundaryLM.from_preset(write(tmp_path / "theirs", state))
    batches = model.preprocessor.dataset(documents(), 4, break_lines=False)
    model.compile(total_steps=2)
    model.fit(batches, steps_per_epoch=2, verbose=0)
    model.save_to_preset(str(tmp_path / "ours"))
    same = SpanBoundaryLM.from_preset(str(tmp_path / "ours"))
    assert same.max_span_length == PLACES
    with pytest.raises(ValueError, match="`transformers` has no place for weights"):
        model.export_to_transformers(tmp_path / "out")


def test_parts_and_what_is_none(state, tmp_path):
    folder = write(tmp_path / "a", state)
    with pytest.warns(UserWarning, match="left out: cls.predictions"):
        assert type(BertBackbone.from_preset(folder)) is BertBackbone
    with pytest.warns(UserWarning, match="left out: cls.pair_target_predictions"):
        tokenizer = MaskedLM.from_preset(folder).preprocessor.tokenizer
    assert tokenizer.vocabulary_size() == len(TOKENS)
    bare = {name: x for name, x in state.items() if not name.startswith(PAIR)}
    with pytest.warns(UserWarning, match="span_boundary_head/position_table"):
        model = SpanBoundaryLM.from_preset(write(tmp_path / "b", bare))
    assert model.max_span_length == 15
    with pytest.raises(CheckpointError, match="must have pair_target_layer=-1,"):
        SpanBoundaryLM.from_preset(write(tmp_path / "c", state, pair_target_layer=3))
    own = {**state, f"{PAIR}.decoder.weight": torch.zeros(len(TOKENS), WIDTH)}
    with pytest.raises(CheckpointError, match="must equal the table of word"):
        SpanBoundaryLM.from_preset(write(tmp_path / "d", own))
