"""Tasks are cloned with what their preprocessors know."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from tests import tiny_fine_tuning as tiny


@pytest.mark.slow
def test_a_clone_takes_raw_text():
    preprocessor = tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    backbone = tiny.make_backbone(num_layers=1)
    task = tasks.TextClassifier(backbone, 2, preprocessor)
    clone = keras.models.clone_model(task)
    assert clone.preprocessor is not task.preprocessor
    texts = ["the cats sat", "a red mat"]
    for name, expected in preprocessor(texts).items():
        np.testing.assert_array_equal(clone.preprocessor(texts)[name], expected)
    clone.set_weights(task.get_weights())
    outputs = (ops.convert_to_numpy(x.predict(texts, verbose=0)) for x in (task, clone))
    np.testing.assert_allclose(*outputs, atol=1e-6)


def test_a_preprocessor_in_the_place_of_a_number():
    preprocessor = tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    for cls in (tasks.TextClassifier, tasks.TokenClassifier):
        with pytest.raises(ValueError, match="`num_classes` must be an int .*Preproc"):
            cls(tiny.make_backbone(num_layers=1), preprocessor)
