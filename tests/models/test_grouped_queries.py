"""Queries that share keys and values, against models whose keys are repeated."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks
from keras_bertfam.analysis import prune_heads
from keras_bertfam.analysis.heads.pruning import add_head_gates
from keras_bertfam.layers import SelfAttention
from keras_bertfam.layers.attention.disentangled import DisentangledSelfAttention

HEADS, GROUPS, WIDTH = 4, 2, 4
SIZES = {"num_layers": 1, "num_heads": HEADS, "hidden_dim": 16, "intermediate_dim": 8}
SIZES |= {"rotary_base": 100.0, "max_sequence_length": 32, "dropout": 0.0}
LENGTH = 12
MASK = np.arange(LENGTH) < np.array([[LENGTH], [9]])
X = {
    "token_ids": np.random.default_rng(0).integers(1, 20, MASK.shape).astype("int32"),
    "padding_mask": MASK,
}
PACKED = {**X, "sequence_ids": np.array([[1] * 5 + [2] * 7, [1] * 9 + [0] * 3])}
PACKED["sequence_ids"] = PACKED["sequence_ids"].astype("int32")


def repeated(kernel):
    """The columns of queries, keys and values, the last two for each head."""
    first = HEADS * WIDTH
    query, rest = kernel[..., :first], kernel[..., first:]
    rest = rest.reshape(*kernel.shape[:-1], 2, GROUPS, WIDTH)
    rest = np.repeat(rest, HEADS // GROUPS, axis=-2)
    return np.concatenate([query, rest.reshape(*kernel.shape[:-1], -1)], -1)


def fill(ours, theirs):
    draw = np.random.default_rng(1)
    for first, second in zip(ours.weights, theirs.weights, strict=True):
        value = draw.normal(0.0, 0.3, first.shape).astype("float32")
        first.assign(value)
        second.assign(repeated(value) if first.shape != second.shape else value)
    return ours, theirs


def pair(**settings):
    """A backbone whose queries share keys, and one that computes the same."""
    shared = {**SIZES, "num_key_value_heads": GROUPS, **settings}
    ours = models.EncoderBackbone(20, **shared)
    return fill(ours, models.EncoderBackbone(20, **{**SIZES, **settings}))


def assert_same(first, second, where=...):
    first, second = (ops.convert_to_numpy(x)[where] for x in (first, second))
    np.testing.assert_allclose(first, second, atol=2e-5)


CASES = {
    "packed": ({}, PACKED),
    "causal": ({"causal": True}, PACKED),
    "windows": ({"attention_window": 2}, PACKED),
    "global": (
        {
            "attention_window": 2,
            "attention_dilation": [[1, 1, 2, 2]],
            "max_global_tokens": 1,
        },
        {**X, "global_positions": np.array([[0], [3]], "int32")},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_all_patterns(case):
    settings, x = CASES[case]
    ours, theirs = pair(**settings)
    lacking = 2 * (HEADS - GROUPS) * WIDTH * (16 + 1)
    lacking *= 2 if case == "global" else 1
    assert theirs.count_params() - ours.count_params() == lacking
    positions = np.array([[1, 4], [2, 7]], "int32")
    some = [each(x, positions=positions)["sequence_output"] for each in (ours, theirs)]
    assert_same(*some)
    whole = [each(x, return_attention=True) for each in (ours, theirs)]
    assert_same(*(outputs["sequence_output"] for outputs in whole), MASK)
    assert_same(*(outputs["attentions"][0] for outputs in whole))
    plain = ours(x)["sequence_output"]  # by a kernel, or in blocks
    assert_same(plain, whole[1]["sequence_output"], MASK)


@pytest.mark.any_backend
def test_layers_alone():
    ours = SelfAttention(HEADS, WIDTH, causal=True, num_key_value_heads=GROUPS)
    theirs = SelfAttention(HEADS, WIDTH, causal=True)
    x = np.random.default_rng(2).normal(size=(2, 5, 16)).astype("float32")
    seen = []
    for layer in (ours, theirs):
        layer.build(x.shape)
        layer.watcher = lambda *given: seen.append(given)
    fill(ours, theirs)
    head_mask = np.array([1, 1, 1, 0], "float32")  # a head, and not its keys
    whole = [layer(x, head_mask=head_mask) for layer in (ours, theirs)]
    assert_same(*whole)
    for first, second in zip(*seen, strict=True):  # queries, keys and probabilities
        assert_same(first, second)
    # A cache has the keys once.
    cache = (ops.zeros((2, 5, GROUPS, WIDTH)),) * 2
    _, cache = ours(x[:, :3], cache=cache, head_mask=head_mask)
    last, _ = ours(x[:, 3:], cache=cache, cache_index=3, head_mask=head_mask)
    assert_same(last, whole[0][:, 3:])
    backbone = models.EncoderBackbone(
        20, **SIZES, causal=True, num_key_value_heads=GROUPS
    )
    assert backbone.empty_cache(1, keys=4)[0][0].shape == (1, 4, GROUPS, WIDTH)
    ours.qkv.quantize("int8")
    positions = np.array([[1, 4], [2, 3]], "int32")
    some = ours(x, positions=positions)
    assert_same(some, ops.take_along_axis(ours(x), positions[..., None], 1))


@pytest.mark.any_backend
@pytest.mark.slow
def test_gates_of_heads():
    masked = tasks.MaskedLM(pair()[0])
    gated = add_head_gates(masked)
    assert gated.backbone.num_key_value_heads == GROUPS
    assert_same(masked(X), gated(X), MASK)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_key_value_heads": 3}, "`num_key_value_heads` must divide `num_heads`"),
        ({"num_key_value_heads": 8}, "`num_key_value_heads` must divide `num_heads`"),
        ({"num_key_value_heads": 0}, "`num_key_value_heads` must be an int of at l"),
        ({"pruned_heads": [[0]]}, "`pruned_heads` must be left out where queries"),
        (
            {"disentangled": "shared", "relative_buckets": 4, "rotary_base": None},
            "`disentangled` must be left out where queries",
        ),
        ({"cross_attention": True}, "`cross_attention` must be left out where queries"),
    ],
)
def test_settings_that_cant_be(settings, message):
    with pytest.raises(ValueError, match=message):
        models.TransformerConfig(
            20, **{**SIZES, "num_key_value_heads": GROUPS, **settings}
        )


@pytest.mark.any_backend
def test_who_has_no_shared_keys():
    config = models.TransformerConfig(20, **SIZES, num_key_value_heads=HEADS)
    assert config.num_key_value_heads is None
    backbone = models.EncoderBackbone(20, **SIZES, num_key_value_heads=GROUPS)
    with pytest.raises(ValueError, match="`pruned_heads` must be left out"):
        prune_heads(backbone, {0: [1]})
    with pytest.raises(ValueError, match="has no argument 'num_key_value_heads'"):
        models.BartBackbone(20, 1, 4, 16, 8, num_key_value_heads=2)

    class Mine(models.BartBackbone):
        pass

    with pytest.raises(ValueError, match="`num_key_value_heads` can't be an argument"):
        Mine(20, 1, 4, 16, 8, num_key_value_heads=2)
    for cls in (SelfAttention, DisentangledSelfAttention):
        with pytest.raises(ValueError, match="`num_key_value_heads` must"):
            cls(4, 4, num_key_value_heads=2 if cls is not SelfAttention else 3)


# Counts of the encoder, and of its untied masked language model.
EUROBERT = {
    "eurobert_210m_multi": (211_766_016, 310_266_624),
    "eurobert_610m_multi": (607_874_688, 755_625_600),
    "eurobert_2.1b_multi": (2_107_590_912, 2_403_092_736),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", EUROBERT)
def test_parameter_counts_of_eurobert(name):
    size = models.EuroBertBackbone.presets_table[name]
    encoder, masked_lm = EUROBERT[name]
    assert models.EuroBertBackbone.parameter_count(**size) == masked_lm
    width, groups = size["hidden_dim"], size.get("num_key_value_heads")
    keys = (groups or size["num_heads"]) * width // size["num_heads"]
    blocks = 2 * width**2 + 2 * width * keys + 3 * size["intermediate_dim"] * width
    blocks = size["num_layers"] * (blocks + 2 * width)
    table = size["vocabulary_size"] * width
    assert table + blocks + width == encoder == masked_lm - table


def test_a_generator_has_keys_of_its_own():
    backbone = models.ElectraBackbone(**SIZES, vocabulary_size=20,
                                      num_key_value_heads=GROUPS)  # fmt: skip
    generator = models.make_generator(backbone, 0.25)
    assert generator.num_heads == 1 and generator.num_key_value_heads is None
