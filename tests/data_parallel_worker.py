"""Trains on one and on two JAX devices; prints the results as JSON."""

import json

import jax
import keras

from tests import tiny_masked_lm as tiny


def main():
    one = tiny.train()
    devices = keras.distribution.list_devices()
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)
    )
    two = tiny.train()
    print(json.dumps({"devices": len(jax.devices()), "one": one, "two": two}))


if __name__ == "__main__":
    main()
