"""Each family in each precision: a step, a prediction, a text, rows of padding."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
SIZES |= {"vocabulary_size": 50, "dropout": 0.0}
ENCODERS = {
    "Albert": {"embedding_dim": 8},
    "Bert": {},
    "DistilBert": {},
    "Electra": {"embedding_dim": 8},
    "Ernie": {},
    "Longformer": {"attention_window": 4},
    "ModernBert": {},
    "Roberta": {},
    "SpanBert": {},
}
FAMILIES = [*ENCODERS, "Bart", "GPT", "GPT2", "T5", "TransformerXL", "XLNet"]
# How far outputs may be from those of float32, as a part of their largest.
PRECISIONS = {
    "bfloat16": 0.06,
    "mixed_bfloat16": 0.06,
    "float16": 0.01,
    "mixed_float16": 0.01,
}
MASKS = np.array([[1] * 8, [1] * 5 + [0] * 3, [0, 0, 1, 1, 1, 1, 0, 0], [0] * 8], bool)
IDS = np.where(MASKS, np.random.default_rng(0).integers(3, 50, (4, 8)), 1)
ROWS = {"token_ids": IDS.astype("int32"), "padding_mask": MASKS}
# A single step of a tiny model takes less time than its graph does.
BACKEND = keras.backend.backend()
EAGER = {"run_eagerly": BACKEND != "jax", "jit_compile": BACKEND == "jax"}


def backbone_of(family, dtype):
    """With the weights of each dtype, rounded."""
    sizes = {**SIZES, **ENCODERS.get(family, {}), "dtype": dtype}
    if family not in ("T5", "TransformerXL", "XLNet"):
        sizes["max_sequence_length"] = 12
    if family == "T5":
        # Beyond the range of float16, as the states of T5's checkpoints are.
        sizes["initializer_range"] = 1.0
    backbone = getattr(models, f"{family}Backbone")(**sizes)
    values = np.random.default_rng(1)
    for variable in backbone.weights:
        name = variable.path.split("/")
        if variable.dtype.startswith(("float", "bfloat")):
            value = values.normal(0, 0.3, variable.shape)
            if name[-1] in ("gamma", "scale"):
                value = value + 1
            if family == "T5" and name[-2] == "output" and "feed_forward" in name:
                value = value * 1e4
            variable.assign(value)
    return backbone


def is_pair(family):
    return family in ("Bart", "T5")


def inputs_of(family):
    if not is_pair(family):
        return ROWS
    return {f"{s}_{n}": x for s in ("encoder", "decoder") for n, x in ROWS.items()}


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


def task_of(family, dtype):
    backbone = backbone_of(family, dtype)
    if is_pair(family):
        return tasks.TextToText(backbone)
    if family in ("GPT", "GPT2"):
        return tasks.CausalLM(backbone)
    if family == "TransformerXL":
        return tasks.RecurrentLM(backbone, memory_length=4, batch_size=4)
    if family == "XLNet":
        return tasks.TextClassifier(backbone, 3, dropout=0.0)
    return tasks.MaskedLM(backbone)


def batch_of(family):
    x = dict(inputs_of(family))
    if family == "XLNet":
        return x, np.array([0, 1, 2, 1]), np.array([1.0, 1.0, 1.0, 0.0], "float32")
    if family not in ENCODERS:
        return x, ROWS["token_ids"], MASKS.astype("float32")
    x["mask_positions"] = np.array([[1, 2], [2, 3], [3, 4], [0, 0]], "int32")
    y = np.array([[5, 6], [7, 8], [9, 10], [0, 0]], "int32")
    return x, y, np.array([[1, 1], [1, 1], [1, 0], [0, 0]], "float32")


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
