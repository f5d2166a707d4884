"""Runs under `MirroredStrategy` on two logical devices; prints results as JSON.

Usage: python -m tests.mirrored_worker [POLICY]
       python -m tests.mirrored_worker accumulated|alone

With a dtype policy only the training is run; the second is of batches of all
objectives. Logical devices are settled when
TensorFlow starts, hence a process of its own.
"""

import contextlib
import json
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bertfam import distribution, tasks
from keras_bertfam.keras_quirks import replicas
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.optimizers import Lamb, accumulation, pretraining_optimizer
from tests import tiny_fine_tuning as fine_tuning
from tests import tiny_late_interaction as late_interaction
from tests import tiny_masked_lm as tiny
from tests.uneven_batches import MODELS, uneven_batch

# A loss of one part, and some of two.
ACCUMULATED = ("masked_lm", "sentence_pair", "replaced_tokens")


def replica_values(strategy, function):
    values = strategy.experimental_local_results(strategy.run(function))
    return [np.asarray(value).tolist() for value in values]


def compare(strategy, policy):
    one = tiny.train(policy)
    with strategy.scope():
        two = tiny.train(policy)
    return one, two


def helpers(strategy):
    def call():
        number = tf.cast(distribution.replica_id(), "float32")
        total = number * 4 + 1  # 1 and 5, of weights 1 and 3
        return tf.stack([number, distribution.global_sum(total), total])

    def mean():
        number = tf.cast(distribution.replica_id(), "float32")
        with tf.GradientTape() as tape:
            total = number * 4 + 1
            tape.watch(total)
            value = distribution.global_mean(total, 1 + 2 * number)
        return tf.stack([value, tape.gradient(value, total)])

    def rows():
        number = distribution.replica_id()
        x = tf.fill([1 + number, 2 - number, 1], tf.cast(number + 1, "float32"))
        with tf.GradientTape() as tape:
            tape.watch(x)
            found, inside, first = distribution.rows_of_all(x)
            total = tf.reduce_sum(found**2)
        return found, inside, first, tape.gradient(total, x)

    parts = strategy.run(tf.function(rows))
    parts = [strategy.experimental_local_results(part) for part in parts]
    return {
        "sum": replica_values(strategy, tf.function(call)),
        "mean": replica_values(strategy, tf.function(mean)),
        "rows": [
            [x.numpy().tolist() for x in of_one] for of_one in zip(*parts, strict=True)
        ],
    }


def dropout_masks(strategy):
    with strategy.scope():
        layer = Dropout(0.5, seed=0)
    call = tf.function(lambda: layer(ops.ones((64,)), training=True))
    return [replica_values(strategy, call) for _ in range(2)]


def embedding_gradients(strategy):
    """Whether the gradients of Keras's and of our token table are dense."""
    with strategy.scope():
        tables = [keras.layers.Embedding(5, 2), TokenEmbedding(5, 2)]
        for table in tables:
            table.build((None,))
    dense = []

    def call():
        for table in tables:
            with tf.GradientTape() as tape:
                loss = ops.sum(table(tf.constant([[1, 2]])))
            gradient = tape.gradient(loss, table.trainable_variables[0].value)
            dense.append(not isinstance(gradient, tf.IndexedSlices))

    strategy.run(call)
    return dense[:2]


def overflow_on_one_replica(strategy):
    """Weights must stay as they are when any replica's gradient overflows."""
    with strategy.scope():
        variable = keras.Variable([1.0, 2.0])
        inner = pretraining_optimizer(0.1, total_steps=10, warmup_steps=0)
        optimizer = keras.optimizers.LossScaleOptimizer(inner)
        optimizer.build([variable])
        replicas.sum_gradients_first(optimizer)

    @tf.function
    def step(second):
        number = tf.cast(distribution.replica_id(), "float32")
        grad = tf.where(number == 1.0, second, tf.ones(2))
        optimizer.apply([grad], [variable])

    strategy.run(step, args=(tf.constant([np.inf, 1.0]),))
    after_overflow = ops.convert_to_numpy(variable).tolist()
    strategy.run(step, args=(tf.ones(2),))
    return after_overflow, ops.convert_to_numpy(variable).tolist()


def accumulated(strategy, name):
    """How far two uneven batches move weights, and one of both on one device."""
    make_model, _ = MODELS[name]
    batch = uneven_batch(name)
    rows = len(keras.tree.flatten(batch)[0])
    if rows < 8:  # a replica's must be there in both directions
        twice = np.repeat(np.arange(rows).reshape(2, -1), 2, 0).reshape(-1)
        batch, rows = keras.tree.map_structure(lambda v: v[twice], batch), 2 * rows
    data = tf.data.Dataset.from_tensor_slices(batch)
    found = []
    for scope, steps in (
        (tf.distribute.get_strategy().scope(), None),
        (strategy.scope(), 2),
    ):
        with scope:
            model = make_model()
            optimizer = keras.optimizers.AdamW(
                1.0, epsilon=1.0, gradient_accumulation_steps=steps
            )
            model.compile(optimizer)
        batches = data.batch(rows // (steps or 1))
        losses = model.fit(batches, verbose=0).history["loss"]
        weights = [v.numpy().ravel().tolist() for v in model.trainable_variables]
        updates = int(ops.convert_to_numpy(model.optimizer.iterations))
        found.append((losses, sum(weights, []), updates))
    return found


def weighed_under_a_loss_scale(strategy):
    """How far gradients 1 and 4 of batches with 30 and 10 tokens move a variable."""
    with strategy.scope():
        variable = keras.Variable([0.0])
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(1.0, gradient_accumulation_steps=2), initial_scale=1.0
        )
        replicas.sum_gradients_first(optimizer)
        accumulation.weigh_batches(optimizer)
        optimizer.build([variable])

    @tf.function
    def step(gradient, weight):
        gradient = gradient * tf.ones([1])  # on the replica's device
        with accumulation.weighed(weight, tf.zeros([1])):
            with accumulation.seen_by_threads(optimizer):
                optimizer.apply([gradient], [variable])

    for gradient, weight in (([1.0], [30.0]), ([4.0], [10.0])):
        strategy.run(step, args=(tf.constant(gradient), tf.constant(weight)))
    return float(variable.numpy()[0])


def alone():
    """Accumulated updates without a strategy, and under one that has one replica."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # there is no `TF_CONFIG`
    assert not distribution.across_workers(strategy)
    found = []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            model = tiny.make_model()
        optimizer = {"learning_rate": 0.1, "total_steps": 9}
        model.compile(gradient_accumulation_steps=2, **optimizer)  # out of the scope
        history = model.fit(tiny.stream(model).take(4), verbose=0).history
        found.append(history["loss"])
    return found


def decayed(strategy):
    """Names of variables, on any replica, that weight decay changes."""
    with strategy.scope():
        dense = keras.layers.Dense(2, name="bias_layer")
        dense.build((None, 3))
        norm = keras.layers.LayerNormalization(name="norm")
        norm.build((None, 3))
        variables = dense.trainable_variables + norm.trainable_variables
        for variable in variables:
            variable.assign(np.ones(variable.shape))
        optimizer = pretraining_optimizer(0.1, total_steps=10, warmup_steps=0)
        optimizer.build(variables)
    zeros = [tf.zeros(v.shape) for v in variables]
    strategy.run(tf.function(lambda: optimizer.apply(zeros, variables)))
    changed = set()
    for variable in variables:
        for value in strategy.experimental_local_results(variable.value):
            if np.any(value.numpy() != 1):
                changed.add(variable.path)
    return sorted(changed)


def lamb(strategy):
    """A variable on each replica after two steps, half of a gradient on each."""
    with strategy.scope():
        variable = keras.Variable([3.0, 4.0], name="kernel")
        optimizer = Lamb(0.1)
        optimizer.build([variable])
        replicas.sum_gradients_first(optimizer)

    @tf.function
    def step():
        number = tf.cast(distribution.replica_id(), "float32")
        optimizer.apply([tf.stack([1 - number, number])], [variable])

    for _ in range(2):
        strategy.run(step)
    values = strategy.experimental_local_results(variable.value)
    return [value.numpy().tolist() for value in values]


def a_packed_row(strategy):
    """Losses and weights of batches of one row, on one device and on two."""
    found = []
    for scope in (tf.distribute.get_strategy().scope(), strategy.scope()):
        with scope:
            tokenizer = fine_tuning.make_tokenizer()
            preprocessor = tasks.TextClassifierPreprocessor(tokenizer, 24, packed=True)
            backbone = fine_tuning.make_backbone(num_layers=1)
            model = tasks.TextClassifier(backbone, 2, preprocessor, dropout=0.0)
            model.compile(keras.optimizers.SGD(0.1))
        batches = preprocessor.dataset(fine_tuning.texts(8), 2)
        losses = model.fit(batches, epochs=2, verbose=0).history["loss"]
        weights = [v.numpy().ravel().tolist() for v in model.trainable_variables]
        found.append((batches.element_spec[1].shape[0], losses, sum(weights, [])))
    return found


def compared_texts(strategy):
    """Losses and weights where texts of all replicas are compared, by both ways."""
    found = []
    for scope, rows in (
        (tf.distribute.get_strategy().scope(), None),
        (strategy.scope(), None),
        (strategy.scope(), 1),
    ):
        with scope:
            tokenizer = fine_tuning.make_tokenizer()
            preprocessor = tasks.TextEmbedderPreprocessor(tokenizer, 24)
            backbone = fine_tuning.make_backbone(num_layers=1)
            model = tasks.TextEmbedder(backbone, preprocessor)
            model.compile(
                keras.optimizers.SGD(0.1),
                tasks.InBatchNegatives(symmetric=True),
                gradient_cache_rows=rows,
            )
        texts, _ = fine_tuning.texts(7)  # of unequal replicas
        x = (texts, texts[::-1], texts[1:] + texts[:1])
        batches = tf.data.Dataset.from_tensor_slices(x).batch(7)
        losses = model.fit(batches, epochs=2, verbose=0).history["loss"]
        weights = [v.numpy().ravel().tolist() for v in model.trainable_variables]
        found.append((losses, sum(weights, [])))
    return found


def tokens_of_texts(strategy):
    """Losses where passages of all replicas are compared; then vectors of tokens."""
    found = []
    for scope in (tf.distribute.get_strategy().scope(), strategy.scope()):
        with scope:
            model = late_interaction.make_model()
        texts = [text.splitlines() for text in late_interaction.texts(7)]
        x = ([each[0] for each in texts], [each[1:3] for each in texts])
        losses = model.fit(x, batch_size=7, epochs=3, verbose=0).history["loss"]
        vectors = model.encode(x[0], "passage", batch_size=3)
        found.append((losses, np.concatenate(vectors).ravel().tolist()))
    return found


def main():
    if sys.argv[1:] == ["alone"]:
        print(json.dumps(alone()))
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, configuration)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    if sys.argv[1:] == ["accumulated"]:
        print(json.dumps({name: accumulated(strategy, name) for name in MODELS}))
        return
    if sys.argv[1:]:
        print(json.dumps(compare(strategy, sys.argv[1])))
        return
    results = {
        "float32": compare(strategy, "float32"),
        "helpers": helpers(strategy),
        "dropout_masks": dropout_masks(strategy),
        "embedding_gradients": embedding_gradients(strategy),
        "overflow": overflow_on_one_replica(strategy),
        "accumulated": {name: accumulated(strategy, name) for name in ACCUMULATED},
        "weighed": weighed_under_a_loss_scale(strategy),
        "decayed": decayed(strategy),
        "lamb": lamb(strategy),
        "a_packed_row": a_packed_row(strategy),
        "compared_texts": compared_texts(strategy),
        "tokens_of_texts": tokens_of_texts(strategy),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
