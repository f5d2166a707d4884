"""Whole steps as graphs of PyTorch, against the same steps without."""

import shutil

import keras
import numpy as np
import pytest

from tests import every_task, tiny_families
from tests.marks import in_ci

TASKS = [*every_task.FINE_TUNING, *every_task.PRETRAINING]

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="only PyTorch records its steps"
)


@pytest.fixture
def interpreted(monkeypatch):
    """List graphs, which are computed as they are: to compile takes a minute."""
    import torch

    graphs = []

    def kept(graph, **options):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", kept)
    return graphs


def losses(task, rows, jit_compile, steps=3, **arguments):
    """Give the losses of some steps, and the weights after them."""
    task.compile(
        learning_rate=1e-2, total_steps=100, jit_compile=jit_compile, **arguments
    )
    rows = keras.utils.unpack_x_y_sample_weight(rows)
    found = [np.ravel(keras.Model.train_on_batch(task, *rows))[0] for _ in range(steps)]
    return np.array(found), [*map(keras.ops.convert_to_numpy, task.weights)]


def assert_same(make, rows, **arguments):
    (plain, weights), (recorded, others) = (
        losses(make(), rows, jit_compile, **arguments) for jit_compile in (False, True)
    )
    np.testing.assert_allclose(plain, recorded, rtol=1e-5)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("family", in_ci(tiny_families.FAMILIES, "Bert", "T5"))
def test_each_family(family, interpreted):
    def make():
        keras.utils.set_random_seed(0)
        return tiny_families.task_of(family, dropout=0.1, attention_dropout=0.1)

    assert_same(make, tiny_families.batch_of(family))
    assert len(interpreted) == 1


@pytest.mark.parametrize("task", in_ci(TASKS, "TextEmbedder", "ReplacedTokenDetection"))
def test_each_task(task, interpreted):
    kind = next(kind for each, kind in every_task.cells() if each == task)

    def make():
        keras.utils.set_random_seed(0)
        return every_task.make(task, kind)

    assert_same(make, every_task.rows_of(task, make()))
    assert len(interpreted) == 1


def bert(dtype="float32"):
    keras.utils.set_random_seed(0)
    return tiny_families.task_of("Bert", dtype, dropout=0.1)


def test_another_shape_and_frozen_weights(interpreted):
    x, y, weight = tiny_families.batch_of("Bert")
    shorter = {**x, **{name: x[name][:, :6] for name in ("token_ids", "padding_mask")}}

    def weights(jit_compile):
        task = bert()
        task.compile(learning_rate=1e-2, total_steps=100, jit_compile=jit_compile)
        for inputs in (x, shorter, x):
            keras.Model.train_on_batch(task, inputs, y, weight)
        task.backbone.trainable = False
        task.compile(learning_rate=1e-2, total_steps=100, jit_compile=jit_compile)
        keras.Model.train_on_batch(task, x, y, weight)
        kept = keras.Model.evaluate(task, x, y, sample_weight=weight, verbose=0)
        return [*map(keras.ops.convert_to_numpy, task.weights), np.array(kept)]

    for one, other in zip(weights(False), weights(True), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert len(interpreted) == 3


def test_another_loss(interpreted):
    # A graph has the loss that it was recorded with.
    x, y, weight = tiny_families.batch_of("Bert")

    def step(task, loss, jit_compile):
        task.compile("sgd", loss, weighted_metrics=None, jit_compile=jit_compile)
        return np.ravel(keras.Model.train_on_batch(task, x, y, weight))[0]

    def double(targets, scores):
        logs = keras.losses.sparse_categorical_crossentropy(targets, scores, True)
        return 2 * logs

    found = [
        [
            step(task, "auto", whole),
            step(task, double, whole),
            step(task, "auto", False),
        ]
        for whole in (False, True)
        for task in [bert()]
    ]
    np.testing.assert_allclose(*found, rtol=1e-5)
    assert len(interpreted) == 2


def test_losses_are_scaled(interpreted):
    assert_same(lambda: bert("mixed_float16"), tiny_families.batch_of("Bert"))


@pytest.mark.parametrize(
    "more", [{"rematerialize": "block"}, {"gradient_accumulation_steps": 2}]
)
def test_what_is_refused(more):
    with pytest.raises(ValueError, match=f"`{[*more][0]}` must be left out .* PyTorch"):
        bert().compile(jit_compile=True, **more)


def test_a_gradient_cache_is_refused():
    with pytest.raises(ValueError, match="`gradient_cache_rows` must be left out"):
        every_task.make("TextEmbedder", "bert").compile(
            jit_compile=True, gradient_cache_rows=2
        )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")
def test_a_graph_that_is_compiled():
    assert_same(bert, tiny_families.batch_of("Bert"))
