"""What `keras_quirks` works around is still so; if not, one of its modules may go."""

import importlib
import inspect

import keras
import keras_hub
import numpy as np
import pytest

from keras_bertfam.keras_quirks.model_layers import layers_of

SIZES = {
    "vocabulary_size": 12,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": 8,
}


@pytest.mark.any_backend
def test_functional_models_still_change_the_bases_of_others():
    class Plain(keras_hub.models.Backbone):
        pass

    keras_hub.models.BertBackbone(**SIZES)
    assert issubclass(Plain, keras.Function)


@pytest.mark.any_backend
def test_names_in_files_are_still_looked_up_in_a_dict():
    library = importlib.import_module("keras.src.saving.object_registration")
    assert isinstance(library.GLOBAL_CUSTOM_OBJECTS, dict)
    source = inspect.getsource(library.get_registered_object)
    assert "GLOBAL_CUSTOM_OBJECTS" in source


def test_layers_of_a_model_are_still_the_topmost_only():
    inner = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(2)])
    model = keras.Sequential([inner])
    model(np.zeros((1, 2), "float32"))
    assert len(model.layers) == 1
    assert len(layers_of(model, include_self=False)) > 2


@pytest.mark.any_backend
def test_optimizers_still_clip_before_they_sum():
    library = importlib.import_module("keras.src.optimizers.base_optimizer")
    source = inspect.getsource(library.BaseOptimizer._backend_apply_gradients)
    # The sum over replicas is within the update.
    assert source.index("_clip_gradients") < source.index("self._backend_update_step(")
    assert hasattr(keras.optimizers.SGD(), "_all_reduce_sum_gradients")


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's")
def test_steps_are_still_traced_for_any_rank():
    class Plain(keras.Model):
        def call(self, x):
            return x * len(x.shape)

    model = Plain()
    model.compile(run_eagerly=False)
    model.predict(np.ones((2, 3)), verbose=0)
    with pytest.raises(ValueError, match="unknown rank"):
        model.predict(np.ones((2, 3, 4)), verbose=0)


@pytest.mark.any_backend
def test_metrics_are_still_built_by_a_private_method():
    library = importlib.import_module("keras.src.backend.tensorflow.trainer")
    assert hasattr(library.TensorFlowTrainer, "_maybe_symbolic_build")
    fit = inspect.getsource(library.TensorFlowTrainer.fit)
    assert "_maybe_symbolic_build" in fit
