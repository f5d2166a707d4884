"""A masked language model and data that are small enough to run anywhere."""

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.optimizers import pretraining_optimizer

VOCABULARY = 29
LENGTH = 8
SLOTS = 4


class ToyLoss(keras.losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        losses = keras.losses.sparse_categorical_crossentropy(
            y_true, ops.cast(y_pred, "float32"), from_logits=True
        )
        return distribution.global_mean(
            ops.sum(losses * sample_weight), ops.sum(sample_weight)
        )


class ToyMaskedLM(distribution.DistributedTrainer, keras.Model):
    def __init__(self, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        init = [keras.initializers.RandomNormal(stddev=0.3, seed=i) for i in range(4)]
        self.embedding = keras.layers.Embedding(
            VOCABULARY, 16, embeddings_initializer=init[0]
        )
        self.dropout = keras.layers.Dropout(dropout, seed=3)
        self.hidden = keras.layers.Dense(
            16, activation="gelu", kernel_initializer=init[1]
        )
        self.norm = keras.layers.LayerNormalization()
        self.head = keras.layers.Dense(VOCABULARY, kernel_initializer=init[2])

    def build(self, input_shape):
        self.embedding.build((None, LENGTH))
        self.hidden.build((None, LENGTH, 16))
        self.norm.build((None, LENGTH, 16))
        self.head.build((None, SLOTS, 16))

    def call(self, inputs, training=None):
        x = self.embedding(inputs["token_ids"])
        x = x * ops.cast(inputs["padding_mask"], x.dtype)[..., None]
        x = self.dropout(x, training=training)
        x = self.norm(x + self.hidden(x) + ops.mean(x, axis=1, keepdims=True))
        x = ops.take_along_axis(x, inputs["mask_positions"][..., None], axis=1)
        return self.head(x)


def examples(count, seed=0):
    """Numpy examples, with 0 to 4 real slots in a row: uneven between rows."""
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(1, VOCABULARY, (count, LENGTH)).astype("int32")
    x = {
        "token_ids": token_ids,
        "padding_mask": np.ones((count, LENGTH), bool),
        "mask_positions": np.tile(np.arange(SLOTS, dtype="int32"), (count, 1)),
    }
    y = (token_ids[:, :SLOTS] * 3 + 1) % VOCABULARY
    slots = rng.integers(0, SLOTS + 1, (count, 1)) * (np.arange(count)[:, None] % 2)
    return x, y.astype("int32"), (np.arange(SLOTS) < slots).astype("float32")


class StepLosses(keras.callbacks.Callback):
    """Records the loss of every step, in place of Keras's running mean."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


def train(dataset, policy="float32", dropout=0.0, clip=0.05, **fit):
    """Trains a toy for as many steps as there are batches.

    Returns:
        Per-step losses, the history, the evaluation and the weights.
    """
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    model = ToyMaskedLM(dropout)
    model.build(None)
    model.compile(
        optimizer=pretraining_optimizer(
            1e-2, total_steps=40, warmup_steps=2, global_clipnorm=clip
        ),
        loss=ToyLoss(),
        weighted_metrics=["sparse_categorical_accuracy"],
    )
    recorder = StepLosses()
    history = model.fit(dataset, callbacks=[recorder], verbose=0, **fit).history
    evaluation = model.evaluate(dataset, verbose=0, return_dict=True)
    weights = [keras.ops.convert_to_numpy(v) for v in model.weights]
    return {
        "losses": recorder.losses,
        "history": {name: values[-1] for name, values in history.items()},
        "evaluation": evaluation,
        "weights": np.concatenate([w.ravel() for w in weights]).tolist(),
    }


def stream(position, batches=10, batch_size=4):
    """Batches of a `tf.data` stream that differ with its seed and position."""
    import tensorflow as tf

    from keras_bertfam.layers.preprocessing.seeding import seeded_passes

    class Position:
        """Passes on `position`, through nodes of one output.

        TensorFlow 2.21 crashes in `Dataset.skip` of any but the first output.
        """

        def begin_pass(self):
            return [tf.identity(value) for value in position.begin_pass()]

    x, y, _ = examples(batches * batch_size)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)

    def choose(seed, batch):
        x, y = batch
        chosen = tf.random.stateless_uniform(tf.shape(y), seed) < 0.5
        return x, y, tf.cast(chosen, "float32")

    return seeded_passes(lambda epoch: data, 0, position and Position()).map(choose)
