import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis import prune_heads, pruning_curve
from keras_bertfam.analysis.heads.pruning import (
    add_head_gates,
    least_important,
    plot_pruning,
)
from keras_bertfam.models import (
    DecoderBackbone,
    DistilBertBackbone,
    EncoderBackbone,
    EncoderDecoderBackbone,
    XLNetBackbone,
    make_generator,
)
from keras_bertfam.tasks import TextClassifier, TextClassifierPreprocessor
from tests import tiny_families
from tests import tiny_fine_tuning as tiny

SIZES = {
    "vocabulary_size": 30,
    "num_layers": 3,
    "num_heads": 3,
    "hidden_dim": 12,
    "intermediate_dim": 16,
    "max_sequence_length": 10,
    "initializer_range": 0.3,
    "dropout": 0.0,
}
FAST, SLOW = (
    ("plain", "shared", "relative"),
    [pytest.mark.slow("release"), pytest.mark.any_backend],
)
LENGTH = "max_sequence_length"  # XLNet has none
INPUTS = {
    "token_ids": np.arange(14, dtype="int32").reshape(2, 7),
    "padding_mask": np.array([[1] * 7, [1] * 4 + [0] * 3], "int32"),
}
# One layer loses all its heads, one none.
HEADS = {0: [1], 2: (0, 1, 2)}
VARIANTS = {
    "plain": (EncoderBackbone, {"head_dim": 5, "pooler": True}, HEADS),
    "pre-norm": (EncoderBackbone, {"norm_first": True, "use_bias": False}, HEADS),
    "shared": (EncoderBackbone, {"share": "all"}, dict.fromkeys(range(3), [0, 2])),
    "groups": (
        EncoderBackbone,
        {"share": "attention", "num_groups": 2},
        {0: [0], 1: [0], 2: [1, 2]},
    ),
    "causal": (DecoderBackbone, {}, HEADS),
    "relative": (XLNetBackbone, {}, HEADS),
    "relative, shared biases": (XLNetBackbone, {"untie_biases": False}, HEADS),
}


def array(x):
    return ops.convert_to_numpy(x)


def mask_of(heads, shape=(3, 3)):
    mask = np.ones(shape, "float32")
    for layer, numbers in heads.items():
        mask[layer, list(numbers)] = 0
    return mask


def outputs_of(backbone, **kwargs):
    outputs = backbone(INPUTS, return_hidden_states=True, **kwargs)
    return np.stack([array(state) for state in outputs["hidden_states"]])


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", [v if v in FAST else pytest.param(v, marks=SLOW) for v in VARIANTS]
)
def test_pruned_model_is_the_masked_one(variant):
    keras.utils.set_random_seed(1)
    cls, arguments, heads = VARIANTS[variant]
    sizes = {k: v for k, v in SIZES.items() if cls is not XLNetBackbone or k != LENGTH}
    backbone = cls(**{**sizes, **arguments})
    for weight in backbone.weights:  # biases and norms, too
        weight.assign(keras.random.normal(weight.shape, stddev=0.3))
    pruned = prune_heads(backbone, heads)
    assert type(pruned) is cls and pruned.count_params() < backbone.count_params()
    expected = outputs_of(backbone, head_mask=mask_of(heads))
    assert not np.allclose(expected, outputs_of(backbone), atol=1e-2)
    np.testing.assert_allclose(outputs_of(pruned), expected, atol=1e-5)
    positions = np.array([[2], [3]])
    there = pruned(INPUTS, positions=positions, return_attention=True)
    np.testing.assert_allclose(
        array(there["sequence_output"])[:, 0], expected[-1, [0, 1], [2, 3]], atol=1e-5
    )
    left = [3 - len(heads.get(layer, ())) for layer in range(3)]
    assert [scores.shape[1] for scores in there["attentions"]] == left
    rows = np.ones((3, 2, 3), "float32")
    rows[:, 1] = mask_of(heads)
    by_row = outputs_of(backbone, head_mask=rows)
    np.testing.assert_allclose(by_row[:, 1], expected[:, 1], atol=1e-5)
    np.testing.assert_allclose(by_row[:, 0], outputs_of(backbone)[:, 0], atol=1e-5)
    if variant == "causal":
        tokens = {"token_ids": INPUTS["token_ids"]}
        whole = array(pruned(tokens)["sequence_output"])
        first, rest = (
            {"token_ids": part} for part in np.split(tokens["token_ids"], [4], axis=1)
        )
        begun = pruned(first, cache=pruned.empty_cache(2, 7))
        ended = pruned(rest, cache=begun["cache"], cache_index=4)
        np.testing.assert_allclose(
            array(ended["sequence_output"]), whole[:, 4:], atol=1e-5
        )


@pytest.mark.slow
def test_heads_keep_their_numbers():
    keras.utils.set_random_seed(1)
    backbone = EncoderBackbone(**SIZES)
    pruned = prune_heads(prune_heads(backbone, {1: [0]}), {1: [2], 0: np.array([1])})
    assert pruned.pruned_heads == ((1,), (0, 2), ())
    mask = mask_of({0: [1], 1: [0, 2]})
    expected = outputs_of(backbone, head_mask=mask)
    np.testing.assert_allclose(outputs_of(pruned), expected, atol=1e-5)
    mask[2, 1] = 0
    np.testing.assert_allclose(
        outputs_of(pruned, head_mask=mask),
        outputs_of(backbone, head_mask=mask),
        atol=1e-5,
    )
    assert prune_heads(backbone, {}).pruned_heads is None


def make_classifier(**kwargs):
    backbone = tiny.make_backbone(initializer_range=0.3, **kwargs)
    preprocessor = TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    return tiny.compiled(TextClassifier(backbone, 2, preprocessor), learning_rate=0.02)


@pytest.mark.slow
def test_heads_close_in_training_and_are_pruned(tmp_path):
    texts, labels = tiny.texts(16)
    model = make_classifier()
    x = model.preprocessor(texts)
    data = {name: np.asarray(x[name]) for name in x}, np.asarray(labels)
    before = array(model(data[0]))
    gated = add_head_gates(model, penalty=1.0, learning_rate_multiplier=90, seed=1)
    np.testing.assert_allclose(array(gated(data[0])), before, atol=1e-5)
    gates = gated.backbone.encoder.gates
    tiny.compiled(gated, learning_rate=0.02)
    gated.fit(*data, 16, epochs=12, verbose=0)
    assert sum(map(len, gates.closed_heads().values())) >= 2
    gates.log_alpha.assign(np.array([[-0.5, 0.5], [9, -9]]) / 90)
    closed = gates.closed_heads()
    values = gates.values()
    assert closed == {1: [1]} and 0 < values[0, 0] < values[0, 1] < 1
    pruned = prune_heads(gated, closed)
    assert pruned.backbone.encoder.gates is None
    np.testing.assert_allclose(array(pruned(data[0])), array(gated(data[0])), atol=1e-5)
    gated.save_weights(tmp_path / "gated.weights.h5")
    again = type(gated).from_config(gated.get_config())
    again.load_weights(tmp_path / "gated.weights.h5")
    np.testing.assert_array_equal(again.backbone.encoder.gates.values(), values)


@pytest.mark.slow
@pytest.mark.any_backend
def test_pruned_task_is_saved_and_trained(tmp_path):
    texts, labels = tiny.texts(8)
    whole = make_classifier(head_dim=64)
    whole.save_to_preset(tmp_path / "whole")
    pruned = prune_heads(whole, {0: [0, 1], 1: [1]})
    x = {name: np.asarray(rows) for name, rows in whole.preprocessor(texts).items()}
    expected = array(pruned(x))
    pruned.save_to_preset(tmp_path / "pruned")
    sizes = [
        sum(file.stat().st_size for file in (tmp_path / name).glob("*.weights.h5"))
        for name in ("whole", "pruned")
    ]
    # Queries, keys, values and outputs of 3 heads, and biases of all but outputs.
    gone = 4 * 3 * 64 * (4 * 16 + 3)
    assert sizes[0] - sizes[1] >= gone
    again = TextClassifier.from_preset(tmp_path / "pruned")
    assert again.backbone.pruned_heads == ((0, 1), (1,))
    np.testing.assert_allclose(array(again(x)), expected, atol=1e-5)
    tiny.compiled(again, run_eagerly=True).fit(texts, labels, verbose=0)
    assert not np.allclose(array(again(x)), expected, atol=1e-3)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("change", [lambda m: prune_heads(m, {0: [1]}), add_head_gates])
def test_the_original_stays_as_it_was(change):
    model = make_classifier(num_layers=2)
    expected = model.predict(["the cat"], verbose=0)
    changed = tiny.compiled(change(model))
    changed.predict(["the cat"], verbose=0)
    changed.fit(*tiny.texts(4), verbose=0)
    np.testing.assert_array_equal(model.predict(["the cat"], verbose=0), expected)


@pytest.mark.any_backend
def test_importance_of_another_model_is_refused():
    model = make_classifier(num_layers=1)
    with pytest.raises(
        ValueError, match=r"of shape \(1, 2\). Received: shape=\(3, 2\)"
    ):
        pruning_curve(model, tiny.texts(4), np.ones((3, 2)))
    with pytest.raises(ValueError, match="`importance` must be finite"):
        least_important([[np.nan, 1.0]], 0.5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_curve_is_of_masked_heads(tmp_path):
    model = make_classifier(num_layers=1, hidden_dim=8)
    data = tiny.texts(8)
    importance = np.array([[0.2, 0.1]])
    assert least_important(importance, 0.5) == {0: [1]}
    assert least_important(importance, 0.49) == {}
    curve = pruning_curve(model, data, importance, (0.0, 0.5, 1.0))
    pruned = tiny.compiled(prune_heads(model, {0: [1]}), run_eagerly=True)
    expected = pruned.evaluate(*data, verbose=0, return_dict=True)
    assert curve[0.5] == pytest.approx(expected["loss"], abs=1e-5)
    assert len({*curve.values()}) == 3
    figure = plot_pruning({"gradient": curve}, tmp_path / "curve.png", "loss")
    [line] = figure.axes[0].get_lines()
    assert line.get_xdata().tolist() == [0, 50, 100]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("arguments", "heads", "message"),
    [
        ({}, {3: [0]}, "`heads` must have lists of heads by layers, from 0 to 2"),
        ({}, {0: 1}, "`heads` must have lists"),
        ({}, [1], "`heads` must have lists.*Received: .1."),
        ({}, {0: [3]}, "`heads` must have ints from 0 to 2.*layer 0: .3."),
        ({}, {0: [-1]}, "`heads` must have ints"),
        ({"share": "all"}, {0: [1]}, "`pruned_heads` must be the same.* as 0 and 1"),
        (
            {"relative_buckets": 4},
            {0: [1]},
            "`pruned_heads` must be `None` with",
        ),
    ],
)
def test_heads_that_cannot_be_pruned_are_refused(arguments, heads, message):
    with pytest.raises(ValueError, match=message):
        prune_heads(EncoderBackbone(**{**SIZES, **arguments}), heads)


@pytest.mark.any_backend
def test_students_and_generators_of_pruned_models():
    pruned = prune_heads(EncoderBackbone(**SIZES), HEADS)
    student = DistilBertBackbone.from_teacher(pruned, layers=[1, 2])
    assert student.pruned_heads == ((), (0, 1, 2))
    with pytest.raises(ValueError, match="`layers` must be 1 layers of the teacher"):
        DistilBertBackbone.from_teacher(pruned, layers=[3])
    generator = make_generator(pruned, 0.5)
    assert generator.pruned_heads is None and generator.num_heads == 1


@pytest.mark.any_backend
@pytest.mark.parametrize("change", [prune_heads, add_head_gates])
def test_families_whose_heads_stay_are_refused_by_name(change):
    arguments = [{0: [1]}] if change is prune_heads else []
    with pytest.raises(ValueError, match="must be of a family with `.*TransformerXL"):
        change(tiny_families.backbone_of("TransformerXL"), *arguments)


@pytest.mark.any_backend
def test_models_that_cannot_be_pruned_are_refused(tmp_path):
    backbone = EncoderBackbone(**SIZES)
    with pytest.raises(ValueError, match="has no model of the family.*pruned_heads"):
        prune_heads(backbone, {0: [1]}).export_to_transformers(tmp_path / "theirs")
    gated = add_head_gates(backbone)
    with pytest.raises(ValueError, match="`model` must have no gates"):
        add_head_gates(gated)
    with pytest.raises(ValueError, match="has no model of the family.*head_gates"):
        gated.export_to_transformers(tmp_path / "theirs")
    with pytest.raises(ValueError, match="families except BART, T5 and ELMo"):
        prune_heads(EncoderDecoderBackbone(9, 1, 2, 8, 8), {0: [1]})
    with pytest.raises(ValueError, match="and `share` from 0 to 1"):
        least_important(np.ones((2, 2)), 1.5)
    with pytest.raises(ValueError, match="`curves` must have a curve"):
        plot_pruning({})
    backbone.enable_lora(2)
    with pytest.raises(ValueError, match="neither quantised nor have LoRA.*True"):
        prune_heads(backbone, {0: [1]})
    for wrong in (5, [[0]], [[0], [1], ["2"]], {0: [1]}):
        with pytest.raises(
            ValueError, match="`pruned_heads` must have a list for each"
        ):
            EncoderBackbone(**SIZES, pruned_heads=wrong)
