"""What `fit()` shows before and during the first epoch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.models import BertBackbone
from keras_bertfam.tasks import inputs
from tests import tiny_fine_tuning as fine_tuning
from tests import tiny_masked_lm as tiny
from tests.tiny_fine_tuning import SIZES
from tests.tiny_questions import make_preprocessor, questions


class Totals(keras.callbacks.Callback):
    """Records the total that the progress bar has, and the batches there are."""

    def on_train_begin(self, logs=None):
        self.total = self.params["steps"]

    def on_train_batch_end(self, batch, logs=None):
        self.batches = batch + 1


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:The learning-rate schedule ends")
def test_the_first_epoch_has_its_total_and_says_what_it_waits_for(capsys):
    model = tiny.make_model(total_steps=None)
    batch = next(tiny.stream(model).as_numpy_iterator())
    data = tf.data.Dataset.from_tensors(batch).repeat(3).filter(lambda *_: True)
    totals = Totals()
    model.fit(data, callbacks=[totals], verbose=1)
    assert totals.total == totals.batches == 3
    shown = capsys.readouterr().out
    assert shown.splitlines()[:3] == [
        "Counting the batches of an epoch...",
        "There are 3.",
        "Preparing the first step...",
    ]
    assert "/Unknown" not in shown and "1/3" in shown
    # The next time it is known.
    model.fit(data, epochs=3, initial_epoch=2, callbacks=[totals], verbose=2)
    assert totals.total == 3
    assert capsys.readouterr().out.startswith("Epoch 3/3\n3/3")
    model.fit(data.repeat(), callbacks=[totals], steps_per_epoch=2, verbose=0)
    assert totals.total == totals.batches == 2
    assert capsys.readouterr().out == ""
    # Arrays, without being read.
    x, y, weights = batch
    model.fit(x, y, 4, sample_weight=weights, callbacks=[totals], verbose=2)
    assert totals.total == totals.batches == 2
    assert "Counting" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_dataset_is_counted_once():
    model, reads = tiny.make_model(total_steps=None), []

    def read(*batch):
        reads.append(len(batch))
        return np.int32(0)

    data = tiny.stream(model).map(
        lambda *batch: tf.numpy_function(read, [batch[1]], tf.int32)
    )
    assert inputs.known_count(data) is None
    assert [inputs.count_batches(data) for _ in range(2)] == [7, 7]
    assert len(reads) == 7 and inputs.known_count(data) == 7
    assert inputs.count_batches(data.repeat()) is None
    assert inputs.count_batches(iter([1, 2])) is None
    assert inputs.count_batches([1, 2]) == 2


def arrays(task):
    """21 examples for a fine-tuning task, which begins with its name."""
    texts, labels = fine_tuning.texts(21)
    if task is tasks.MultipleChoice:
        return {"context": texts, "choices": [["sat", "ran"]] * 21}, labels
    if task is tasks.TokenClassifier:
        return [["the", "cat", "sat"]] * 21, [[0, 1, 0]] * 21
    if task is tasks.TextEmbedder:
        return (texts, texts), [float(label) for label in labels]
    return texts, labels


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "task",
    [
        tasks.TextClassifier,
        pytest.param(
            tasks.MultipleChoice,
            marks=[pytest.mark.slow("release"), pytest.mark.any_backend],
        ),
        pytest.param(
            tasks.TokenClassifier,
            marks=[pytest.mark.slow("release"), pytest.mark.any_backend],
        ),
        pytest.param(
            tasks.TextEmbedder,
            marks=[pytest.mark.slow("release"), pytest.mark.any_backend],
        ),
    ],
)
def test_batches_of_arrays_are_counted_without_reading_them(task):
    labelled = task in (tasks.TextClassifier, tasks.TokenClassifier)
    kwargs = {"num_classes": 2} if labelled else {}
    preprocessor = task.preprocessor_cls(fine_tuning.make_tokenizer(), 16)
    model = task(
        fine_tuning.make_backbone(num_layers=1), preprocessor=preprocessor, **kwargs
    )
    data = model._batched(model._rows(*arrays(task)), 8, preprocessor.position)
    assert inputs.known_count(data) == sum(1 for _ in data) == 3


@pytest.mark.slow
@pytest.mark.any_backend
def test_windows_of_questions_are_counted():
    preprocessor = make_preprocessor(sequence_length=18)
    size = preprocessor.tokenizer.vocabulary_size()
    model = tasks.SpanQuestionAnswering(BertBackbone(size, **SIZES), preprocessor)
    rows = model._rows(*questions(10))
    data = model._batched(rows, 8, model.preprocessor.position)
    assert inputs.known_count(data) is None
    assert inputs.count_batches(data) > 2
