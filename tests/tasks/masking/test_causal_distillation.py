"""DistilGPT2's recipe: a language model from layers of another and its soft targets."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import tasks, tokenizers
from keras_bertfam.cli import building
from keras_bertfam.cli.runs import PretrainingRun
from tests.tiny_text_to_text import make

DOCUMENTS = ["a cat sat on a mat", "dogs ran", "a dog sat on a cat"] * 8
WEIGHTS = {"ce_weight": 5.0, "mlm_weight": 2.0, "cosine_weight": 1.0, "mse_weight": 0.5}


def array(x):
    return ops.convert_to_numpy(x)


@functools.cache
def make_preprocessor():
    documents = tf.data.Dataset.from_tensor_slices(DOCUMENTS)
    tokenizer = tokenizers.train_byte_pair(documents, 30, family="gpt")
    return tasks.CausalLMPreprocessor(tokenizer, 8)


def make_teacher(preprocessor=None):
    size = preprocessor.tokenizer.vocabulary_size() if preprocessor else 30
    backbone = make("GPT", num_layers=4, vocabulary_size=size)
    return tasks.CausalLM(backbone, preprocessor)


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@functools.cache
def rows():
    """Texts in rows that they share, as arrays: inputs, next tokens, weights."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 20, (3, 7)).astype("int32")
    inside = np.arange(7) < np.array([[7], [5], [6]])
    sequences = np.where(np.arange(7) < 3, 1, 2) * inside
    x = {"token_ids": ids[:, :-1], "padding_mask": inside[:, :-1]}
    x["sequence_ids"] = sequences[:, :-1].astype("int32")
    weights = inside[:, 1:] & (sequences[:, 1:] == sequences[:, :-1])
    return x, ids[:, 1:], weights.astype("float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    "soft_targets",
    [
        "all",
        pytest.param(
            "masked", marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
    ],
)
def test_loss_against_numpy(soft_targets):
    teacher = make_teacher()
    student = tasks.CausalLM.from_teacher(teacher)
    model = tasks.Distiller(student, teacher, soft_targets=soft_targets, **WEIGHTS)
    x, y, weights = rows()
    logits = [array(task(x)) for task in (student, teacher)]
    states = [array(task.backbone(x)["sequence_output"]) for task in (student, teacher)]
    real = x["padding_mask"].astype("float32")
    picked = np.take_along_axis(log_softmax(logits[0]), y[..., None], -1)[..., 0]
    expected = 2 * -(picked * weights).sum() / weights.sum()
    ours, theirs = (log_softmax(z / 2) for z in logits)
    soft = 4 * (np.exp(theirs) * (theirs - ours)).sum(-1)
    each = 5 * soft + 0.5 * ((logits[0] - logits[1]) ** 2).sum(-1)
    of = real if soft_targets == "all" else weights
    expected += (each * of).sum() / of.sum()
    norms = [np.linalg.norm(h, axis=-1) for h in states]
    cosine = (states[0] * states[1]).sum(-1) / (norms[0] * norms[1])
    expected += ((1 - cosine) * real).sum() / real.sum()
    loss = model.evaluate(x, y, sample_weight=weights, verbose=0)[0]
    assert loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_a_student_of_every_second_layer_learns(tmp_path):
    teacher = make_teacher(make_preprocessor())
    student = tasks.CausalLM.from_teacher(teacher, dropout=0.1)
    assert type(student.backbone) is type(teacher.backbone)
    assert (student.backbone.num_layers, student.backbone.dropout) == (2, 0.1)
    for ours, theirs in enumerate((0, 3)):
        pairs = zip(
            student.backbone.encoder.block(ours),
            teacher.backbone.encoder.block(theirs),
            strict=True,
        )
        for first, second in pairs:
            for a, b in zip(first.weights, second.weights, strict=True):
                assert a is not b
                np.testing.assert_array_equal(array(a), array(b))
    model = tasks.Distiller(student, teacher)
    assert model.preprocessor is student.preprocessor
    assert (model.ce_weight, model.mlm_weight, model.cosine_weight) == (5, 2, 1)
    model.compile(learning_rate=1e-2, jit_compile=keras.backend.backend() == "jax")
    data = model.preprocessor.dataset(
        tf.data.Dataset.from_tensor_slices(DOCUMENTS), batch_size=8
    )
    before = [array(w).copy() for w in teacher.weights]
    losses = model.fit(data, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    for kept, weight in zip(before, teacher.weights, strict=True):
        np.testing.assert_array_equal(kept, array(weight))
    folder = str(tmp_path / "student")
    model.save_to_preset(folder)
    again = tasks.CausalLM.from_preset(folder)
    x, _, _ = rows()
    np.testing.assert_allclose(array(again(x)), array(student(x)), atol=1e-6)


def test_what_does_not_fit_is_refused():
    teacher = make_teacher()
    masked = tasks.MaskedLM(make("Bert"))
    for pair in ((masked, teacher), (teacher, masked)):
        with pytest.raises(ValueError, match="`student` and `teacher` must both be"):
            tasks.Distiller(*pair)
    with pytest.raises(ValueError, match="`layers` must be 1 layers of the teacher"):
        tasks.CausalLM.from_teacher(teacher, [4])


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_command_distils_what_the_teacher_is(tmp_path):
    make_teacher(make_preprocessor()).save_to_preset(str(tmp_path))
    run = PretrainingRun(
        teacher=str(tmp_path), objective="distillation", sequence_length=6
    )
    model = building.build(run, None)
    assert type(model.student) is type(model.teacher) is tasks.CausalLM
    assert model.student.backbone.num_layers == 2
    assert type(model.preprocessor) is tasks.CausalLMPreprocessor
    assert model.preprocessor.sequence_length == 6
    with pytest.raises(ValueError, match="`strategy` must be left out with a teacher"):
        building.build(run.changed(strategy="tokens"), None)
