import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers.recurrent.relative_attention import (
    gather_rows,
    relative_sinusoids,
    shift_rows,
)
from keras_bertfam.layers.recurrent.relative_transformer import (
    RelativeTransformerStack,
)
from keras_bertfam.layers.recurrent.two_streams import visible_keys
from keras_bertfam.models import XLNetBackbone
from tests.compiled import compiled


def make_backbone(**kwargs):
    keras.utils.set_random_seed(1)
    settings = {"initializer_range": 0.3, "dropout": 0.0, **kwargs}
    return XLNetBackbone(30, 2, 2, 8, 12, **settings)


def random_ids(*shape):
    return np.random.default_rng(0).integers(1, 30, shape).astype("int32")


def output(backbone, inputs, **kwargs):
    outputs = compiled(backbone)(inputs, **kwargs)
    return ops.convert_to_numpy(outputs["sequence_output"])


@pytest.mark.parametrize(
    ("name", "body"),
    [("xlnet_base_en_cased", 116_718_336), ("xlnet_large_en_cased", 360_268_800)],
)
def test_parameter_counts(name, body):
    sizes = XLNetBackbone.presets_table[name]
    assert XLNetBackbone.parameter_count(**sizes) == body
    layers, width = sizes["num_layers"], sizes["hidden_dim"]
    tied = XLNetBackbone.parameter_count(**sizes, untie_biases=False)
    assert body - tied == 3 * width * (layers - 1)


def test_shifted_distances():
    # Three queries and keys, distances 3 to -2: entry (i, j) is i - j.
    distances = ops.broadcast_to(3 - ops.arange(6), (1, 1, 3, 6))
    expected = [[0, -1, -2], [1, 0, -1], [2, 1, 0]]
    np.testing.assert_array_equal(
        ops.convert_to_numpy(shift_rows(distances, 3))[0, 0], expected
    )
    # With two more keys before them, of memory.
    distances = ops.broadcast_to(5 - ops.arange(8), (1, 1, 3, 8))
    expected = [[2, 1, 0, -1, -2], [3, 2, 1, 0, -1], [4, 3, 2, 1, 0]]
    np.testing.assert_array_equal(
        ops.convert_to_numpy(shift_rows(distances, 5))[0, 0], expected
    )
    picked = gather_rows(distances[:, :, :2], ops.array([[4, 2]]), 5)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(picked)[0, 0], [expected[2], expected[0]]
    )


def test_sinusoids():
    received = ops.convert_to_numpy(relative_sinusoids(2, 3, 4, clamp_length=2))
    distances = np.array([2, 2, 1, 0, -1])  # 3, clamped, to -1
    angles = distances[:, None] * np.array([1.0, 0.01])
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    np.testing.assert_allclose(received, expected, atol=1e-6)
    assert len(relative_sinusoids(2, 3, 4, causal=True)) == 4  # 3 to 0


def test_masks_of_the_order_3_2_4_1():
    """Golden example: all positions are targets, 1 = cannot attend."""
    ranks = np.array([[3, 1, 0, 2]])
    positions = np.arange(4)[None]
    seen = visible_keys(ranks, positions, perm_ranks=ranks)
    hidden = 1 - ops.convert_to_numpy(seen)[0].astype(int)
    content = [[0, 0, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0]]
    query = [[1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 1]]
    np.testing.assert_array_equal(hidden, [*content, *query])


def test_states_depend_on_what_the_order_shows_and_on_nothing_else():
    """Changes one token at a time and looks which query states change."""
    backbone = make_backbone()
    ranks = np.array([[3, 1, 0, 2]])  # 3 -> 2 -> 4 -> 1

    def states(ids):
        inputs = {
            "token_ids": ids,
            "perm_ranks": ranks,
            "mask_positions": np.arange(4)[None],
        }
        return output(backbone, inputs)[0]

    ids = random_ids(1, 4)
    before = states(ids)
    assert np.isfinite(before).all()
    for changed in range(4):
        other = ids.copy()
        other[0, changed] = 1 + other[0, changed] % 29
        differs = np.abs(states(other) - before).max(axis=1) > 1e-6
        np.testing.assert_array_equal(differs, ranks[0] > ranks[0, changed])


def test_the_first_in_the_order_sees_the_memory():
    backbone = make_backbone()
    inputs = {
        "token_ids": random_ids(1, 4),
        "perm_ranks": np.array([[3, 1, 0, 2]]),
        "mask_positions": np.array([[2]]),
    }
    alone = output(backbone, inputs)
    memory = [np.ones((1, 3, 8), "float32")] * 2
    assert np.abs(output(backbone, {**inputs, "memory": memory}) - alone).max() > 1e-3
    hidden = {"memory": memory, "memory_mask": np.zeros((1, 3), bool)}
    np.testing.assert_allclose(output(backbone, {**inputs, **hidden}), alone, atol=1e-6)


def test_memory_continues_a_text():
    """In causal attention two halves with memory equal the whole."""
    backbone = make_backbone(attention_type="uni")
    ids = random_ids(2, 10)
    whole = output(backbone, {"token_ids": ids})
    first = backbone({"token_ids": ids[:, :6]}, memory_length=6)
    second = output(backbone, {"token_ids": ids[:, 6:], "memory": first["memory"]})
    np.testing.assert_allclose(second, whole[:, 6:], atol=1e-5)
    reused = backbone({"token_ids": ids}, memory_length=4, reuse_length=6)["memory"]
    np.testing.assert_allclose(
        ops.convert_to_numpy(reused[1]),
        ops.convert_to_numpy(first["memory"][1])[:, 2:],
        atol=1e-5,
    )


def test_the_query_stream_adds_nothing_to_the_encoder():
    """Dropped for fine-tuning, it leaves the content stream as it was."""
    backbone = make_backbone()
    ids = random_ids(2, 5)
    ranks = -np.ones((2, 5), "int32")
    both = backbone(
        {"token_ids": ids, "perm_ranks": ranks, "mask_positions": ids[:, :2] % 5},
        return_hidden_states=True,
    )
    plain = backbone({"token_ids": ids}, return_hidden_states=True)
    for one, other in zip(both["hidden_states"], plain["hidden_states"], strict=True):
        np.testing.assert_allclose(
            ops.convert_to_numpy(one), ops.convert_to_numpy(other), atol=1e-6
        )
    assert "query_hidden_states" not in plain
    at = np.array([[4, 0, 2], [1, 1, 3]])
    expected = np.take_along_axis(
        output(backbone, {"token_ids": ids}), at[..., None], 1
    )
    np.testing.assert_allclose(
        output(backbone, {"token_ids": ids}, positions=at), expected, atol=1e-6
    )


def test_only_equality_of_segments_counts():
    backbone = make_backbone()
    ids = random_ids(1, 6)

    def states(*segments):
        return output(backbone, {"token_ids": ids, "segment_ids": np.array([segments])})

    np.testing.assert_allclose(
        states(0, 0, 0, 1, 1, 2), states(2, 2, 2, 0, 0, 1), atol=1e-6
    )
    difference = states(0, 0, 0, 1, 1, 2) - states(0, 0, 1, 1, 1, 2)
    assert np.abs(difference).max() > 1e-3


def test_only_distances_count():
    """Left padding moves no state, other than learned positions would."""
    backbone = make_backbone()
    ids = random_ids(1, 5)
    padded = np.pad(ids, [[0, 0], [3, 0]])
    states = output(backbone, {"token_ids": padded, "padding_mask": padded > 0})
    np.testing.assert_allclose(
        states[:, 3:], output(backbone, {"token_ids": ids}), atol=1e-5
    )
    nothing = {"token_ids": padded, "padding_mask": np.zeros_like(padded)}
    assert np.isfinite(output(backbone, nothing)).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_low_precision(policy):
    backbone = make_backbone(dtype=policy)
    inputs = {
        "token_ids": random_ids(2, 6),
        "segment_ids": random_ids(2, 6) % 2,
        "perm_ranks": np.argsort(random_ids(2, 6)),
        "mask_positions": np.array([[0, 4], [5, 2]]),
        "reversed_rows": np.array([0, 1]),
    }
    states = backbone(inputs)["sequence_output"]
    assert keras.backend.standardize_dtype(states.dtype) == "bfloat16"
    full = make_backbone()
    full.set_weights(backbone.get_weights())
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(states, "float32")),
        output(full, inputs),
        atol=0.2,
    )


def test_dropout_only_in_training():
    backbone = make_backbone(dropout=0.3)
    inputs = {"token_ids": random_ids(2, 6)}
    np.testing.assert_array_equal(output(backbone, inputs), output(backbone, inputs))
    first, second = (
        ops.convert_to_numpy(backbone(inputs, training=True)["sequence_output"])
        for _ in range(2)
    )
    assert np.abs(first - second).max() > 1e-2


@pytest.mark.slow
def test_unknown_shapes():
    """In a graph with neither batch nor length known."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("shapes are always known")
    import tensorflow as tf

    backbone = make_backbone()
    ids = tf.TensorSpec([None, None], tf.int32)
    names = ("token_ids", "segment_ids", "perm_ranks", "mask_positions")
    signature = {name: ids for name in names}
    signature["memory"] = [tf.TensorSpec([None, None, 8])] * 2
    graph = tf.function(
        lambda x: backbone(x, memory_length=4)["sequence_output"],
        input_signature=[signature],
    )
    for batch, length in ((2, 5), (1, 9)):
        rng = np.random.default_rng(length)
        inputs = {
            "token_ids": random_ids(batch, length),
            "segment_ids": random_ids(batch, length) % 3,
            "perm_ranks": rng.permuted(
                np.arange(length)[None].repeat(batch, 0), axis=1
            ),
            "mask_positions": rng.integers(0, length, (batch, 3)),
            "memory": [rng.normal(size=(batch, 4, 8)).astype("float32")] * 2,
        }
        tensors = {
            name: tf.constant(value, tf.int32)
            for name, value in inputs.items()
            if name != "memory"
        }
        tensors["memory"] = [tf.constant(m) for m in inputs["memory"]]
        np.testing.assert_allclose(
            graph(tensors).numpy(), output(backbone, inputs), atol=1e-5
        )


def test_round_trips(tmp_path):
    backbone = make_backbone(clamp_length=3, untie_biases=False, head_dim=6)
    inputs = {"token_ids": random_ids(2, 6)}
    expected = output(backbone, inputs)
    assert XLNetBackbone.from_config(backbone.get_config()).get_config() == (
        backbone.get_config()
    )
    backbone.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(output(other, inputs), expected, atol=1e-6)
    backbone.save_to_preset(str(tmp_path / "preset"))
    other = XLNetBackbone.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(output(other, inputs), expected, atol=1e-6)


def test_lora():
    backbone = make_backbone()
    backbone.enable_lora(2)
    per_layer = 2 * ((8 + 8) + (8 + 16))
    assert sum(np.prod(v.shape) for v in backbone.trainable_variables) == 2 * per_layer


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"hidden_dim": 9, "num_heads": 3}, "even.*hidden_dim=9"),
        ({"hidden_dim": 10, "num_heads": 4}, "divisible.*hidden_dim=10"),
        ({"attention_type": "both"}, "attention_type='both'"),
        ({"clamp_length": 0}, "clamp_length=0"),
    ],
)
def test_bad_arguments(kwargs, message):
    sizes = {"num_heads": 2, "hidden_dim": 8, **kwargs}
    with pytest.raises(ValueError, match=message):
        XLNetBackbone(10, 1, intermediate_dim=8, **sizes)


def test_bad_inputs():
    backbone = make_backbone()
    ids = random_ids(1, 4)
    with pytest.raises(ValueError, match="`mask_positions` needs `perm_ranks`"):
        backbone({"token_ids": ids, "mask_positions": ids[:, :1]})
    with pytest.raises(ValueError, match="num_layers=2 .*Received: 1"):
        backbone({"token_ids": ids, "memory": [np.zeros((1, 2, 8))]})
    with pytest.raises(ValueError, match="a row for each of the 1 of `token_ids`"):
        backbone({"token_ids": ids, "memory": [np.zeros((3, 2, 8))] * 2})
    with pytest.raises(ValueError, match="ids from .* to 30"):
        backbone({"token_ids": ids * 0 + 30})
    with pytest.raises(ValueError, match="no pooler"):
        backbone({"token_ids": ids}, return_pooled=True)


def test_the_stack_alone():
    stack = RelativeTransformerStack(2, 2, 4, 12)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    states, inputs, scores = stack(x)
    assert ops.shape(states) == (2, 5, 8) and len(inputs) == 3 and scores == []
    rebuilt = RelativeTransformerStack.from_config(stack.get_config())
    assert rebuilt.get_config() == stack.get_config()
