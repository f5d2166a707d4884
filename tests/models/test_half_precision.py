"""Each family in each precision: a step, a prediction, a text, rows of padding."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from tests.objective_worker import OBJECTIVES
from tests.tiny_families import (
    CAUSAL,
    FAMILIES,
    MASKS,
    backbone_of,
    batch_of,
    inputs_of,
    is_pair,
    task_of,
)

# How far outputs may be from those of float32, as a part of their largest.
PRECISIONS = {
    "bfloat16": 0.06,
    "mixed_bfloat16": 0.06,
    "float16": 0.01,
    "mixed_float16": 0.01,
}
# A single step of a tiny model takes less time than its graph does.
BACKEND = keras.backend.backend()
EAGER = {"run_eagerly": BACKEND != "jax", "jit_compile": BACKEND == "jax"}


def as_float32(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def states_of(family, backbone):
    name = "decoder_sequence_output" if is_pair(family) else "sequence_output"
    return as_float32(backbone(inputs_of(family))[name])


@functools.cache
def expected(family):
    return states_of(family, backbone_of(family, "float32"))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_states_are_within_what_the_precision_allows(family, precision):
    states = states_of(family, backbone_of(family, precision))
    assert np.isfinite(states).all()  # of padding as well
    right, scale = expected(family), np.abs(expected(family)[MASKS]).max()
    # Four times the table's: these weights are ten times those of training.
    room = 4 * PRECISIONS[precision] * scale
    assert np.abs(states - right)[MASKS].max() < room
    assert np.abs(states - right)[MASKS].mean() < room / 4


STEPS = FAMILIES


@pytest.mark.slow
@pytest.mark.parametrize("family", STEPS)
@pytest.mark.parametrize("precision", ["float32", *PRECISIONS])
def test_a_step_and_predictions_are_finite(family, precision):
    task = task_of(family, precision)
    # Enough for a bfloat16 to change, and not too much for a float16.
    rate = 1e-3 if precision == "float16" else 0.1
    warmup = {} if family == "T5" else {"warmup_steps": int(family == "Xlm")}
    task.compile(learning_rate=rate, total_steps=9, **warmup, **EAGER)
    x, y, weights = batch_of(family)
    before = [ops.convert_to_numpy(v) for v in task.trainable_variables]
    for _ in range(8):
        loss = float(task.train_on_batch(x, y, weights)[0])
        after = [ops.convert_to_numpy(v) for v in task.trainable_variables]
        moved = [np.any(a != b) for a, b in zip(before, after, strict=True)]
        if any(moved):
            break  # until then the scale of the loss was too large for float16
    assert np.isfinite(loss) and loss > 0
    assert all(np.isfinite(v.astype("float32")).all() for v in after)
    assert np.mean(moved) > 0.5
    outputs = keras.tree.flatten(task.predict_on_batch(x))
    assert all(np.isfinite(as_float32(o)).all() for o in outputs)


def in_precision(objective, precision):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        return OBJECTIVES[objective].make_model()
    finally:
        keras.config.set_dtype_policy(before)


@functools.cache
def values_of(objective):
    model = in_precision(objective, "float32")
    return [as_float32(v) for v in model.trainable_variables]


@functools.cache
def steps_of(objective, precision):
    """The losses of some steps of an objective, and whether the variables moved."""
    tiny, model = OBJECTIVES[objective], in_precision(objective, precision)
    # JAX draws other numbers in other precisions.
    pairs = zip(model.trainable_variables, values_of(objective), strict=True)
    for variable, value in pairs:
        variable.assign(value)
    batch = next(iter(tiny.stream(model)))
    x, y, weights = keras.utils.unpack_x_y_sample_weight(
        keras.tree.map_structure(np.asarray, batch, none_is_leaf=False)
    )
    outputs = keras.tree.flatten(model.predict_on_batch(x))
    assert all(np.isfinite(as_float32(o)).all() for o in outputs)
    model.compile(learning_rate=1e-3, total_steps=9, **EAGER)
    first = [as_float32(v) for v in model.trainable_variables]
    losses = [float(model.train_on_batch(x, y, weights)[0]) for _ in range(8)]
    last = [as_float32(v) for v in model.trainable_variables]
    assert all(np.isfinite(v).all() for v in last)
    return losses, np.mean([np.any(a != b) for a, b in zip(first, last, strict=True)])


# An index is of an encoder's weights, and those of pure precisions are others.
INDEXED = ("knowledge_augmented", "open_questions", "retrieval_augmented")
STEPS_OF_OBJECTIVES = [
    (objective, precision)
    for objective in OBJECTIVES
    for precision in PRECISIONS
    if precision.startswith("mixed") or objective not in INDEXED
]


@pytest.mark.slow("release")
@pytest.mark.parametrize(("objective", "precision"), STEPS_OF_OBJECTIVES)
def test_steps_of_an_objective_are_near_those_of_float32(objective, precision):
    losses, moved = steps_of(objective, precision)
    expected, _ = steps_of(objective, "float32")
    assert losses[0] == pytest.approx(expected[0], rel=PRECISIONS[precision])
    assert np.isfinite(losses).all() and moved > 0.5


WRITERS = ["Bart", *CAUSAL, "T5", "TransformerXL"]
PROMPTS = [[5, 6, 7], [8]]


@functools.cache
def written_in_float32(family):
    return task_of(family)


def float32_score(family, prompt, text):
    """The mean log-probability of a text's new tokens, and the largest logit."""
    task = written_in_float32(family)
    if is_pair(family):
        begin = [*task.backbone.record.start_token_ids]
        rows, text = {"encoder": prompt, "decoder": [*begin, *text]}, [*begin, *text]
        x = {f"{name}_token_ids": ops.array([ids]) for name, ids in rows.items()}
        x |= {f"{name}_padding_mask": ops.ones((1, len(rows[name]))) for name in rows}
    else:
        begin = prompt
        x = {"token_ids": ops.array([text]), "padding_mask": ops.ones((1, len(text)))}
    logits = task(x, training=False)
    logs = as_float32(ops.log_softmax(logits))[0]
    places = range(len(begin), len(text))
    found = [logs[place - 1, text[place]] for place in places]
    return np.mean(found), np.abs(as_float32(logits)).max()


@pytest.mark.slow
@pytest.mark.parametrize("family", WRITERS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_texts_have_the_scores_that_the_precision_allows(family, precision):
    settings = tasks.GenerationSettings(num_beams=2, return_scores=True)
    task = task_of(family, precision)
    texts, scores = task.generate(PROMPTS, 8, "beam", settings=settings)
    for prompt, text, score in zip(PROMPTS, texts, scores, strict=True):
        right, scale = float32_score(family, prompt, text)
        assert np.isfinite(score) and len(text) == (7 if is_pair(family) else 8)
        assert abs(score - right) < PRECISIONS[precision] * scale
