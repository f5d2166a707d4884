import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers import MaskedLMHead
from keras_bertfam.layers.heads.replaced_tokens import ReplacedTokenHead
from keras_bertfam.models import ElectraBackbone, make_generator
from keras_bertfam.tasks.masking.replaced_token_detection import VARIANTS
from tests import tiny_electra as tiny
from tests.gradients import loss_and_gradients


def number(loss):
    return float(ops.convert_to_numpy(loss))


def arrays(outputs):
    return {name: ops.convert_to_numpy(value) for name, value in outputs.items()}


def softplus(x):
    return np.log1p(np.exp(x))


def crossentropy(logits, ids):
    logits = logits - logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(logits, ids[..., None], -1)[..., 0]


def originals(x):
    ids = x["token_ids"].copy()
    for row, slot in zip(*np.nonzero(x["mask_weights"]), strict=True):
        ids[row, x["mask_positions"][row, slot]] = x["mask_ids"][row, slot]
    return ids


def rewards(x, outputs):
    """What the discriminator loses at masked positions, and what is expected."""
    samples = np.take_along_axis(outputs["token_ids"], x["mask_positions"], 1)
    judged = np.take_along_axis(outputs["discriminator"], x["mask_positions"], 1)
    replaced = (samples != x["mask_ids"]).astype("float32")
    reward = softplus(judged) - judged * replaced
    return samples, reward, softplus(-outputs["baseline"])


def adversarial_parts(x, outputs):
    """The generator's loss by REINFORCE, and that of its baseline."""
    samples, reward, expected = rewards(x, outputs)
    policy = (reward - expected) * crossentropy(outputs["generator"], samples)
    right, said = np.exp(-reward), np.exp(-expected)
    known = -right * np.log(said) - (1 - right) * np.log(1 - said)
    weights = x["mask_weights"]
    return [(part * weights).sum() / weights.sum() for part in (policy, known)]


def expected_loss(variant, x, outputs):
    """The loss of the fact sheet in NumPy."""
    weights = x["mask_weights"]
    generator = crossentropy(outputs["generator"], x["mask_ids"])
    loss = (generator * weights).sum() / weights.sum()
    if variant == "adversarial":
        loss = sum(adversarial_parts(x, outputs))
    target, logits = originals(x), outputs["discriminator"]
    replaced = (outputs["token_ids"] != target).astype("float32")
    everywhere = x["padding_mask"].astype("float32")
    if variant in ("electra", "adversarial"):
        losses, weights = softplus(logits) - logits * replaced, everywhere
    elif variant == "electra_15":
        labels = np.take_along_axis(replaced, x["mask_positions"], 1)
        losses = softplus(logits) - logits * labels
    elif variant == "replace_mlm":
        losses = crossentropy(logits, x["mask_ids"])
    else:
        losses, weights = crossentropy(logits, target), everywhere
    detects = variant == "adversarial" or variant.startswith("electra")
    factor = 50 if detects else 1
    return loss + factor * (losses * weights).sum() / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_is_that_of_the_fact_sheet(variant):
    model = tiny.make_model(variant=variant)
    for variable in model.trainable_variables:  # away from the zero of biases
        noise = keras.random.normal(variable.shape, seed=len(variable.path))
        variable.assign_add(0.2 * noise)
    x = tiny.batch()
    outputs = model(x)
    loss = number(model.compute_loss(x, y_pred=outputs))
    assert loss == pytest.approx(expected_loss(variant, x, arrays(outputs)), rel=1e-5)


def test_gradient_of_an_adversarial_generator():
    """By the bias of its head and by the baseline, in NumPy."""
    model = tiny.make_model(variant="adversarial")
    for variable in model.trainable_variables:
        noise = keras.random.normal(variable.shape, seed=len(variable.path))
        variable.assign_add(0.2 * noise)
    x = tiny.batch()
    usual = np.bincount(x["mask_ids"][x["mask_weights"] > 0], minlength=21).argmax()
    model.generator_head.bias.assign_add(3.0 * (np.arange(21) == usual))
    drawn = model.sampler.seed_generator.state
    state = ops.convert_to_numpy(drawn).copy()
    outputs = arrays(model(x, training=True))
    inputs = {name: x[name] for name in x if not name.startswith("mask_")}
    states = model._generator_states(inputs, x["mask_positions"], True)
    drawn.assign(state)  # the same samples again
    _, gradients = loss_and_gradients(model, x)
    paths = [variable.path for variable in model.trainable_variables]
    by_path = dict(zip(paths, gradients, strict=True))
    samples, reward, expected = rewards(x, outputs)
    assert 0 < (samples != x["mask_ids"])[x["mask_weights"] > 0].mean() < 1
    share = x["mask_weights"] / x["mask_weights"].sum()
    logits = outputs["generator"]
    likely = np.exp(logits - logits.max(-1, keepdims=True))
    likely /= likely.sum(-1, keepdims=True)
    drawn_ids = np.eye(likely.shape[-1])[samples]
    by_bias = np.einsum("bk,bkv->v", share * (reward - expected), likely - drawn_ids)
    found = by_path[model.generator_head.bias.path]
    np.testing.assert_allclose(found, by_bias, atol=1e-5)
    missing = np.exp(-expected) - np.exp(-reward)
    states = ops.convert_to_numpy(states)
    by_baseline = np.einsum("bk,bkh->h", share * missing, states)
    found = by_path[model.baseline.kernel.path][:, 0]
    np.testing.assert_allclose(found, by_baseline, atol=1e-5)
    assert np.abs(by_bias).max() > 1e-3 and np.abs(by_baseline).max() > 1e-3


@pytest.mark.any_backend
def test_an_adversary_must_be_trained_and_free():
    for wrong in ({"train_generator": False}, {"disallow_correct": True}):
        with pytest.raises(ValueError, match='`variant` "adversarial" must train'):
            tiny.make_model(variant="adversarial", **wrong)


def test_golden():
    """the chef cooked the meal, the generator says: the [the] chef [ate] the meal."""
    model = tiny.make_model()
    the, chef, cooked, meal, ate = 5, 6, 7, 8, 9
    x = {
        "token_ids": np.array([[4, chef, 4, the, meal]]),
        "mask_positions": np.array([[0, 2, 0]]),
        "mask_ids": np.array([[the, cooked, 0]]),
        "mask_weights": np.array([[1.0, 1.0, 0.0]], "float32"),
    }
    seen = np.array([[the, chef, ate, the, meal]])
    targets, weights = model._variant.targets(x, seen)
    assert ops.convert_to_numpy(targets["discriminator"]).tolist() == [[0, 0, 1, 0, 0]]
    assert ops.convert_to_numpy(weights["discriminator"]).tolist() == [[1] * 5]
    model.generator_head.bias.assign(-100 * (np.arange(21) != ate))
    received = ops.convert_to_numpy(model(x)["token_ids"])
    assert received.tolist() == [[ate, chef, ate, the, meal]]
    losses = model._variant.loss().call(
        ops.array([0.0, 0, 1, 0]), ops.array([0.0, 0, 2, -1])
    )
    losses = ops.convert_to_numpy(losses)
    np.testing.assert_allclose(losses, [0.693147, 0.693147, 0.126928, 0.313262], 1e-5)
    assert losses.mean() == pytest.approx(0.456621, abs=1e-6)


@pytest.mark.slow
def test_only_masked_positions_change_and_padding_has_no_loss():
    model = tiny.make_model()
    x = tiny.batch()
    outputs = arrays(model(x))
    changed = outputs["token_ids"] != originals(x)
    rows, columns = np.nonzero(changed)
    for row, column in zip(rows, columns, strict=True):
        assert column in x["mask_positions"][row][x["mask_weights"][row] > 0]
    assert changed.any() and (outputs["token_ids"][:, 0] == 2).all()
    longer = {**x, "token_ids": x["token_ids"].copy()}
    longer["token_ids"][~x["padding_mask"]] = 9
    outputs = model(x)
    assert number(model.compute_loss(longer, y_pred=outputs)) == pytest.approx(
        number(model.compute_loss(x, y_pred=outputs)), abs=1e-6
    )


@pytest.mark.slow
def test_the_generator_fills_in_masks():
    model = tiny.make_model()
    x = tiny.batch()
    expected = model(x)["generator"]
    asked = {n: v for n, v in x.items() if n not in ("mask_ids", "mask_weights")}
    np.testing.assert_allclose(
        ops.convert_to_numpy(model.masked_lm_logits(asked)),
        ops.convert_to_numpy(expected),
        atol=1e-5,
    )
    [[answer]] = [model.fill_mask("the [MASK]", top_k=1)]
    assert len(answer) == 1 and 0 < answer[0][1] < 1


def test_disallow_correct_replaces_every_masked_token():
    model = tiny.make_model(disallow_correct=True)
    x = tiny.batch()
    replaced = ops.convert_to_numpy(model(x)["token_ids"]) != originals(x)
    assert replaced.sum() == x["mask_weights"].sum()


def test_without_masks_the_discriminator_judges_the_text():
    for variant, shape in (("electra", (1, 3)), ("all_tokens_mlm", (1, 3, 21))):
        model = tiny.make_model(variant=variant)
        outputs = model({"token_ids": np.array([[2, 5, 3]])})
        assert set(outputs) == {"discriminator"}
        assert outputs["discriminator"].shape == shape


def zero_gradients(model, part):
    """Whether a part of the loss leaves each variable alone, by its path."""
    x = tiny.batch()
    variables = model.trainable_variables

    def loss():
        outputs = model(x, training=True)
        if part == "generator":
            return ops.sum(outputs["generator"] ** 2)
        return ops.sum(outputs["discriminator"] ** 2)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, [v.value for v in variables])
    elif backend == "torch":
        model.zero_grad()
        loss().backward()
        gradients = [v.value.grad for v in variables]
    else:
        import jax

        def stateless(values):
            pairs = zip(variables, values, strict=True)
            with keras.StatelessScope(list(pairs)):
                return loss()

        gradients = jax.grad(stateless)([v.value for v in variables])
    return {
        id(v): g is None or not np.any(ops.convert_to_numpy(g))
        for v, g in zip(variables, gradients, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("tie", ["none", "tokens", "embeddings"])
def test_no_gradient_crosses_the_samples(tie):
    model = tiny.make_model(tie=tie)
    table = model.backbone.token_embedding
    parts = {
        "generator": [*model.generator.weights, *model.generator_head.weights],
        "discriminator": [*model.backbone.weights, *model.head.weights],
    }
    ids = {name: {id(v) for v in weights} for name, weights in parts.items()}
    tied = ids["generator"] & ids["discriminator"]
    assert len(tied) == {"none": 0, "tokens": 1, "embeddings": 5}[tie]
    for part, others in (
        ("generator", "discriminator"),
        ("discriminator", "generator"),
    ):
        zero = zero_gradients(model, part)
        assert all(zero[v] for v in ids[others] - tied)
        own = [zero[v] for v in ids[part]]
        assert not any(own) or (part == "discriminator" and sum(own) <= 1)
    assert (id(table.embeddings) in tied) == (tie != "none")


@pytest.mark.slow
@pytest.mark.any_backend
def test_equal_models_can_share_everything():
    model = tiny.make_model(tie="all", generator_size=1)
    assert model.generator is model.backbone
    history = model.fit(tiny.batch(), batch_size=8, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    with pytest.raises(ValueError, match='tie="all".*generator_size=0.5'):
        tiny.make_model(tie="all")


@pytest.mark.parametrize(
    ("name", "size", "width", "count"),
    [
        ("small", 1 / 4, 64, 14_196_219),
        ("base", 1 / 3, 256, 119_386_427),
        ("large", 1 / 4, 256, 354_655_291),
    ],
)
def test_parameter_counts_of_the_whole_graph(name, size, width, count):
    name = f"electra_{name}_discriminator_uncased_en"

    class WholeGraph:
        """Counts each weight once, in the thread that `parameter_count` makes."""

        def __init__(self):
            backbone = ElectraBackbone(**ElectraBackbone.presets_table[name])
            generator = make_generator(backbone, size)
            heads = [MaskedLMHead(generator.token_embedding), ReplacedTokenHead()]
            for head, hidden_dim in zip(
                heads, (width, backbone.hidden_dim), strict=True
            ):
                head.build((None, None, hidden_dim))
            parts = (backbone, generator, *heads)
            self.weights = {id(w): w for part in parts for w in part.weights}
            assert (generator.hidden_dim, generator.num_heads) == (width, width // 64)
            assert generator.embedding_dim == backbone.embedding_dim

        def count_params(self):
            return sum(math.prod(w.shape) for w in self.weights.values())

    assert ElectraBackbone.parameter_count.__func__(WholeGraph) == count


@pytest.mark.slow
def test_metrics_are_those_of_the_predictions():
    model = tiny.make_model(temperature=1e-6)
    x = tiny.batch()
    outputs = arrays(model(x))
    received = model.evaluate(x, batch_size=8, verbose=0, return_dict=True)
    real = x["padding_mask"]
    replaced = (outputs["token_ids"] != originals(x))[real]
    said = outputs["discriminator"][real] > 0
    assert received["discriminator_accuracy"] == pytest.approx(
        np.mean(said == replaced)
    )
    hits = (said & replaced).sum()
    recall = received["discriminator_recall"]
    assert recall == pytest.approx(hits / replaced.sum(), abs=1e-6)
    precision = received["discriminator_precision"]
    assert precision == pytest.approx(hits / max(1, said.sum()), abs=1e-6)
    slots = x["mask_weights"] > 0
    correct = (outputs["generator"].argmax(-1) == x["mask_ids"])[slots]
    assert received["generator_accuracy"] == pytest.approx(correct.mean(), abs=1e-6)
    assert received["loss"] == pytest.approx(
        expected_loss("electra", x, outputs), rel=1e-5
    )


@pytest.mark.slow
def test_errors():
    with pytest.raises(ValueError, match="`variant`.*'bert'"):
        tiny.make_model(variant="bert")
    with pytest.raises(ValueError, match="`tie`.*'some'"):
        tiny.make_model(tie="some")
    with pytest.raises(ValueError, match="size must be in .* Received: 2"):
        tiny.make_model(generator_size=2)
    with pytest.raises(ValueError, match="tie='embeddings'"):
        tiny.make_model(generator=tiny.make_backbone())
    other = ElectraBackbone(9, 1, 1, 4, 8)
    with pytest.raises(ValueError, match="vocabulary_size=21.*Received.*=9"):
        tiny.make_model(generator=other, tie="none")
    model = tiny.make_model()
    with pytest.raises(ValueError, match="computes its own loss.*'mse'"):
        model.compile(loss="mse")
    with pytest.raises(ValueError, match="all of .*mask_positions"):
        model({"token_ids": np.array([[1]]), "mask_ids": np.array([[1]])})
