"""Single examples that are batched afterwards, and rows of another length."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import every_task as every

LENGTH = 47  # no bucket
# What a single example is given to as one, and their second axis is the length.
SINGLE = [task for task in every.FINE_TUNING if task != "SpanQuestionAnswering"]
SINGLE += ["MaskedLM", "SpanBoundaryLM", "CausalLM", "TextToText"]


def marked(names, *quick):
    slow = pytest.mark.slow("release")
    return [n if n in quick else pytest.param(n, marks=slow) for n in names]


def preprocessor_of(task):
    """With a length of its own; those of other texts are as they were."""
    preprocessor = every.preprocessor_of(task, "bert", sequence_length=LENGTH)
    if task == "Distiller":
        preprocessor.adapt(tf.data.Dataset.from_tensor_slices(every.TEXTS))
    return preprocessor


@pytest.mark.slow
@pytest.mark.parametrize("task", marked(SINGLE, "TokenClassifier"))
def test_single_examples_can_be_batched(task):
    preprocessor = preprocessor_of(task)
    given = every.given_to(task)
    if task == "DependencyParser":
        pairs = tf.ragged.constant(given[1], ragged_rank=1, inner_shape=(2,))
        given = tf.ragged.constant(given[0]), pairs
    if task == "TokenClassifier":
        given = tuple(tf.ragged.constant(part) for part in given)
    data = tf.data.Dataset.from_tensor_slices(given if len(given) > 1 else given[0])
    singly = next(iter(data.map(preprocessor).batch(3)))
    together = preprocessor(*given)
    for one, other in zip(
        keras.tree.flatten(singly), keras.tree.flatten(together), strict=True
    ):
        one, other = np.asarray(one), np.asarray(other)
        assert one.ndim == other.ndim
        kept = one[tuple(slice(size) for size in other.shape)]
        if task not in ("MaskedLM", "SpanBoundaryLM"):  # masks are by the batch
            np.testing.assert_array_equal(kept, other)
        assert not one.size or other.ndim < 2 or one.shape[-1] >= other.shape[-1]
    x, _, _ = keras.utils.unpack_x_y_sample_weight(singly)
    ids = x.get("token_ids", x.get("encoder_token_ids"))
    assert ids.shape[-1] == LENGTH
    if task in every.FINE_TUNING:  # batches are as short as may be
        assert together[0]["token_ids"].shape[-1] < LENGTH


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", marked([*every.FINE_TUNING, *every.PRETRAINING], "TextClassifier")
)
def test_another_length_afterwards(task):
    changed = preprocessor_of(task)
    given = every.given_to(task)
    changed(*given)
    config = {**changed.get_config(), "tokenizer": changed.tokenizer}
    config = {k: v for k, v in config.items() if k not in ("config_file", "dtype")}
    changed.sequence_length = 30
    fresh = type(changed)(**{**config, "sequence_length": 30})
    if task == "Distiller":
        fresh.adapt(tf.data.Dataset.from_tensor_slices(every.TEXTS))
    keras.tree.map_structure(
        np.testing.assert_array_equal, changed(*given), fresh(*given)
    )
    assert changed.get_config()["sequence_length"] == 30
    with pytest.raises(ValueError, match="must be at least"):
        changed.sequence_length = 2
    assert changed.sequence_length == 30
    if task != "SpanQuestionAnswering":  # its stride is given, and longer
        changed.sequence_length = 10  # what the length determines changes with it
        changed(*given)
