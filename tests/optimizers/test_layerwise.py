import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import optimizers
from keras_bertfam.optimizers import (
    LayerwiseAdamW,
    WarmupPolynomialDecay,
    fine_tuning_optimizer,
)
from keras_bertfam.optimizers.base import decays
from keras_bertfam.optimizers.layerwise import layerwise_scales
from keras_bertfam.optimizers.pretraining import resolve_schedule
from keras_bertfam.tasks import MaskedLM, fine_tuning_recipe
from tests.tiny_families import FAMILIES, backbone_of
from tests.tiny_fine_tuning import make_backbone


def array(x):
    return ops.convert_to_numpy(x)


def step(optimizer, values, gradient):
    variables = [keras.Variable(v, name=name) for name, v in values.items()]
    optimizer.build(variables)
    for _ in range(3):
        gradients = [ops.full(v.shape, gradient) for v in variables]
        optimizer.apply(gradients, variables)
    return [array(v) for v in variables]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("optimizer", optimizers.__all__)
def test_weights_of_sixteen_bits_are_trained(optimizer, graph, dtype):
    """In bfloat16 .999 is 1, and Adam's steps would be 0."""
    made = getattr(optimizers, optimizer)
    if not isinstance(made, type) or not issubclass(made, keras.optimizers.Optimizer):
        pytest.skip("a function, or a schedule")
    given = {"epsilon": 1e-4} if "epsilon" in inspect.signature(made).parameters else {}
    for settings in ({}, {"scale_gradients": True, "scales": {"a": 0.5}}):
        if settings and made is not LayerwiseAdamW:
            continue
        variable = keras.Variable(np.ones((4, 3)), name="a", dtype=dtype)
        variable.matrix_widths = (3,)  # which Muon asks for
        chosen = made(learning_rate=0.1, **given, **settings)
        if not graph:
            chosen.is_adam = False  # by Keras's steps, as in a graph
        chosen.build([variable])
        for _ in range(2):
            chosen.apply([ops.full((4, 3), 0.5, dtype=dtype)], [variable])
        moved = 1 - array(ops.cast(variable, "float32"))
        assert np.isfinite(moved).all() and (moved > 0.02).all(), moved


@pytest.mark.parametrize("family", FAMILIES)
def test_biases_are_not_decayed(family):
    decayed = [v.path for v in backbone_of(family).weights if decays(v)]
    biases = [path for path in decayed if "bias" in path.rpartition("/")[2]]
    # XLNet's code decays the vectors that it adds to queries.
    kept = [path for path in biases if family != "XLNet"]
    assert kept == [], kept


def test_updates_are_scaled_not_gradients():
    """Against a few lines of numpy; decay goes with the rate, and not to biases."""
    values = {"kernel": np.ones(3, "float32"), "bias": np.ones(2, "float32")}
    optimizer = LayerwiseAdamW(
        0.1, {"kernel": 0.25}, decoupled_weight_decay=0.5, epsilon=1e-8
    )
    kernel, bias = step(optimizer, values, 3.0)
    expected = 1.0
    for _ in range(3):
        # Adam's step for a constant gradient is the rate.
        expected -= 0.1 * 0.25 * (0.5 * expected + 1.0)
    np.testing.assert_allclose(kernel, expected, rtol=1e-5)
    np.testing.assert_allclose(bias, 1 - 3 * 0.1, rtol=1e-5)


def test_scaled_gradients_count_against_epsilon_only():
    """As XLNet's code has it: after clipping, and neither rate nor decay is scaled."""
    values = {"kernel": np.ones(3, "float32"), "bias": np.ones(2, "float32")}
    optimizer = LayerwiseAdamW(
        0.1,
        {"kernel": 0.75**11},
        decoupled_weight_decay=0.5,
        scale_gradients=True,
        epsilon=1e-6,
        clipnorm=1e-4,
    )
    kernel, bias = step(optimizer, values, 3.0)
    clipped = {"kernel": 0.75**11 * 1e-4 / np.sqrt(3), "bias": 1e-4 / np.sqrt(2)}
    expected = {"kernel": 1.0, "bias": 1.0}
    for t in (1, 2, 3):
        for name, gradient in clipped.items():
            mean, square = (1 - 0.9**t) * gradient, (1 - 0.999**t) * gradient**2
            rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            decay = 0.1 * 0.5 * expected[name] if name == "kernel" else 0.0
            expected[name] -= decay + rate * mean / (np.sqrt(square) + 1e-6)
    np.testing.assert_allclose(kernel, expected["kernel"], rtol=1e-5)
    np.testing.assert_allclose(bias, expected["bias"], rtol=1e-5)


def test_the_first_layer_of_xlnets_squad_recipe():
    """It moves at 81 % of the rate for elements of 1e-4: not at .75 ** 11, 4 %."""
    recipe = fine_tuning_recipe("xlnet", "squad")
    scale = recipe.layer_decay**11
    optimizer = LayerwiseAdamW(
        recipe.learning_rates[0],
        {"kernel": scale},
        scale_gradients=recipe.scale_gradients,
        epsilon=recipe.epsilon,
    )
    kernel = keras.Variable([0.0], name="kernel")
    optimizer.build([kernel])
    optimizer.iterations.assign(100_000)  # the moments are corrected no more
    for slot in optimizer.variables[2:]:
        power = 2 if "velocity" in slot.path else 1
        slot.assign(ops.full(slot.shape, (scale * 1e-4) ** power))
    optimizer.apply([ops.convert_to_tensor([1e-4])], [kernel])
    assert float(array(kernel)[0]) / -3e-5 == pytest.approx(0.81, abs=0.005)


def test_scale_1_is_keras_adamw():
    values = {"kernel": np.linspace(-1, 1, 5).astype("float32")}
    ours = step(LayerwiseAdamW(0.1, decoupled_weight_decay=0.2), values, 0.3)
    theirs = step(keras.optimizers.AdamW(0.1, weight_decay=0.2), values, 0.3)
    # PyTorch's kernel has 1 - beta_2 exactly; in float32 Keras's is off by 2e-5.
    exact = keras.backend.backend() != "torch"
    np.testing.assert_allclose(ours, theirs, atol=1e-6 if exact else 5e-6)


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert", "xlnet"])
def test_scales_by_depth(family):
    backbone = make_backbone(family)
    model = MaskedLM(backbone) if family != "xlnet" else None
    if model is None:
        from keras_bertfam.tasks import TextClassifier

        model = TextClassifier(backbone, num_classes=2)
    scales = layerwise_scales(model, 0.5, offset=1)
    (table,) = {scales[v.path] for v in backbone.token_embedding.trainable_variables}
    assert table == 0.5**3
    blocks = {scale for path, scale in scales.items() if "/encoder/" in path}
    assert blocks == ({0.5} if family == "albert" else {0.5, 0.25})
    inside = {v.path for v in backbone.variables}
    assert scales.keys() <= inside
    assert layerwise_scales(model, 0.5, scale_embeddings=False).keys() < scales.keys()


@pytest.mark.slow
def test_lower_layers_move_less():
    model = MaskedLM(make_backbone())
    optimizer = fine_tuning_optimizer(model, 1e-2, layer_decay=0.1, weight_decay=0.0)
    assert isinstance(optimizer.get_config()["learning_rate"], dict)
    resolve_schedule(optimizer, 10)
    model.compile(optimizer, weighted_metrics=None)
    before = {v.path: array(v) for v in model.trainable_variables}
    ids = np.array([[5, 6, 7, 8]] * 4, "int32")
    x = {"token_ids": ids, "mask_positions": ids * 0 + [0, 1, 2, 3]}
    model.fit(x, ids, sample_weight=ids * 0.0 + 1, epochs=4, batch_size=4, verbose=0)
    scales = optimizer.scales
    moved = {}
    for variable in model.trainable_variables:
        change = np.abs(array(variable) - before[variable.path]).max()
        scale = scales.get(variable.path, 1.0)
        moved[scale] = max(moved.get(scale, 0.0), change)
    assert sorted(moved) == pytest.approx([0.01, 0.1, 1.0])
    for scale, change in moved.items():
        assert 0.3 < change / (scale * moved[1.0]) < 3


def test_config_round_trip():
    schedule = WarmupPolynomialDecay(1e-3, 2, 10)
    optimizer = LayerwiseAdamW(
        schedule, {"kernel": 0.5}, decoupled_weight_decay=0.1, scale_gradients=True
    )
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(copy, LayerwiseAdamW)
    assert copy.scales == {"kernel": 0.5}
    assert copy.decoupled_weight_decay == 0.1 and copy.scale_gradients


@pytest.mark.parametrize("optimizer", ["AdamW", "BertAdamW", "Lamb", "StableAdamW"])
def test_second_moments_of_sixteen_bits_fall(optimizer):
    made = getattr(optimizers, optimizer)(learning_rate=1e-3)
    variables = [keras.Variable(np.ones(2), name="a", dtype="bfloat16")]
    made.build(variables)
    for gradient in [1.0] * 5 + [0.0] * 300:
        made.apply([ops.full((2,), gradient, dtype="bfloat16")], variables)
    [moment] = made._velocities
    assert moment.dtype == "float32"
    beta = made.beta_2
    expected = (1 - beta**5) * beta**300
    if optimizer == "StableAdamW":  # whose mean is corrected
        expected /= 1 - beta**305
    assert array(moment)[0] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("optimizer", ["AdamW", "LayerwiseAdamW"])
def test_weights_of_sixteen_bits_are_decayed(optimizer):
    name = "weight_decay" if optimizer == "AdamW" else "decoupled_weight_decay"
    moved = []
    for decay in (0.0, 0.25):
        made = getattr(optimizers, optimizer)(learning_rate=0.4 / 64, **{name: decay})
        variables = [keras.Variable([4.0], name="a", dtype="bfloat16")]
        made.build(variables)
        made.apply([ops.ones((1,), dtype="bfloat16")], variables)
        moved.append(float(array(ops.cast(variables[0], "float32"))[0]))
    # Below 4, bfloat16 has steps of 1/64. Adam's .4 steps and the decay's .4 make one.
    assert moved == [4, 4 - 1 / 64]


def test_states_of_earlier_versions_are_read():
    config = LayerwiseAdamW(0.1).get_config()
    made = LayerwiseAdamW.from_config({**config, "weight_decay": 0.1})
    assert made.decoupled_weight_decay == 0.1 and not made.weight_decay


def test_decay_is_given_by_its_name():
    with pytest.raises(ValueError, match="`weight_decay` must be given as"):
        LayerwiseAdamW(0.1, weight_decay=0.1)
    optimizer = LayerwiseAdamW(0.1, decoupled_weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["kernel"])
    assert step(optimizer, {"kernel": [1.0], "other": [1.0]}, 0.0)[0] == 1.0


def test_errors():
    with pytest.raises(ValueError, match=r"`decay` must be in \(0, 1\]"):
        layerwise_scales(MaskedLM(make_backbone()), 1.5)
    optimizer = LayerwiseAdamW(0.1, {"nothing": 0.5})
    with pytest.raises(ValueError, match="'nothing'"):
        optimizer.build([keras.Variable([1.0], name="kernel")])
