"""Processes that share each batch of a training step, each on a core of its own.

`tf.distribute.MultiWorkerMirroredStrategy` with TensorFlow, `keras.distribution` over
JAX's processes. PyTorch's have no `fit()` in Keras.
"""

import contextlib
import dataclasses
import json
import os
import resource
import socket
import statistics
import subprocess
import sys

from benchmarks import training

LIMIT = 1800  # seconds


def measure(size, backend, count, steps):
    """Runs `count` processes that split the batch of `size`.

    Args:
        size: `benchmarks.training.Size`.
        backend: `"tensorflow"` or `"jax"`.
        count: int.
        steps: int.

    Returns:
        The median of seconds per step, and MB at the peaks of all together.

    Raises:
        RuntimeError: if a process fails.
    """
    if backend not in ("tensorflow", "jax"):
        raise RuntimeError(f"no processes share a batch with {backend}")
    addresses = [f"localhost:{port}" for port in _free_ports(count)]
    work = {"size": vars(size), "addresses": addresses, "steps": steps}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.replicas", json.dumps(work), str(index)],
            env=os.environ | {"KERAS_BACKEND": backend},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(f"a process failed:\n{errors[-2000:]}")
    results = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
    return (
        statistics.median(results[0]["seconds"]),
        sum(result["memory"] for result in results),
    )


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]


def _worker(work, index):
    """Trains as one of the processes, and prints what that took."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    size = training.Size(**work["size"])
    if os.environ["KERAS_BACKEND"] == "jax":  # whose processes give parts of a batch
        rows = size.batch_size // len(work["addresses"])
        size = dataclasses.replace(size, batch_size=rows)
    with _shared(work["addresses"], index):
        # TensorFlow's compiler can't exchange gradients.
        shares = len(work["addresses"]) > 1
        compiled = os.environ["KERAS_BACKEND"] == "jax" or not shares
        run = training.keras_bertfam(size, jit_compile=compiled)
    seconds = run(work["steps"] + 1)[1:]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "memory": memory}), flush=True)


@contextlib.contextmanager
def _shared(addresses, index):
    """The scope in which a model is one of those that share batches."""
    if len(addresses) == 1:
        yield
    elif os.environ["KERAS_BACKEND"] == "tensorflow":
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        os.environ["TF_CONFIG"] = json.dumps(config)
        import tensorflow as tf

        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            yield
    else:
        import keras

        keras.distribution.initialize(
            job_addresses=",".join(addresses),
            num_processes=len(addresses),
            process_id=index,
        )
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(auto_shard_dataset=False)
        )
        yield


if __name__ == "__main__":
    _worker(json.loads(sys.argv[1]), int(sys.argv[2]))
