"""A real XLNet with memory and real data, small enough to run anywhere.

As a program, it compares two logical devices with one and prints JSON.
"""

import contextlib
import json

import keras
import numpy as np

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import XLNetBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import PermutationLM, PermutationLMPreprocessor
from tests.tiny_masked_lm import SPECIALS, WORDS, StepLosses, documents

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}


def make_model(dropout=0.0, both_directions=True, **compile):
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS, "##s"], lowercase=True)
    backbone = XLNetBackbone(tokenizer.vocabulary_size(), dropout=dropout, **SIZES)
    preprocessor = PermutationLMPreprocessor(
        tokenizer,
        sequence_length=16,
        reuse_length=8,
        both_directions=both_directions,
        next_rate=0.5,
    )
    model = PermutationLM(backbone, preprocessor, memory_length=12, batch_size=4)
    compile = {"jit_compile": keras.backend.backend() == "jax", **compile}
    optimizer = pretraining_optimizer(1e-2, 80, 2, global_clipnorm=0.05)
    model.compile(optimizer=optimizer, **compile)
    return model


def stream(model, **kwargs):
    return model.preprocessor.dataset(documents(), 4, break_lines=False, **kwargs)


def train():
    model, recorder = make_model(), StepLosses()
    model.fit(stream(model), epochs=2, callbacks=[recorder], verbose=0)
    evaluation = model.evaluate(stream(model, training=False), verbose=0)
    weights = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    return {
        "losses": recorder.losses,
        "evaluation": [float(value) for value in evaluation],
        "weights": np.concatenate([w.ravel() for w in weights]).tolist(),
    }


def main():
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, configuration)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            results.append(train())
    print(json.dumps(results))


if __name__ == "__main__":
    main()
