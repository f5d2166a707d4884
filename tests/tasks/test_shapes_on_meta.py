"""`fit` under PyTorch learns shapes from tensors without values, on device "meta".

Where an operation needs a value, Keras computes the first batch as a whole, without a
word.
"""

import keras
import pytest
from keras.src import backend

from tests import every_task

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="only PyTorch has this device"
)


def devices_of(model, inputs):
    """List the devices on which Keras computes to learn the shapes of outputs."""
    found = []

    def compute(x):
        found.append(next(iter(keras.tree.flatten(x))).device.type)
        return model(x, training=False)

    model(keras.tree.map_structure(keras.ops.convert_to_tensor, inputs))
    specs = keras.tree.map_structure(
        lambda x: keras.KerasTensor(x.shape, str(x.dtype)), inputs
    )
    backend.compute_output_spec(compute, specs)
    return found


# T5's encoder reads a text otherwise than others; pre-training packs rows.
CELLS = [*((task, "t5") for task in every_task.FINE_TUNING)]
CELLS += [(task, "bert") for task in every_task.PRETRAINING]


@pytest.mark.parametrize("task, kind", CELLS)
def test_no_task_needs_values(task, kind):
    model = every_task.make(task, kind)
    inputs, _, _ = keras.utils.unpack_x_y_sample_weight(every_task.rows_of(task, model))
    assert devices_of(model, inputs) == ["meta"]


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("task", ["TextClassifier", "TextEmbedder"])
def test_packed_rows(task, kind):
    preprocessor = every_task.preprocessor_of(
        task, kind, packed=True, sequence_length=24
    )
    model = every_task.make(task, kind, preprocessor=preprocessor)
    data = preprocessor.dataset(every_task.given_to(task), 3)
    inputs = next(data.as_numpy_iterator())[0]
    assert "sequence_starts" in inputs
    assert devices_of(model, inputs) == ["meta"]
