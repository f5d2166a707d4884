"""BERT and RoBERTa against `transformers` with the same random weights."""

import numpy as np
import pytest

from keras_bertfam.models import BertBackbone, RobertaBackbone
from keras_bertfam.tasks import MaskedLM
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# (layers, heads, width, inner width, batch, length)
SHAPES = [(2, 2, 32, 64, 3, 7), (3, 4, 36, 50, 2, 16), (1, 3, 15, 20, 1, 5)]
VOCABULARY_SIZE = 97


def make_pair(family, layers, heads, width, inner, length):
    """A `transformers` model and ours with its weights."""
    common = {
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "attn_implementation": "eager",
        "initializer_range": 0.3,
    }
    if family == "bert":
        config = transformers.BertConfig(
            hidden_act="gelu_pytorch_tanh", max_position_embeddings=length, **common
        )
        theirs = transformers.BertForMaskedLM(config)
    else:
        config = transformers.RobertaConfig(
            max_position_embeddings=length + 2,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            **common,
        )
        theirs = transformers.RobertaForMaskedLM(config)
    randomize(theirs, seed=layers)
    model = convert(MaskedLM, theirs)
    cls = {"bert": BertBackbone, "roberta": RobertaBackbone}[family]
    assert type(model.backbone) is cls
    return theirs, model


def make_batch(batch, length):
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, length + 1, batch)
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    ids = np.where(mask, rng.integers(3, VOCABULARY_SIZE, (batch, length)), 1)
    return ids.astype("int32"), mask.astype("int32")


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_states_attentions_and_logits_equal(family, shape):
    layers, heads, width, inner, batch, length = shape
    theirs, model = make_pair(family, layers, heads, width, inner, length)
    ids, mask = make_batch(batch, length)
    inputs = {"token_ids": ids, "padding_mask": mask}
    more = {}
    if family == "bert":
        segments = np.arange(length)[None] * np.ones((batch, 1)) > length // 2
        inputs["segment_ids"] = segments.astype("int32")
        more["token_type_ids"] = torch.tensor(segments).long()
    with torch.no_grad():
        expected = theirs(
            torch.tensor(ids).long(),
            attention_mask=torch.tensor(mask),
            output_hidden_states=True,
            output_attentions=True,
            **more,
        )
    real = mask.astype(bool)
    ours = model.backbone(inputs, return_hidden_states=True, return_attention=True)
    for state, target in zip(
        ours["hidden_states"], expected.hidden_states, strict=True
    ):
        assert max_difference(state, target, real) < 1e-5
    rows = np.broadcast_to(real[:, None, :], (batch, heads, length))
    for scores, target in zip(ours["attentions"], expected.attentions, strict=True):
        assert max_difference(scores, target, rows) < 1e-5
    fused = model.backbone(inputs)["sequence_output"]
    target = expected.hidden_states[-1]
    assert max_difference(fused, target, real) < 1e-5
    assert max_difference(model(inputs), expected.logits, real) < 1e-4
    positions = np.zeros((batch, 2), "int32")
    positions[:, 1] = real.sum(axis=1) - 1
    picked = expected.logits[torch.arange(batch)[:, None], torch.tensor(positions)]
    logits = model({**inputs, "mask_positions": positions})
    assert max_difference(logits, picked) < 1e-4
