"""Trains on one and on two JAX devices; prints the results as JSON."""

import json

import jax
import keras
import tensorflow as tf

from tests import toy_masked_lm as toy


def main():
    dataset = tf.data.Dataset.from_tensor_slices(toy.examples(160)).batch(8)
    one = toy.train(dataset)
    devices = keras.distribution.list_devices()
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)
    )
    two = toy.train(dataset)
    print(json.dumps({"devices": len(jax.devices()), "one": one, "two": two}))


if __name__ == "__main__":
    main()
