"""What is computed twice has the gradient of what is computed once."""

import keras
import numpy as np
import pytest

from keras_bertfam import tasks
from tests import tiny_bidirectional_lm
from tests import tiny_masked_lm as tiny
from tests.gradients import loss_and_gradients
from tests.tiny_families import FAMILIES, batch_of, task_of

BACKEND = keras.backend.backend()


def step_of(family, part, dtype="float32"):
    """The loss of a batch, with dropout, and its gradients."""
    keras.utils.set_random_seed(0)
    task = task_of(family, dtype, dropout=0.3)
    jit_compile = BACKEND == "jax"
    task.compile("sgd", rematerialize=part, jit_compile=jit_compile)
    return loss_and_gradients(task, *batch_of(family))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_dropped_are_the_same_elements_and_gradients_are_the_same(family):
    loss, gradients = step_of(family, "none")
    for part in ("attention", "block"):
        again, recomputed = step_of(family, part)
        np.testing.assert_allclose(again, loss, rtol=1e-6)
        for one, other in zip(gradients, recomputed, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["attention", "block"])
def test_a_compiled_step(part):
    task = task_of("Bert", dropout=0.3)
    task.compile("sgd", rematerialize=part, jit_compile=BACKEND == "jax")
    assert task.train_on_batch(*batch_of("Bert"))[0] > 0


@pytest.mark.skipif(BACKEND == "tensorflow", reason="its tape doesn't tell")
def test_less_is_kept_for_the_gradient():
    def kept(part):
        keras.utils.set_random_seed(0)
        task = task_of("Bert", dropout=0.3, num_layers=4)
        task.compile("sgd", rematerialize=part)
        return bytes_kept(task, batch_of("Bert"))

    everything, no_scores, inputs = map(kept, ("none", "attention", "block"))
    # 4 rows, 2 heads, 8 x 8 tokens, of 4 layers; most in float32, and then bools.
    assert everything - no_scores >= 4 * (4 * 2 * 8 * 8) * 4
    assert inputs < 0.5 * everything


def bytes_kept(task, batch):
    """What the loss of a batch keeps for its gradient, weights included."""
    x, y, weights = batch
    if BACKEND == "torch":
        import torch

        sizes = {}

        def note(tensor):
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            loss = task.compute_loss(x, y, task(x, training=True), weights)
        assert loss > 0
        return sum(sizes.values())
    import jax

    def loss_of(values):
        pairs = zip(task.trainable_variables, values, strict=True)
        with keras.StatelessScope([*pairs]):
            return task.compute_loss(x, y, task(x, training=True), weights)

    values = [v.value for v in task.trainable_variables]
    _, pull_back = jax.eval_shape(lambda v: jax.vjp(loss_of, v), values)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pull_back))


def test_what_cannot_be_recomputed_is_refused():
    task = task_of("Bert")
    with pytest.raises(ValueError, match=r"must be one of.*'all'"):
        task.compile(rematerialize="all")
    elmo = tasks.BidirectionalLM(tiny_bidirectional_lm.make_backbone())
    with pytest.raises(ValueError, match='must be "none" for BidirectionalLM'):
        elmo.compile(rematerialize="block")


def test_a_saved_task_knows_it():
    task = task_of("Bert")
    task.compile(rematerialize="block")
    again = type(task).from_config(task.get_config())
    again.compile_from_config(task.get_compile_config())
    assert again.backbone.encoder.recomputes == "block"
    again.compile()
    assert again.backbone.encoder.recomputes == "none"


@pytest.mark.slow
@pytest.mark.any_backend
def test_tasks_on_one_backbone_choose_each_for_itself():
    model = tiny.make_model()
    model.compile(rematerialize="block")
    encoder = model.backbone.encoder
    other = tasks.TextClassifier(model.backbone, 2)
    assert encoder.recomputes == "block"
    other.compile(rematerialize="attention")
    assert encoder.recomputes == "attention"
    model.fit(tiny.stream(model).take(1), verbose=0)
    assert encoder.recomputes == "block"
    other.make_train_function()
    assert encoder.recomputes == "attention"
