import math

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers import MaskedLMHead, ReplacedTokenHead
from keras_bertfam.models import BertBackbone, ElectraBackbone, make_generator
from keras_bertfam.tasks import MaskedLM, ReplacedTokenDetection
from tests import tiny_electra as tiny

VARIANTS = ("electra", "electra_15", "replace_mlm", "all_tokens_mlm")


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


def expected_loss(variant, x, outputs):
    """The loss of the fact sheet in NumPy."""
    weights = x["mask_weights"]
    generator = crossentropy(outputs["generator"], x["mask_ids"])
    loss = (generator * weights).sum() / weights.sum()
    target, logits = originals(x), outputs["discriminator"]
    replaced = (outputs["token_ids"] != target).astype("float32")
    everywhere = x["padding_mask"].astype("float32")
    if variant == "electra":
        losses, weights = softplus(logits) - logits * replaced, everywhere
    elif variant == "electra_15":
        labels = np.take_along_axis(replaced, x["mask_positions"], 1)
        losses = softplus(logits) - logits * labels
    elif variant == "replace_mlm":
        losses = crossentropy(logits, x["mask_ids"])
    else:
        losses, weights = crossentropy(logits, target), everywhere
    factor = 50 if variant.startswith("electra") else 1
    return loss + factor * (losses * weights).sum() / weights.sum()


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
    losses = model._variant.losses(
        ops.array([0.0, 0, 1, 0]), ops.array([0.0, 0, 2, -1])
    )
    losses = ops.convert_to_numpy(losses)
    np.testing.assert_allclose(losses, [0.693147, 0.693147, 0.126928, 0.313262], 1e-5)
    assert losses.mean() == pytest.approx(0.456621, abs=1e-6)


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
def test_any_trunk_with_a_pooler(tmp_path):
    backbone = BertBackbone(21, 1, 2, 16, 24, max_sequence_length=16)
    model = tiny.make_model(backbone, generator_size=0.3)
    assert model.generator.hidden_dim == 5 and model.generator.pooler is None
    before = ops.convert_to_numpy(backbone.pooler.weights[0])
    model.fit(tiny.batch(), batch_size=8, verbose=0)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(backbone.pooler.weights[0]), before
    )


@pytest.mark.parametrize(
    "variant",
    [
        "electra",
        *(pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS if v != "electra"),
    ],
)
def test_fit_reports_and_learns(variant):
    model = tiny.make_model(variant=variant)
    rows = tiny.rows()
    if variant == "electra":  # once as users do it
        data = tiny.stream(model)
        held_out = tiny.stream(model, training=False)
        history = model.fit(data, validation_data=held_out, verbose=0).history
        assert {"discriminator_auc", "val_discriminator_auc"} <= set(history)
        tiny.compiled(model)  # a new schedule
    settings = {"batch_size": 12, "verbose": 0}
    history = model.fit(rows, epochs=8, **settings).history
    evaluation = model.evaluate(rows, return_dict=True, **settings)
    names = {"generator_accuracy", "generator_perplexity", "discriminator_accuracy"}
    if variant.startswith("electra"):
        names |= {f"discriminator_{n}" for n in ("loss", "precision", "recall", "auc")}
    assert names <= set(history) and names <= set(evaluation)
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    assert (
        history["generator_perplexity"][-1] < 0.9 * history["generator_perplexity"][0]
    )


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


@pytest.mark.slow
def test_two_stages():
    """Train the generator, copy it into the discriminator, train only that."""
    preprocessor = tiny.make_preprocessor()
    generator = tiny.compiled(MaskedLM(tiny.make_backbone()))
    rows = tiny.rows()
    names = ("token_ids", "padding_mask", "mask_positions")
    inputs = {name: rows[name] for name in names}
    settings = {"batch_size": 12, "verbose": 0}
    weights = rows["mask_weights"]
    generator.fit(inputs, rows["mask_ids"], sample_weight=weights, **settings)
    discriminator = ElectraBackbone.from_config(generator.backbone.get_config())
    discriminator.set_weights(generator.backbone.get_weights())
    model = ReplacedTokenDetection(
        discriminator,
        preprocessor,
        generator=generator,
        tie="none",
        train_generator=False,
    )
    tiny.compiled(model)
    frozen = [*model.generator.weights, *model.generator_head.weights]
    before = [ops.convert_to_numpy(w) for w in (*frozen, *discriminator.weights)]
    losses = model.fit(rows, **settings).history
    after = [ops.convert_to_numpy(w) for w in (*frozen, *discriminator.weights)]
    same = [np.array_equal(one, two) for one, two in zip(before, after, strict=True)]
    assert all(same[: len(frozen)]) and not any(same[len(frozen) :])
    assert losses["loss"][-1] == pytest.approx(
        50 * losses["discriminator_loss"][-1], rel=0.02
    )
    assert all(w.trainable for w in frozen)


def same_outputs(model, other):
    """Compare two models by what sampling has no part in, and the loss."""
    x = tiny.batch()
    one, two = arrays(model(x)), arrays(other(x))
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-5)


@pytest.mark.parametrize("tie", ["embeddings", "tokens", "none", "all"])
def test_round_trips(tie, tmp_path):
    size = 1 if tie == "all" else 0.5
    model = tiny.make_model(tie=tie, generator_size=size, temperature=1e-6)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    model.generator.save_to_preset(str(tmp_path / "generator"))
    others = [
        keras.saving.load_model(tmp_path / "model.keras"),
        ReplacedTokenDetection.from_preset(str(tmp_path / "preset")),
    ]
    for other in others:
        assert other.count_params() == model.count_params()
        same_outputs(model, other)
        assert other.get_config()["tie"] == tie
    # The tie is alive in what was loaded.
    for other in others:
        tied = other.generator.token_embedding is other.backbone.token_embedding
        assert tied == (tie != "none")
    x = {"token_ids": tiny.batch()["token_ids"]}
    for folder, backbone in (
        ("preset", model.discriminator),
        ("generator", model.generator),
    ):
        loaded = ElectraBackbone.from_preset(str(tmp_path / folder))
        np.testing.assert_allclose(
            ops.convert_to_numpy(loaded(x)["sequence_output"]),
            ops.convert_to_numpy(backbone(x)["sequence_output"]),
            atol=1e-5,
        )


def test_a_given_generator_is_saved_with_the_task(tmp_path):
    generator = tiny.make_backbone(hidden_dim=6, num_layers=2)
    model = tiny.make_model(generator=generator, tie="none", temperature=1e-6)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    same_outputs(model, keras.saving.load_model(tmp_path / "model.keras"))
    same_outputs(model, ReplacedTokenDetection.from_preset(str(tmp_path / "preset")))


def saved_size(model, path):
    model.save_weights(path)
    sizes = []
    with h5py.File(path) as file:
        file.visititems(lambda _, item: sizes.append(getattr(item, "size", 0)))
    return sum(sizes)


def test_shared_weights_are_saved_once(tmp_path):
    tied, untied = tiny.make_model(), tiny.make_model(tie="none")
    path = tmp_path / "model.weights.h5"
    difference = untied.count_params() - tied.count_params()
    assert difference == 21 * 8 + 16 * 8 + 2 * 8 + 2 * 8
    assert saved_size(untied, path) - saved_size(tied, path) == difference


@pytest.mark.slow
def test_mixed_precision():
    backbone = tiny.make_backbone(dtype="mixed_bfloat16")
    model = tiny.make_model(backbone)
    history = model.fit(tiny.rows(), epochs=5, batch_size=12, verbose=0).history
    losses = history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    outputs = model(tiny.batch())
    assert outputs["generator"].dtype == outputs["discriminator"].dtype


def test_preprocessor_has_the_settings_of_the_released_code():
    lengths = {(128, 0.15): 19, (512, 0.15): 79, (512, 0.25): 130}
    for (length, rate), slots in lengths.items():
        preprocessor = tiny.make_preprocessor(
            sequence_length=length, mask_selection_rate=rate
        )
        assert preprocessor.mask_selection_length == slots
    x = tiny.batch()
    masked = np.take_along_axis(x["token_ids"], x["mask_positions"], 1)
    assert (masked[x["mask_weights"] > 0] == 4).all()
    for row, weights in zip(x["mask_positions"], x["mask_weights"], strict=True):
        assert len({*row[weights > 0]}) == weights.sum()
    preprocessor = tiny.make_preprocessor(mask_token_rate=0.85)
    x = preprocessor(["the cat sat on the mat and ran by a red tree"] * 400)
    x = {name: np.asarray(value) for name, value in x.items()}
    masked = np.take_along_axis(x["token_ids"], x["mask_positions"], 1)
    kept = (masked == x["mask_ids"])[x["mask_weights"] > 0]
    assert kept.mean() == pytest.approx(0.15, abs=0.04)
