"""XLNet against `transformers` with the same random weights."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import XLNetBackbone
from keras_bertfam.presets import CheckpointError
from tests.compiled import compiled
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY_SIZE = 61
# (layers, heads, width, inner width, batch, length)
SHAPES = [
    (2, 2, 16, 32, 3, 7),
    pytest.param(
        (3, 4, 36, 50, 2, 12), marks=[pytest.mark.slow, pytest.mark.any_backend]
    ),
    (1, 3, 18, 20, 1, 5),
]


def make_pair(shape, tied=False, **kwargs):
    """A `transformers` language model and our backbone with its weights."""
    layers, heads, width, inner = shape[:4]
    torch.manual_seed(layers)
    config = transformers.XLNetConfig(
        vocab_size=VOCABULARY_SIZE,
        d_model=width,
        n_layer=layers,
        n_head=heads,
        d_inner=inner,
        ff_activation="gelu",
        attn_type=kwargs.get("attention_type", "bi"),
        clamp_len=kwargs.get("clamp_length") or -1,
        bi_data=kwargs.pop("bi_data", False),
        mem_len=kwargs.pop("mem_len", 6),
        reuse_len=kwargs.pop("reuse_len", None),
        use_mems_eval=True,
    )
    theirs = randomize(transformers.XLNetLMHeadModel(config), 0.2, seed=layers)
    theirs.config.bi_data = False  # the models keep theirs
    if not tied:
        return theirs, convert(XLNetBackbone, theirs.transformer)
    biases = [f"r_{kind}_bias" for kind in "wrs"]
    first = theirs.transformer.layer[0].rel_attn
    with torch.no_grad():
        for layer in theirs.transformer.layer[1:]:
            for name in biases:
                getattr(layer.rel_attn, name).copy_(getattr(first, name))
    with pytest.warns(UserWarning, match="left out: layer.0.rel_attn.r_r_bias"):
        backbone = convert(XLNetBackbone, theirs.transformer, untie_biases=False)
    values = [getattr(first, name).detach().numpy() for name in biases]
    backbone.encoder.biases.assign(np.stack(values))
    return theirs, backbone


def make_batch(shape):
    batch, length = shape[4:]
    rng = np.random.default_rng(0)
    ids = rng.integers(1, VOCABULARY_SIZE, (batch, length)).astype("int32")
    segments = (np.arange(length) >= rng.integers(1, length, (batch, 1))).astype(int)
    segments[:, -1] = 2
    return ids, segments.astype("int32"), rng


def run(theirs, **inputs):
    with torch.no_grad():
        return theirs(
            **{
                name: [torch.tensor(m) for m in value]
                if isinstance(value, list)
                else torch.tensor(value)
                for name, value in inputs.items()
            },
            output_hidden_states=True,
            output_attentions=True,
        )


def logits_of(theirs, backbone, hidden):
    """Ours, by the table and their bias."""
    logits = backbone.token_embedding(hidden, reverse=True)
    return ops.convert_to_numpy(logits) + theirs.lm_loss.bias.detach().numpy()


@pytest.mark.parametrize("attention_type", ["bi", "uni"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_encoder(shape, attention_type):
    """The plain encoder: hidden states, attention, logits, memory."""
    theirs, backbone = make_pair(
        shape, attention_type=attention_type, clamp_length=4, reuse_len=3
    )
    ids, segments, rng = make_batch(shape)
    layers, _, width, _, batch, length = shape
    memory = [rng.normal(size=(5, batch, width)).astype("float32")] * layers
    for mems in (None, memory):
        inputs = {"token_ids": ids, "segment_ids": segments}
        more = {"token_type_ids": segments.astype("int64")}
        if mems is not None:
            inputs["memory"] = [m.transpose(1, 0, 2) for m in mems]
            more["mems"] = mems
        expected = run(theirs, input_ids=ids.astype("int64"), **more)
        ours = compiled(backbone)(
            inputs,
            return_hidden_states=True,
            return_attention=True,
            memory_length=6,
            reuse_length=3,
        )
        for state, target in zip(
            ours["hidden_states"], expected.hidden_states, strict=True
        ):
            assert max_difference(state, target) < 1e-5
        for scores, target in zip(ours["attentions"], expected.attentions, strict=True):
            assert max_difference(scores, target) < 1e-5
        for state, target in zip(ours["memory"], expected.mems, strict=True):
            target = target.permute(1, 0, 2)
            assert max_difference(state, target) < 1e-5
        logits = logits_of(theirs, backbone, ours["sequence_output"])
        assert max_difference(logits, expected.logits) < 1e-4
        positions = np.array([[length - 1, 1]] * batch, "int32")
        some = compiled(backbone)(inputs, positions=positions)["sequence_output"]
        picked = expected.hidden_states[-1][:, positions[0]]
        assert max_difference(some, picked) < 1e-5


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(side):
    shape = SHAPES[0]
    theirs, backbone = make_pair(shape)
    ids, segments, _ = make_batch(shape)
    mask = np.arange(7) < np.array([[7], [4], [6]])
    mask = mask if side == "right" else mask[:, ::-1].copy()
    expected = run(
        theirs,
        input_ids=ids.astype("int64"),
        token_type_ids=segments.astype("int64"),
        attention_mask=mask.astype("float32"),
    )
    ours = compiled(backbone)(
        {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    )
    target = expected.hidden_states[-1]
    assert max_difference(ours["sequence_output"], target, mask) < 1e-5


def make_order(shape, rng, num_predicted):
    """Ranks of which at least one token sees others first, and the positions."""
    batch, length = shape[4:]
    ranks = rng.permuted(np.tile(np.arange(length), (batch, 1)), axis=1)
    ranks = np.maximum(ranks - 2, -1).astype("int32")  # three tokens are known
    positions = np.argsort(ranks, axis=1)[:, 3:][:, :num_predicted]
    return ranks, np.sort(positions, axis=1).astype("int32")


def published_mask(ranks, positions):
    """1 where token i doesn't attend to j, as the released code has it."""
    is_target = np.zeros_like(ranks, bool)
    np.put_along_axis(is_target, positions, True, axis=1)
    own = np.where(is_target, ranks, ranks + 1)
    return (own[:, :, None] <= ranks[:, None, :]).astype("float32")


@pytest.mark.parametrize(
    ("attention_type", "tied"), [("bi", False), ("uni", True)], ids=str
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_streams(shape, attention_type, tied):
    """Permutation language modelling with memory, given in either form."""
    layers, _, width, _, batch, length = shape
    if attention_type == "uni":  # transformers can't add its mask to many rows
        shape, batch = (*shape[:4], 1, length), 1
    theirs, backbone = make_pair(shape, tied, attention_type=attention_type)
    ids, segments, rng = make_batch(shape)
    ranks, positions = make_order(shape, rng, 2)
    perm_mask = published_mask(ranks, positions)
    mapping = np.eye(length, dtype="float32")[positions]
    memory = [rng.normal(size=(4, batch, width)).astype("float32")] * layers
    expected = run(
        theirs,
        input_ids=ids.astype("int64"),
        token_type_ids=segments.astype("int64"),
        perm_mask=perm_mask,
        target_mapping=mapping,
        mems=memory,
    )
    common = {
        "token_ids": ids,
        "segment_ids": segments,
        "memory": [m.transpose(1, 0, 2) for m in memory],
    }
    forms = (
        {"perm_ranks": ranks, "mask_positions": positions},
        {"perm_mask": perm_mask, "target_mapping": mapping},
    )
    for form in forms:
        ours = compiled(backbone)(
            {**common, **form}, return_hidden_states=True, memory_length=6
        )
        content, query = expected.hidden_states[::2], expected.hidden_states[1::2]
        for state, target in zip(ours["hidden_states"], content, strict=True):
            assert max_difference(state, target) < 1e-5
        for state, target in zip(ours["query_hidden_states"], query, strict=True):
            assert max_difference(state, target) < 1e-5
        # Without the last content states, which nothing reads.
        short = compiled(backbone)({**common, **form})["sequence_output"]
        assert max_difference(short, query[-1]) < 1e-5
        logits = logits_of(theirs, backbone, short)
        assert max_difference(logits, expected.logits) < 1e-4
        for state, target in zip(ours["memory"], expected.mems, strict=True):
            target = target.permute(1, 0, 2)
            assert max_difference(state, target) < 1e-5


def test_a_config_without_untied_biases_means_nothing():
    """`transformers` never reads it: each layer has biases of its own."""
    theirs, expected = make_pair(SHAPES[0])
    theirs.config.untie_r = False
    backbone = convert(XLNetBackbone, theirs.transformer)
    assert backbone.untie_biases
    inputs = {"token_ids": make_batch(SHAPES[0])[0]}
    np.testing.assert_array_equal(
        *(
            ops.convert_to_numpy(b(inputs)["sequence_output"])
            for b in (expected, backbone)
        )
    )


def test_batches_of_two_directions_are_refused():
    """With `bi_data` the second half of each batch runs backwards."""
    theirs, _ = make_pair(SHAPES[0])
    theirs.config.bi_data = True
    expected = r"The config of '.*'.* Expected 'bi_data' to be False\. Received: True\."
    with pytest.raises(CheckpointError, match=expected):
        convert(XLNetBackbone, theirs.transformer)


def test_reversed_rows():
    shape = (2, 2, 16, 32, 4, 6)
    theirs, backbone = make_pair(shape, bi_data=True)
    ids, segments, rng = make_batch(shape)
    ranks, positions = make_order(shape, rng, 3)
    expected = run(
        theirs,
        input_ids=ids.astype("int64"),
        token_type_ids=segments.astype("int64"),
        perm_mask=published_mask(ranks, positions),
        target_mapping=np.eye(6, dtype="float32")[positions],
    )
    ours = compiled(backbone)(
        {
            "token_ids": ids,
            "segment_ids": segments,
            "perm_ranks": ranks,
            "mask_positions": positions,
            "reversed_rows": np.array([False, False, True, True]),
        }
    )
    target = expected.hidden_states[-1]
    assert max_difference(ours["sequence_output"], target) < 1e-5
    assert ops.shape(ours["sequence_output"]) == (4, 3, 16)
