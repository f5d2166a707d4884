import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import DebertaV2Backbone, DistilBertBackbone
from keras_bertfam.tasks import (
    DISTILLATION_RECIPES,
    Distiller,
    MaskedLM,
    MaskedLMPreprocessor,
)
from keras_bertfam.tasks.masking.distiller import (
    cosine_distance,
    soft_target_loss,
)
from tests import tiny_distiller as tiny

WEIGHTS = {"ce_weight": 5.0, "mlm_weight": 2.0, "cosine_weight": 1.0, "mse_weight": 3.0}


def number(loss):
    return float(ops.convert_to_numpy(loss))


def arrays(outputs):
    return {name: ops.convert_to_numpy(value) for name, value in outputs.items()}


def only(name):
    return {other: float(other == name) for other in WEIGHTS}


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_golden():
    logits, teacher = np.array([[1.0, 0, -1]]), np.array([[2.0, 0, -2]])
    loss = float(soft_target_loss(logits, teacher, 2.0)[0])
    assert loss == pytest.approx(0.241076, abs=1e-6)
    received = float(cosine_distance(np.array([[1.0, 0]]), np.array([[1.0, 1]]))[0])
    assert received == pytest.approx(0.292893, abs=1e-6)
    assert float(cosine_distance(np.zeros((1, 2)), np.ones((1, 2)))[0]) == 1


@pytest.mark.parametrize("weights", [{}, only("ce_weight"), only("mlm_weight")])
def test_predictions_are_those_of_both_models(weights):
    """DeBERTa's decoder adds vectors of positions, which the head alone doesn't."""
    sizes = (30, 1, 2, 8, 12)
    teacher = MaskedLM(DebertaV2Backbone(*sizes), decoder_positions=16)
    student = MaskedLM(DebertaV2Backbone(*sizes), decoder_positions=16)
    for model in (teacher, student):
        table = model.position_queries.weights[0]
        table.assign(keras.random.normal(table.shape, seed=1))
    weights = {"cosine_weight": 0.0, **weights}
    distiller = Distiller(student, teacher, **weights)
    x = {"token_ids": np.arange(5, 15).reshape(2, 5).astype("int32")}
    x["mask_positions"] = np.array([[1, 3], [0, 4]], "int32")
    outputs = distiller(x)
    expected = {"mlm_logits": student(x)}
    if "teacher_logits" in outputs:
        everywhere = outputs["teacher_logits"].shape[1] == 5
        shown = {"token_ids": x["token_ids"]} if everywhere else x
        expected["teacher_logits"] = teacher(shown)
    for name, value in arrays(expected).items():
        np.testing.assert_allclose(arrays(outputs)[name], value, atol=1e-5)


def expected_loss(model, x, y, slots):
    """The fact sheet's loss in NumPy, from the logits and states of both models."""
    inputs = {k: v for k, v in x.items() if k != "mask_positions"}
    states, logits = [], []
    for one in (model.student, model.teacher):
        states.append(ops.convert_to_numpy(one.backbone(inputs)["sequence_output"]))
        logits.append(ops.convert_to_numpy(one(inputs)))
    real = x["padding_mask"].astype("float32")
    at = np.take_along_axis(logits[0], x["mask_positions"][..., None], 1)
    picked = np.take_along_axis(log_softmax(at), y[..., None], -1)[..., 0]
    total = model.mlm_weight * -(picked * slots).sum() / slots.sum()
    if model.soft_targets == "masked":
        logits = [
            np.take_along_axis(z, x["mask_positions"][..., None], 1) for z in logits
        ]
    weights = real if model.soft_targets == "all" else slots
    ours, theirs = (log_softmax(z / model.temperature) for z in logits)
    soft = (np.exp(theirs) * (theirs - ours)).sum(-1) * model.temperature**2
    square = ((logits[0] - logits[1]) ** 2).sum(-1)
    losses = model.ce_weight * soft + model.mse_weight * square
    total += (losses * weights).sum() / weights.sum()
    if model.cosine_weight:
        norms = [np.linalg.norm(h, axis=-1) for h in states]
        cosine = (states[0] * states[1]).sum(-1) / (norms[0] * norms[1])
        total += model.cosine_weight * ((1 - cosine) * real).sum() / real.sum()
    return total


@pytest.mark.slow
@pytest.mark.parametrize("soft_targets", ["all", "masked"])
@pytest.mark.parametrize("weights", [WEIGHTS, *[only(name) for name in WEIGHTS]])
def test_loss_is_that_of_the_fact_sheet(weights, soft_targets):
    model = tiny.make_model(temperature=1.5, soft_targets=soft_targets, **weights)
    x, y, slots = tiny.rows()
    outputs = model(x)
    loss = number(model.compute_loss(x, y, outputs, slots))
    assert loss == pytest.approx(expected_loss(model, x, y, slots), rel=1e-4)


@pytest.mark.slow
def test_logits_only_where_the_loss_reads_them():
    x, _, _ = tiny.rows()
    rows, length = x["token_ids"].shape
    slots = x["mask_positions"].shape[1]
    for soft_targets, cosine, count in (
        ("all", 1.0, length),
        ("masked", 1.0, slots),
        ("masked", 0.0, slots),
    ):
        model = tiny.make_model(soft_targets=soft_targets, cosine_weight=cosine)
        outputs = arrays(model(x))
        assert outputs["logits"].shape[:2] == (rows, count)
        assert outputs["teacher_logits"].shape[:2] == (rows, count)
        assert outputs["mlm_logits"].shape[:2] == (rows, slots)
        assert ("hidden" in outputs) == bool(cosine)
    model = tiny.make_model(**only("mlm_weight"))
    assert set(model(x)) == {"logits", "mlm_logits"}


@pytest.mark.slow
def test_fit_moves_the_student_only_and_towards_the_teacher():
    model = tiny.make_model(**only("ce_weight"))
    x, y, slots = tiny.rows()
    before = [ops.convert_to_numpy(w) for w in model.teacher.weights]
    settings = {"batch_size": 12, "verbose": 0}
    history = model.fit(x, y, sample_weight=slots, epochs=8, **settings).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert {"accuracy", "perplexity"} <= set(history)
    for weight, old in zip(model.teacher.weights, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(weight), old)
        assert weight.trainable
    trained = {id(v) for v in model.trainable_variables}
    assert trained == {id(v) for v in model.student.trainable_variables}
    settings["batch_size"] = 60
    evaluation = model.evaluate(x, y, sample_weight=slots, return_dict=True, **settings)
    assert evaluation["loss"] == pytest.approx(
        number(model.compute_loss(x, y, model(x), slots)), rel=1e-3
    )


@pytest.mark.slow
def test_the_teacher_runs_without_dropout():
    model = tiny.make_model(teacher_dropout=0.5, **only("cosine_weight"))
    assert model.teacher.backbone.dropout == 0.5
    x, _, _ = tiny.rows()
    one, two = (arrays(model(x, training=True)) for _ in range(2))
    np.testing.assert_array_equal(one["teacher_hidden"], two["teacher_hidden"])


@pytest.mark.slow
def test_a_narrower_student_without_the_cosine():
    model = tiny.make_model(student_dim=8, cosine_weight=0.0)
    x, y, slots = tiny.rows()
    history = model.fit(x, y, sample_weight=slots, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    with pytest.raises(ValueError, match="hidden_dim=16, or cosine_weight=0.*=8"):
        tiny.make_model(student_dim=8)


@pytest.mark.slow
def test_what_is_saved_is_the_student(tmp_path):
    model = tiny.make_model()
    x, _, _ = tiny.rows()
    expected = ops.convert_to_numpy(model.student(x))
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    model.save_to_preset(str(tmp_path / "preset"))
    other = tiny.make_model()
    other.load_weights(tmp_path / "model.weights.h5")
    loaded = [
        keras.saving.load_model(tmp_path / "model.keras"),
        MaskedLM.from_preset(str(tmp_path / "preset")),
        other.student,
    ]
    for student in loaded:
        assert isinstance(student, MaskedLM)
        assert student.count_params() == model.student.count_params()
        np.testing.assert_allclose(
            ops.convert_to_numpy(student(x)), expected, atol=1e-5
        )
    backbone = DistilBertBackbone.from_preset(str(tmp_path / "preset"))
    assert isinstance(backbone, DistilBertBackbone)
    with pytest.raises(ValueError, match="MaskedLM.from_preset"):
        Distiller.from_preset(str(tmp_path / "preset"))
    rebuilt = Distiller.from_config(model.get_config())
    assert rebuilt.get_config()["temperature"] == 2.0
    other = Distiller(model.student, model.teacher, model.student.preprocessor)
    again = Distiller.from_config(other.get_config())
    assert type(again.preprocessor) is type(other.preprocessor)
    earlier = model.get_config()
    del earlier["preprocessor"]
    assert Distiller.from_config(earlier).preprocessor is not None


@pytest.mark.slow
def test_recipes_and_published_optimizer():
    x, y, slots = tiny.rows()
    for weights in DISTILLATION_RECIPES.values():
        model = tiny.make_model(**weights)
        assert {name: getattr(model, name) for name in weights} == weights
        assert np.isfinite(number(model.compute_loss(x, y, model(x), slots)))
    model.compile(total_steps=100)
    optimizer = model.optimizer
    assert (optimizer.beta_2, optimizer.global_clipnorm) == (0.98, 5.0)
    schedule = optimizer._learning_rate
    assert (schedule.peak_learning_rate, schedule.warmup_steps) == (5e-4, 0.05)


@pytest.mark.slow
@pytest.mark.any_backend
def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = tiny.make_model()
    finally:
        keras.config.set_dtype_policy("float32")
    x, y, slots = tiny.rows()
    history = model.fit(x, y, sample_weight=slots, epochs=4, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.slow
def test_errors():
    with pytest.raises(ValueError, match="`soft_targets`.*'some'"):
        tiny.make_model(soft_targets="some")
    with pytest.raises(ValueError, match="`temperature`.*: 0"):
        tiny.make_model(temperature=0)
    model = tiny.make_model()
    with pytest.raises(ValueError, match="`student` must be another model"):
        Distiller(model.teacher, model.teacher)
    tokenizer = model.student.preprocessor.tokenizer
    swapped = tokenizer.get_vocabulary()
    swapped[7], swapped[8] = swapped[8], swapped[7]
    other = MaskedLMPreprocessor(BertTokenizer(swapped), sequence_length=16)
    stranger = MaskedLM(model.student.backbone, other)
    with pytest.raises(ValueError, match=f"id 7: '{swapped[7]}' and '{swapped[8]}'"):
        Distiller(stranger, model.teacher)
    with pytest.raises(ValueError, match="one must be positive"):
        tiny.make_model(**dict.fromkeys(WEIGHTS, 0.0))
    with pytest.raises(ValueError, match="computes its own loss"):
        tiny.make_model().compile(loss="mse")


@pytest.mark.slow
def test_a_student_of_the_teachers_own_layers(tmp_path):
    # As a user does it: no weight is changed between the two.
    model = tiny.make_model(moved=False)
    teacher, student = model.teacher, model.student
    before = [keras.ops.convert_to_numpy(v).copy() for v in teacher.weights]
    model.fit(tiny.stream(student), epochs=1, verbose=0)
    for one, value in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(one), value)
    # Training one leaves the other what it was, and usable.
    teacher.fit(tiny.stream(teacher), epochs=1, verbose=0)
    x, _, _ = tiny.rows()
    assert np.isfinite(keras.ops.convert_to_numpy(student(x))).all()


def test_a_copy_shares_nothing_with_the_original():
    teacher = tiny.make_model(moved=False).teacher.backbone
    student = DistilBertBackbone.from_teacher(teacher)
    for model in (student, teacher):
        buffers = {id(variable.value) for variable in model.weights}
        other = teacher if model is student else student
        assert not buffers & {id(variable.value) for variable in other.weights}


@pytest.mark.parametrize("copy_transform", [False, True])
def test_a_student_with_the_teachers_head(copy_transform):
    teacher = tiny.make_model().teacher
    student = MaskedLM.from_teacher(teacher, [0], copy_transform, dropout=0.3)
    assert student.backbone.num_layers == 1 and student.backbone.dropout == 0.3
    assert student.preprocessor is teacher.preprocessor
    ours, theirs = student.head, teacher.head
    assert np.array(ops.convert_to_numpy(theirs.bias)).any()
    for part, copied in (("bias", True), ("dense", copy_transform)):
        pair = [getattr(head, part) for head in (ours, theirs)]
        pair = [getattr(one, "kernel", one) for one in pair]
        one, other = map(ops.convert_to_numpy, pair)
        assert np.array_equal(one, other) is copied
        assert pair[0].value is not pair[1].value
