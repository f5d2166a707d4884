"""MLM with NSP and SOP against `transformers` with the same random weights."""

import numpy as np
import pytest

from keras_bertfam.models import AlbertBackbone, BertBackbone
from keras_bertfam.tasks import MaskedLMSentencePair
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY_SIZE = 97
# (layers, groups, heads, width, inner width, embedding width, batch, length)
SHAPES = [(2, 1, 2, 32, 64, 12, 3, 9), (4, 2, 3, 24, 40, 6, 2, 16)]


def make_pair(family, shape):
    """A `transformers` model and ours with its weights."""
    layers, groups, heads, width, inner, embedding_dim, _, length = shape
    common = {
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "attn_implementation": "eager",
        "initializer_range": 0.3,
        "max_position_embeddings": length,
    }
    if family == "bert":
        config = transformers.BertConfig(hidden_act="gelu_pytorch_tanh", **common)
        theirs = transformers.BertForPreTraining(config)
    else:
        config = transformers.AlbertConfig(
            embedding_size=embedding_dim, num_hidden_groups=groups, **common
        )
        theirs = transformers.AlbertForPreTraining(config)
    randomize(theirs, seed=layers)
    model = convert(MaskedLMSentencePair, theirs)
    cls = {"bert": BertBackbone, "albert": AlbertBackbone}[family]
    assert type(model.backbone) is cls
    return theirs, model


def make_batch(batch, length):
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, length + 1, batch)
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    ids = np.where(mask, rng.integers(3, VOCABULARY_SIZE, (batch, length)), 0)
    segments = mask & (np.arange(length) > 2)
    positions = np.stack([[1, 3]] * batch)
    weights = np.ones((batch, 2), "float32")
    positions[0, 1], weights[0, 1] = 0, 0.0  # an empty slot
    targets = rng.integers(3, VOCABULARY_SIZE, (batch, 2))
    x = {"token_ids": ids, "segment_ids": segments, "mask_positions": positions}
    x = {name: value.astype("int32") for name, value in x.items()}
    x["padding_mask"] = mask
    y = {"masked_lm": targets.astype("int32"), "sentence": np.arange(batch) % 2}
    return x, y, {"masked_lm": weights, "sentence": np.ones(batch, "float32")}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_states_logits_and_loss_equal(family, shape):
    theirs, model = make_pair(family, shape)
    batch, length = shape[-2:]
    x, y, weights = make_batch(batch, length)
    labels = np.full((batch, length), -100)
    rows = np.arange(batch)[:, None]
    labels[rows, x["mask_positions"]] = np.where(
        weights["masked_lm"] > 0, y["masked_lm"], -100
    )
    kind = "next_sentence_label" if family == "bert" else "sentence_order_label"
    with torch.no_grad():
        expected = theirs(
            torch.tensor(x["token_ids"]).long(),
            attention_mask=torch.tensor(x["padding_mask"]).long(),
            token_type_ids=torch.tensor(x["segment_ids"]).long(),
            labels=torch.tensor(labels),
            output_hidden_states=True,
            **{kind: torch.tensor(y["sentence"])},
        )
    inputs = {name: x[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    ours = model.backbone(inputs, return_hidden_states=True)
    for state, target in zip(
        ours["hidden_states"], expected.hidden_states, strict=True
    ):
        assert max_difference(state, target, x["padding_mask"]) < 1e-5
    outputs = model(x)
    logits = expected["prediction_logits"][torch.tensor(rows), x["mask_positions"]]
    assert max_difference(outputs["masked_lm"], logits) < 1e-4
    name = "seq_relationship_logits" if family == "bert" else "sop_logits"
    assert max_difference(outputs["sentence"], expected[name]) < 1e-4
    loss = model.compute_loss(x, y, outputs, weights)
    assert max_difference(loss, expected.loss) < 1e-4
