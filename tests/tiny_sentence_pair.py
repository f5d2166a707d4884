"""A real masked LM with a sentence objective, small enough to run anywhere."""

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import MaskedLMSentencePair, MaskedLMSentencePairPreprocessor
from tests.tiny_masked_lm import SPECIALS, WORDS, StepLosses


def documents(count=60):
    """Of one to four lines: unevenly many masks, and rows without a label."""
    rng = np.random.default_rng(0)
    texts = [
        "\n".join(" ".join(rng.choice(WORDS, 4)) for _ in range(rng.integers(1, 5)))
        for _ in range(count)
    ]
    return tf.data.Dataset.from_tensor_slices(texts)


def make_model(objective="sop", backbone_cls=BertBackbone, **settings):
    """Takes the arguments of the backbone."""
    keras.utils.set_random_seed(3)
    tokenizer = BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    backbone = backbone_cls(
        tokenizer.vocabulary_size(),
        **{
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 24,
            "max_sequence_length": 16,
            "dropout": 0.0,
            "dtype": keras.config.dtype_policy(),
            **settings,
        },
    )
    preprocessor = MaskedLMSentencePairPreprocessor(
        tokenizer,
        sequence_length=16,
        sentence_objective=objective,
        mask_selection_rate=0.3,
    )
    model = MaskedLMSentencePair(backbone, preprocessor, sentence_weight=0.5)
    model.compile(
        optimizer=pretraining_optimizer(1e-2, 40, 2, global_clipnorm=0.05),
        jit_compile=keras.backend.backend() == "jax",
    )
    return model


def stream(model, batch_size=8, **kwargs):
    return model.preprocessor.dataset(
        documents(), batch_size, break_lines=False, **kwargs
    )


def train():
    """Trains for 3 passes, step by step, and evaluates.

    Returns:
        Per-step losses, the last pass's logs, the evaluation and the weights.
    """
    model = make_model()
    recorder = StepLosses()
    model.fit(stream(model), epochs=3, callbacks=[recorder], verbose=0)
    history = model.fit(stream(model), epochs=4, initial_epoch=3, verbose=0).history
    evaluation = model.evaluate(
        stream(model, training=False), verbose=0, return_dict=True
    )
    weights = [keras.ops.convert_to_numpy(v).ravel() for v in model.weights]
    return {
        "losses": recorder.losses,
        "history": {name: values[-1] for name, values in history.items()},
        "evaluation": evaluation,
        "weights": np.concatenate(weights).tolist(),
    }


def compare():
    """Prints as JSON what training gives on one and on two logical devices."""
    import json

    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, configuration)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    one = train()
    with strategy.scope():
        two = train()
    print(json.dumps([one, two]))


if __name__ == "__main__":
    compare()
