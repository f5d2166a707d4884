"""Training steps, lowered for devices that aren't here, or as XLA is given them."""

import functools

import keras
import numpy as np
import pytest

from keras_bertfam.layers.attention.jax_kernels import lowered_for
from tests import tiny_families
from tests.marks import in_ci

on_jax = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="only JAX lowers for other devices"
)
# Not 128, which is the width of what a TPU's kernel says of each query.
ROWS, LENGTH = 2, 256
KERNELS = {"cuda": "__cudnn$fmha", "tpu": "tpu_custom_call"}
PLATFORMS = {"cuda": "gpu", "tpu": "tpu"}
SCORES = f"tensor<{ROWS}x2x{LENGTH}x{LENGTH}x"
# Families without a kernel: their scores have terms of relative positions.
RELATIVE = ("TransformerXL", "XLNet")
# Those whose step has a tensor of all pairs of tokens nevertheless: cuDNN is given T5's
# bias as one, TPUs have no kernel for it, nor for rows packed on both sides of BART.
ALL_PAIRS = {("cuda", "T5"), ("tpu", "T5"), ("tpu", "Bart")}
# Windows that are shorter than the rows.
SETTINGS = {"ModernBert": {"attention_window": (0, 8)}}


@functools.cache
def task_of(family, attention_dropout=0.0):
    settings = {} if family in ("TransformerXL", "XLNet") else {"head_dim": 16}
    if family not in ("T5", "TransformerXL", "XLNet"):
        settings["max_sequence_length"] = LENGTH
    settings["attention_dropout"] = attention_dropout
    settings |= SETTINGS.get(family, {})
    task = tiny_families.task_of(family, "mixed_bfloat16", rows=ROWS, **settings)
    task.compile(total_steps=10, weighted_metrics=None, jit_compile=True)
    return task


def batch_of(family, packed):
    ones = np.ones((ROWS, LENGTH), "int32")
    x = {"token_ids": ones, "padding_mask": ones.astype(bool)}
    if packed:
        x["sequence_ids"] = ones
    if tiny_families.is_pair(family):
        x = {f"{side}_{n}": v for side in ("encoder", "decoder") for n, v in x.items()}
    if family == "XLNet":
        return x, np.ones(ROWS, "int32"), np.ones(ROWS, "float32")
    if family not in tiny_families.ENCODERS:
        return x, ones, ones.astype("float32")
    x["mask_positions"] = ones[:, :4]
    return x, ones[:, :4], ones[:, :4].astype("float32")


def lowered_step(platform, family, packed, attention_dropout=0.0):
    """The text of a training step, lowered for a platform."""
    import jax

    task, batch = task_of(family, attention_dropout), batch_of(family, packed)
    task.optimizer.build(task.trainable_variables)
    groups = (
        task.trainable_variables,
        task.non_trainable_variables,
        task.optimizer.variables,
        task.metrics_variables,
    )
    state = tuple([v.value for v in group] for group in groups)
    with lowered_for(PLATFORMS[platform]):
        exported = jax.export.export(
            jax.jit(task.train_step),
            platforms=[platform],
            # Another version's kernel may be another one; nothing is kept here.
            disabled_checks=[
                jax.export.DisabledSafetyCheck.custom_call(name)
                for name in (
                    "tpu_custom_call",
                    "__cudnn$fmhaScaleBiasSoftmax",
                    "__cudnn$fmhaScaleBiasSoftmaxBackward",
                )
            ],
        )(state, batch)
    return exported.mlir_module()


@on_jax
@pytest.mark.parametrize("family", in_ci(tiny_families.FAMILIES, "Bert", "T5"))
@pytest.mark.parametrize("platform", KERNELS)
def test_a_training_step_is_lowered(platform, family, monkeypatch):
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    # Read off a device, which isn't here.
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91000)
    for packed in (False, True):
        if packed and family in RELATIVE:
            continue  # their rows aren't packed
        text = lowered_step(platform, family, packed)
        if family in RELATIVE:
            assert KERNELS[platform] not in text
        elif (platform, family) != ("tpu", "T5"):
            assert text.count(KERNELS[platform]) >= 2, packed  # and its gradient
        if family not in RELATIVE and (platform, family) not in ALL_PAIRS:
            assert SCORES not in text, packed
        assert "xf64>" not in text, packed
        assert "callback" not in text, packed


@on_jax
def test_a_training_step_with_dropout_is_lowered():
    for platform, kernel in KERNELS.items():
        text = lowered_step(platform, "Bert", True, attention_dropout=0.1)
        assert kernel not in text
        assert SCORES in text
        assert "xf64>" not in text


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="of TensorFlow's functions"
)
@pytest.mark.slow
@pytest.mark.parametrize("family", in_ci(tiny_families.FAMILIES, "Bert", "T5"))
def test_a_compiled_step_of_tensorflow_stays_on_its_device(family):
    import tensorflow as tf

    task = task_of(family)
    task.optimizer.build(task.trainable_variables)
    step = tf.function(task.train_step, jit_compile=True, autograph=False)
    kinds = (False,) if family in RELATIVE else (False, True)
    for packed in kinds:
        for _ in range(2):  # the second batch is no new program
            batch = tf.nest.map_structure(tf.constant, batch_of(family, packed))
            text = step.experimental_get_compiler_ir(batch)(stage="hlo")
        assert "bf16[" in text
        assert "f64[" not in text, packed
        assert "custom_call_target" not in text, packed
    assert step.experimental_get_tracing_count() == len(kinds)
