"""Training steps of masked language models at equal work.

All competitors have the same architecture, batch, masked positions, dropout and
optimizer, and no metrics but the loss. Keras models run in `fit()`, compiled as they
are in a long one: ours under TensorFlow, all under JAX.
"""

import dataclasses
import time

import numpy as np

from benchmarks import laws
from benchmarks.harness import Benchmark, Competitor, repeated

VOCABULARY_SIZE = 30522
MASK_ID = 103
FIRST_WORD_ID = 1000
LEARNING_RATE = 1e-4


@dataclasses.dataclass(frozen=True)
class Size:
    """An architecture and the batch that it is trained on."""

    num_layers: int
    hidden_dim: int
    num_heads: int
    batch_size: int
    sequence_length: int = 128
    masked: int = 20
    vocabulary_size: int = VOCABULARY_SIZE
    attention_dropout: float = 0.1

    @property
    def architecture(self):
        return {
            "vocabulary_size": self.vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": 4 * self.hidden_dim,
            "max_sequence_length": max(512, self.sequence_length),
            "dropout": 0.1,
        }


SIZES = {
    "small": Size(num_layers=4, hidden_dim=256, num_heads=4, batch_size=32),
    "base": Size(num_layers=12, hidden_dim=768, num_heads=12, batch_size=8),
}


def batch(size):
    """A batch of random ids with rows 75 to 100 % full."""
    rng = np.random.default_rng(0)
    shape = (size.batch_size, size.sequence_length)
    lengths = rng.integers(3 * shape[1] // 4, shape[1] + 1, (shape[0], 1))
    padding_mask = np.arange(shape[1]) < lengths
    ids = rng.integers(FIRST_WORD_ID, size.vocabulary_size, shape) * padding_mask
    positions = np.stack(
        [rng.choice(np.arange(1, n), size.masked, replace=False) for (n,) in lengths]
    )
    positions.sort(axis=1)
    labels = np.take_along_axis(ids, positions, axis=1)
    np.put_along_axis(ids, positions, MASK_ID, axis=1)
    x = {
        "token_ids": ids.astype("int32"),
        "segment_ids": np.zeros(shape, "int32"),
        "padding_mask": padding_mask.astype("int32"),
        "mask_positions": positions.astype("int32"),
    }
    return x, labels.astype("int32"), np.ones(labels.shape, "float32")


def keras_bertfam(size, precision="float32", **compile_arguments):
    """Our masked language model.

    Args:
        size: str, a key of `SIZES`, or a `Size`.
        precision: str. Keras's policy.
        **compile_arguments: of `compile()`.
    """
    import keras

    import keras_bertfam

    keras.config.set_dtype_policy(precision)
    size = SIZES.get(size, size)
    backbone = keras_bertfam.models.BertBackbone(**size.architecture)
    x, y, weight = batch(size)
    x["padding_mask"] = x["padding_mask"].astype("bool")
    task = keras_bertfam.tasks.MaskedLM(backbone)
    return fit_ours(task, (x, y, weight), **compile_arguments)


def fit_ours(task, elements, **compile_arguments):
    """Steps of a task, compiled as in a `fit()` of fifty of them or more."""
    import keras

    import keras_bertfam

    optimizer = keras_bertfam.optimizers.AdamW(LEARNING_RATE)
    # A graph of PyTorch takes a minute to compile.
    compiles = {"jax": True, "tensorflow": task.compute_dtype == "float32"}
    usual = compiles.get(keras.backend.backend(), False)
    compile_arguments.setdefault("jit_compile", usual)
    return fit(task, elements, optimizer, **compile_arguments)


def keras_hub(size, compiled="auto", precision="float32"):
    """KerasHub's masked language model, by default as Keras compiles it."""
    import keras
    import keras_hub

    keras.config.set_dtype_policy(precision)
    size = SIZES[size]
    model = keras_hub.models.BertMaskedLM(
        keras_hub.models.BertBackbone(**size.architecture)
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(LEARNING_RATE)
    return fit(model, batch(size), optimizer, loss=loss, jit_compile=compiled)


def fit(model, elements, optimizer, **compile_arguments):
    import tensorflow as tf

    model.compile(optimizer, weighted_metrics=None, **compile_arguments)
    dataset = tf.data.Dataset.from_tensors(elements).cache().repeat().prefetch(2)
    return fit_steps(model, dataset)


def fit_steps(model, dataset):
    """Steps of `fit()` on batches without end."""
    import keras

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.times = []

        def on_train_batch_end(self, step, logs=None):
            float(logs["loss"])  # wait for the step where they are asynchronous
            self.times.append(time.perf_counter())

    def run(steps):
        clock = Clock()
        # One step more: the first of every call pays for the call.
        model.fit(dataset, steps_per_epoch=steps + 1, verbose=0, callbacks=[clock])
        return np.diff(clock.times).tolist()

    return run


def transformers(size, gathered, bfloat16=False):
    """HF's masked language model in a PyTorch loop.

    Args:
        size: str. A key of `SIZES`.
        gathered: bool. Whether only the masked positions are projected onto the
            vocabulary, which a user has to write by hand.
        bfloat16: bool. Whether PyTorch computes in 16 bits where it finds it safe.
    """
    import torch
    import transformers

    size = SIZES[size]
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=size.hidden_dim,
            num_hidden_layers=size.num_layers,
            num_attention_heads=size.num_heads,
            intermediate_size=4 * size.hidden_dim,
        )
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    x, y, _ = batch(size)
    x = {name: torch.tensor(value, dtype=torch.long) for name, value in x.items()}
    y = torch.tensor(y, dtype=torch.long)
    positions = x["mask_positions"]
    inputs = {
        "input_ids": x["token_ids"],
        "token_type_ids": x["segment_ids"],
        "attention_mask": x["padding_mask"],
    }
    labels = torch.full_like(x["token_ids"], -100).scatter(1, positions, y)

    def loss():
        if not gathered:
            return model(**inputs, labels=labels).loss
        states = model.bert(**inputs).last_hidden_state
        states = states[torch.arange(len(positions))[:, None], positions]
        logits = model.cls(states).flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, y.flatten())

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        value.item()

    return repeated(step)


def products(count, dtype="float32"):
    """Products of square matrices and nothing else: the most that a machine can."""
    import torch

    values = np.random.default_rng(0).normal(size=(1024, 1024))
    x = torch.tensor(values, dtype=getattr(torch, dtype))

    def step():
        for _ in range(count):
            torch.mm(x, x)

    return repeated(step)


def _products(flops, dtype="float32"):
    """So many operations at the machine's peak."""
    count = round(flops / (2 * 1024**3))
    return Competitor(
        f"{count} products of 1024 x 1024 in {dtype}",
        "training:products",
        {"count": count, "dtype": dtype},
        "torch",
    )


def _benchmarks(name):
    size = SIZES[name]
    work = (
        f"{size.num_layers} x {size.hidden_dim}, batch {size.batch_size} x "
        f"{size.sequence_length}, {size.masked} masked"
    )

    def keras_model(build, backend):
        return Competitor(
            f"{build}, {backend}", f"training:{build}", {"size": name}, backend
        )

    for backend in ("tensorflow", "jax", "torch"):
        sides = tuple(
            keras_model(build, backend) for build in ("keras_hub", "keras_bertfam")
        )
        if backend == "tensorflow":
            settings = {"size": name, "compiled": True}
            build = "training:keras_hub"
            compiled = Competitor("keras_hub, compiled", build, settings, backend)
            sides = (*sides, compiled)
        # What of the step nobody can avoid, so that its share of the peak is seen.
        sides = (*sides, _products(laws.step_flops(size)))
        yield (
            f"train-{name}-{backend}",
            Benchmark(f"Training step, {backend}: {work}", sides),
        )
    for backend in ("tensorflow", "torch"):
        policy = "mixed_bfloat16"
        sides = tuple(
            Competitor(
                f"{build}, {precision}",
                f"training:{build}",
                {"size": name, "precision": precision},
                backend,
            )
            for build, precision in (
                ("keras_hub", policy),
                ("keras_bertfam", "float32"),
                ("keras_bertfam", policy),
            )
        )
        if backend == "torch":
            settings = {"size": name, "gathered": True, "bfloat16": True}
            build = "training:transformers"
            sides = (*sides, Competitor("transformers", build, settings, backend))
        sides = (*sides, _products(laws.step_flops(size), "bfloat16"))
        title = f"Training step in 16 bits, {backend}: {work}"
        yield f"train-{name}-bfloat16-{backend}", Benchmark(title, sides)
    peers = tuple(
        Competitor(
            label,
            "training:transformers",
            {"size": name, "gathered": gathered},
            "torch",
        )
        for label, gathered in (
            ("transformers as it comes", False),
            ("transformers, positions gathered by hand", True),
        )
    )
    ours = tuple(
        keras_model("keras_bertfam", backend) for backend in ("tensorflow", "torch")
    )
    yield (
        f"train-{name}-transformers",
        Benchmark(f"Training step beside transformers: {work}", peers + ours),
    )


BENCHMARKS = {key: value for name in SIZES for key, value in _benchmarks(name)}
BENCHMARKS["products"] = Benchmark(
    "Most of the machine",
    (_products(16 * 2 * 1024**3),),
    16 * 2 * 1024**3 / 1e9,
    "GFLOP",
)
