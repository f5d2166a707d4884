"""A real masked language model and real data, small enough to run anywhere.

`of` gives another task in its place.
"""

import functools
import types

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.optimizers import pretraining_optimizer

WORDS = "the a cat dog sat ran on in mat hat and saw by tree red blue".split()
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Of the highest rates only, so that a bound of few rows varies little.
RATES = {
    "MaskedLM": {"mask_selection_rate": 0.3},
    "MaskedPermutedLM": {"mask_selection_rate": 0.3},
    "MaskedDiffusionLM": {"lowest_rate": 0.5},
}


def documents(count=60):
    """One block each, of 3 to 14 words: unevenly many masks in a row."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 15))) for _ in range(count)]
    return tf.data.Dataset.from_tensor_slices(texts)


def make_model(dropout=0.0, total_steps=40, task="MaskedLM", **compile):
    keras.utils.set_random_seed(3)
    # Whole words, which autoencoders hide, take a vocabulary that marks them.
    marks = [] if task == "MaskedLM" else ["##s"]
    tokenizer = BertTokenizer([*SPECIALS, *WORDS, *marks], lowercase=True)
    backbone = BertBackbone(
        tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=16,
        dropout=dropout,
        dtype=keras.config.dtype_policy(),
    )
    preprocessor = getattr(tasks, f"{task}Preprocessor")(
        tokenizer, sequence_length=16, **RATES.get(task, {})
    )
    model = getattr(tasks, task)(backbone, preprocessor)
    model.compile(
        optimizer=pretraining_optimizer(1e-2, total_steps, 2, global_clipnorm=0.05),
        jit_compile=keras.backend.backend() == "jax",
        **compile,
    )
    return model


def stream(model, batch_size=8, **kwargs):
    """The preprocessor's dataset; `training=True` gives 60 // 8 = 7 batches."""
    return model.preprocessor.dataset(
        documents(), batch_size, packing="doc", break_lines=False, **kwargs
    )


def of(task):
    """Give what this module has, of another task whose rows are texts."""
    make = functools.partial(make_model, task=task)
    return types.SimpleNamespace(make_model=make, stream=stream)


class StepLosses(keras.callbacks.Callback):
    """Records the loss of every step, in place of Keras's running mean."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def train(policy="float32"):
    """Trains for 3 passes of 7 batches step by step, and for another pass.

    Returns:
        Per-step losses, the history, the evaluation and the weights.
    """
    keras.config.set_dtype_policy(policy)
    model = make_model()
    recorder = StepLosses()
    model.fit(stream(model), epochs=3, callbacks=[recorder], verbose=0)
    steps = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
    history = model.fit(stream(model), epochs=4, initial_epoch=3, verbose=0)
    held_out = stream(model, training=False)  # its last batch is of 4
    evaluation = model.evaluate(held_out, verbose=0, return_dict=True)
    weights = [keras.ops.convert_to_numpy(v) for v in model.weights]
    keras.config.set_dtype_policy("float32")
    return {
        "losses": recorder.losses,
        "history": {name: values[-1] for name, values in history.history.items()},
        "evaluation": evaluation,
        "weights": np.concatenate([w.ravel() for w in weights]).tolist(),
        "steps": steps,
        "slots": [float(np.sum(weights)) for _, _, weights in held_out],
    }
