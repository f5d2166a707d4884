"""Datasets of Grain, raw and mapped, beside those of `tf.data`."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from tests import every_task as every

grain = pytest.importorskip("grain")
TAKES_NONE = (
    "TokenClassifier",
    "DualEncoder",
    "LateInteraction",
    "MaskedLMSentencePair",
    "Distiller",
)
TAKES_NONE += ("DependencyParser", "SparseEncoder")
TASKS = [
    pytest.param(task, marks=pytest.mark.slow(*levels))
    for task in (*every.FINE_TUNING, *every.PRETRAINING)
    for levels in [[] if task == "MaskedLM" else ["release"]]
    if task not in TAKES_NONE  # as batches of tuples, or of texts that it counts
]


def example(part, number):
    """A single example of a batch, as a source of Grain gives it."""
    if isinstance(part, dict):
        return {name: example(value, number) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(example(value, number) for value in part)
    value = part[number]
    # To Grain a list is a structure, of which it batches each element.
    return np.array(value) if isinstance(value, list) else value


def batches(task):
    given = every.given_to(task)
    given = given if len(given) > 1 else given[0]
    examples = [example(given, number) for number in (0, 1, 2, 0, 2, 1)]
    return grain.MapDataset.source(examples).batch(2)


@pytest.mark.parametrize("task", TASKS)
def test_raw_and_mapped_datasets(task):
    model = every.make(task, "bert")
    jit_compile = keras.backend.backend() == "jax"
    model.compile(learning_rate=1e-3, total_steps=9, jit_compile=jit_compile)
    raw = batches(task)
    mapped = raw.map(model.preprocessor)
    for leaf in keras.tree.flatten(mapped[0]):
        assert leaf is None or isinstance(leaf, np.ndarray)
    again = pickle.loads(pickle.dumps(model.preprocessor))  # as for worker processes
    for found in (raw.map(again), tf_batches(task, model, raw)):
        for one, other in zip(found, mapped, strict=True):
            keras.tree.map_structure(np.testing.assert_array_equal, one, other)
    losses = model.fit(raw, epochs=2, verbose=0).history["loss"]
    losses += model.fit(mapped, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    one = model.evaluate(raw.to_iter_dataset(), verbose=0, return_dict=True)
    other = model.evaluate(mapped, verbose=0, return_dict=True)
    if task != "ReplacedTokenDetection":  # whose generator draws in each call
        assert one == pytest.approx(other, abs=1e-5)
    if task not in ("TextEmbedder", "SpanQuestionAnswering", "ReplacedTokenDetection"):
        one, other = (model.predict(data, verbose=0) for data in (raw, mapped))
        keras.tree.map_structure(np.testing.assert_allclose, one, other)


def tf_batches(task, model, raw):
    """The same texts by `tf.data`; answers of questions are no tensors."""
    if task == "SpanQuestionAnswering":
        return [model.preprocessor(*batch) for batch in raw]
    given = every.given_to(task)
    given = given if len(given) > 1 else given[0]
    data = tf.data.Dataset.from_tensor_slices(given)
    order = (0, 1, 2, 0, 2, 1)
    rows = [*data]
    parts = [
        tf.nest.map_structure(lambda *x: tf.stack(x), *(rows[n] for n in pair))
        for pair in (order[:2], order[2:4], order[4:])
    ]
    stacked = tf.nest.map_structure(lambda *x: tf.stack(x), *parts)
    return tf.data.Dataset.from_tensor_slices(stacked).map(model.preprocessor)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_worker_processes_give_the_same_rows():
    preprocessor = every.preprocessor_of("MaskedLM", "bert")
    mapped = batches("MaskedLM").map(preprocessor)
    flags.FLAGS.mark_as_parsed()  # Grain's workers read them
    options = grain.MultiprocessingOptions(num_workers=1)
    found = [*mapped.to_iter_dataset().mp_prefetch(options)]
    for one, other in zip(found, mapped, strict=True):
        keras.tree.map_structure(np.testing.assert_array_equal, one, other)
