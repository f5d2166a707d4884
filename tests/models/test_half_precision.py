"""Each family in each precision: a step, a prediction, a text, rows of padding."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from tests.tiny_families import (
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


# JAX compiles 20 s for a step: one family of each kind there.
STEPS = FAMILIES if BACKEND != "jax" else ["Bert", "GPT2", "T5"]


@pytest.mark.slow
@pytest.mark.parametrize("family", STEPS)
@pytest.mark.parametrize("precision", ["float32", *PRECISIONS])
def test_a_step_and_predictions_are_finite(family, precision):
    task = task_of(family, precision)
    # Enough for a bfloat16 to change, and not too much for a float16.
    rate = 1e-3 if precision == "float16" else 0.1
    warmup = {} if family == "T5" else {"warmup_steps": 0}
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
