"""Prepared corpora as datasets of Grain: the batches of `tf.data`, in their order."""

import dataclasses
import pickle

import keras
import numpy as np
import pytest
from absl import flags

from keras_bertfam.layers import read_tokens
from tests import every_task as every
from tests import tiny_corpus

grain = pytest.importorskip("grain", reason="needs the extra `grain`")
# Rows of `RecurrentLM` go on from batch to batch in files; others have pairs.
WITHOUT_CORPORA = ("RecurrentLM", "TextToText", "SparseEncoder")
TASKS = [
    pytest.param(task, marks=[] if task == "MaskedLM" else pytest.mark.slow("release"))
    for task in every.PRETRAINING
    if task not in WITHOUT_CORPORA
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora") / "prepared"
    tiny_corpus.prepare(folder, every.tokenizer_of("bert"))
    return read_tokens(folder)


def check_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        keras.tree.map_structure(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("task", TASKS)
def test_batches_are_those_of_tf_data(task, corpus):
    preprocessor = every.preprocessor_of(task, "bert")
    expected = [[*preprocessor.dataset(corpus, 4)] for _ in range(2)]
    preprocessor.position.set(0)
    data = preprocessor.grain_dataset(corpus, 4)
    count = len(data)
    assert count == preprocessor.position.batches == len(expected[0]) > 2
    leaves = keras.tree.flatten(data.source[0])
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves)
    for one_pass in expected:
        check_same(data, one_pass)
    assert preprocessor.position.epoch == 2
    check_same(data.source.repeat(2), expected[0] + expected[1])
    held_out = preprocessor.grain_dataset(corpus, 4, training=False)
    for _ in range(2):
        check_same(held_out, [*preprocessor.dataset(corpus, 4, training=False)])


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_next_batch_by_either_state(corpus):
    preprocessor = every.preprocessor_of("MaskedLM", "bert")
    data = preprocessor.grain_dataset(corpus, 4)
    count, at = len(data), (3, 1)
    expected = [data.source[at[0] * count + k] for k in range(at[1], count)]
    preprocessor.position.set(*at)
    check_same(data, expected)
    preprocessor.position.set(3)
    iterator = iter(data)
    next(iterator)
    state = iterator.get_state()
    fresh = every.preprocessor_of("MaskedLM", "bert").grain_dataset(corpus, 4)
    again = iter(fresh)
    again.set_state(state)
    assert fresh.position.epoch == 4
    for one in (iterator, again, iter_of_map(fresh, state)):
        check_same(one, expected)
    copy = pickle.loads(pickle.dumps(data.source))  # as for worker processes
    check_same([copy[3 * count + 1]], expected[:1])


def iter_of_map(data, state):
    """What Grain makes of it when something is mapped over it."""
    iterator = iter(data.map(lambda batch: batch))
    iterator.set_state(state)
    return iterator


@pytest.mark.any_backend
def test_what_it_is_made_of(corpus):
    preprocessor = every.preprocessor_of("MaskedLM", "bert")
    with pytest.raises(ValueError, match="`corpus` must be a prepared corpus"):
        preprocessor.grain_dataset(["a text"])
    with pytest.raises(ValueError, match="`shuffle_documents` must be 0"):
        preprocessor.grain_dataset(corpus, 4, shuffle_documents=3)
    recurrent = every.preprocessor_of("RecurrentLM", "bert")
    for method in (recurrent.dataset, recurrent.grain_dataset):
        with pytest.raises(ValueError, match="rows of the kind ContinuedRows"):
            method(corpus, 4)


@pytest.mark.slow
def test_training_is_that_by_tf_data(corpus):
    histories = []
    for method in ("dataset", "grain_dataset"):
        model = every.make("MaskedLM", "bert")
        jit_compile = keras.backend.backend() == "jax"
        model.compile(learning_rate=1e-2, total_steps=50, jit_compile=jit_compile)
        data = getattr(model.preprocessor, method)(corpus, 4)
        history = model.fit(data, epochs=2, verbose=0).history["loss"]
        held_out = getattr(model.preprocessor, method)(corpus, 4, training=False)
        histories.append([*history, model.evaluate(held_out, verbose=0)[0]])
    np.testing.assert_allclose(*histories, rtol=1e-4)
    assert len({round(loss, 6) for loss in histories[0]}) == 3


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_worker_processes_make_the_same_batches(corpus):
    preprocessor = every.preprocessor_of("MaskedLM", "bert")
    source = preprocessor.grain_dataset(corpus, 4).source.repeat(2)
    flags.FLAGS.mark_as_parsed()  # Grain's workers read them
    options = grain.MultiprocessingOptions(num_workers=2)
    check_same(source.to_iter_dataset().mp_prefetch(options), [*source])


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_chosen_pass_has_no_position(corpus):
    preprocessor = every.preprocessor_of("MaskedLM", "bert")
    chosen = dataclasses.replace(corpus, epoch=2)
    expected = [*preprocessor.dataset(chosen, 4)]
    preprocessor.position.set(0, 3)
    check_same(preprocessor.grain_dataset(chosen, 4), expected)
    assert preprocessor.position.batch == 3
