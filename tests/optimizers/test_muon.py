import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.optimizers import BertAdamW, Muon, pretraining_optimizer
from keras_bertfam.optimizers.muon import orthogonalized
from tests import tiny_families
from tests import tiny_masked_lm as tiny

RATE = 0.1


def array(x):
    return ops.convert_to_numpy(x)


def matrix(value, *widths):
    variable = keras.Variable(value, name="kernel")
    variable.matrix_widths = widths or (variable.shape[1],)
    return variable


def updated(optimizer, variables, gradients):
    optimizer.build(variables)
    for step in gradients:
        optimizer.apply([ops.array(each, "float32") for each in step], variables)
    return [array(each) for each in variables]


def by_singular_values(value):
    """Repeat the polynomial on the singular values alone."""
    left, found, right = np.linalg.svd(value, full_matrices=False)
    found = found / np.linalg.norm(found)
    for _ in range(5):
        found = 3.4445 * found - 4.7750 * found**3 + 2.0315 * found**5
    return left * found @ right


def test_singular_values_come_near_1():
    """Values of .6 and .8 after five steps, as worked out by hand."""
    new = array(orthogonalized(ops.array([[3.0, 0.0], [0.0, 4.0]])))
    np.testing.assert_allclose(new, [[0.722876, 0], [0, 1.119204]], atol=1e-5)
    values = np.geomspace(0.01, 1, 50)
    values = np.append(values, 1e-6)
    values = values / np.linalg.norm(values)
    new = np.diag(array(orthogonalized(ops.array(np.diag(values), "float32"))))
    assert new[values > 0.005].min() > 0.67
    assert new.max() < 1.21
    assert new[-1] < 0.01


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-4), ("bfloat16", 0.15)])
def test_against_a_decomposition(shape, dtype, error):
    value = np.random.default_rng(0).normal(size=shape)
    new = orthogonalized(ops.array(value, "float32"), dtype)
    assert keras.backend.standardize_dtype(new.dtype) == "float32"
    np.testing.assert_allclose(array(new), by_singular_values(value), atol=error)


@pytest.mark.parametrize("widths", [(), (3, 2, 2)])
def test_updates_against_numpy(widths):
    """Parts of a joined kernel are matrices of their own."""
    rng = np.random.default_rng(0)
    value, gradients = rng.normal(size=(4, 7)), rng.normal(size=(3, 4, 7))
    (new,) = updated(
        Muon(RATE, 0.5), [matrix(value, *widths)], [[each] for each in gradients]
    )
    mean, ends = 0.0, np.cumsum(widths)[:-1] if widths else []
    for gradient in gradients:
        mean = 0.95 * mean + 0.05 * gradient
        parts = np.split(0.95 * mean + 0.05 * gradient, ends, axis=1)
        step = [by_singular_values(x) * 0.2 * max(x.shape) ** 0.5 for x in parts]
        value = value * (1 - RATE * 0.5) - RATE * np.concatenate(step, axis=1)
    np.testing.assert_allclose(new, value, atol=1e-4)


def test_other_variables_have_adam():
    rng = np.random.default_rng(0)
    values = {"kernel": (4, 3), "embeddings": (4, 3), "bias": (3,), "gamma": (3,)}
    values = {name: rng.normal(size=shape) for name, shape in values.items()}
    gradients = [[rng.normal(size=v.shape) for v in values.values()] for _ in range(3)]

    def plain():
        return [keras.Variable(value, name=name) for name, value in values.items()]

    made = Muon(RATE, 0.5)
    new = updated(
        made,
        [*plain(), matrix(np.eye(3))],
        [[*step, np.eye(3)] for step in gradients],
    )
    adam = BertAdamW(RATE, 0.5, beta_2=0.95, epsilon=1e-8, bias_correction=True)
    for one, other in zip(new[:-1], updated(adam, plain(), gradients), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert len([v for v in made.variables if "velocity" in v.path]) == 4


@pytest.mark.parametrize("family", tiny_families.FAMILIES)
def test_all_kernels_of_blocks_are_matrices(family):
    """And tables, norms, biases and the vocabulary's logits aren't."""
    backbone = tiny_families.backbone_of(family)
    marked = [v for v in backbone.weights if getattr(v, "matrix_widths", None)]
    kernels = [
        v
        for v in backbone.weights
        if v.name == "kernel" and ("attention" in v.path or "feed_forward" in v.path)
    ]
    assert {v.path for v in marked} == {v.path for v in kernels}
    for variable in marked:
        assert sum(variable.matrix_widths) == variable.shape[1]
    joined = [v for v in marked if len(v.matrix_widths) > 1]
    assert all(
        "qkv" in v.path or "key_value" in v.path or "gated" in v.path for v in joined
    )
    assert joined


def test_keys_shared_by_heads_are_narrower_matrices():
    backbone = tiny_families.backbone_of("EuroBert")
    (kernel, *_) = [v for v in backbone.weights if "qkv/kernel" in v.path]
    assert kernel.matrix_widths == (16, 8, 8)


def test_layers_of_others_are_refused():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"Take `AdamW` for these, or `keras\."):
        Muon(RATE).build(model.trainable_variables)


def test_the_config_and_the_name():
    optimizer = Muon(RATE, 0.5, 0.9, 0.8, 0.99, 1e-7, global_clipnorm=2.0)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is Muon
    assert copy.get_config() == optimizer.get_config()
    made = pretraining_optimizer(total_steps=9, optimizer="muon", beta_2=0.95)
    assert type(made) is Muon
    assert (made.beta_2, made.weight_decay, made.global_clipnorm) == (0.95, 0.01, 1.0)
    with pytest.raises(ValueError, match=r"`momentum` must be in \[0, 1\)"):
        Muon(momentum=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["muon", "stable_adamw"])
def test_a_task_learns_and_goes_on_after_saving(name, tmp_path):
    model = tiny.make_model()
    model.compile(pretraining_optimizer(1e-2, 100, 4, optimizer=name))
    batches = [*tiny.stream(model).take(6)]
    first = model.test_on_batch(*batches[0], return_dict=True)["loss"]
    for batch in batches[:4]:
        model.train_on_batch(*batch)
    assert model.test_on_batch(*batches[0], return_dict=True)["loss"] < first
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for batch in batches[4:]:
        losses = [each.train_on_batch(*batch) for each in (model, loaded)]
        np.testing.assert_allclose(*losses, rtol=1e-4)
