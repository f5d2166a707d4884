"""Training steps of language models, and texts that they write, at equal work.

All have the same architecture, batch, dropout and AdamW, and no metrics but the loss;
texts are written greedily or by a beam search, none of them ends, and the loop is
compiled where that is possible. T5's is of version 1.0, with tied tables.
"""

import dataclasses
import functools

import numpy as np

from benchmarks.harness import Benchmark, Competitor, repeated
from benchmarks.training import LEARNING_RATE, fit, fit_ours

NEW_TOKENS = 64
BEAMS = 4


@dataclasses.dataclass(frozen=True)
class Size:
    """An architecture and its batches; T5's encoder and decoder are such stacks."""

    num_layers: int = 4
    hidden_dim: int = 256
    num_heads: int = 4
    batch_size: int = 8
    sequence_length: int = 256
    target_length: int = 59  # of random spans in inputs of 256
    prompt_length: int = 16
    source_length: int = 64
    vocabulary_size: int = 32128

    @property
    def architecture(self):
        return {
            "vocabulary_size": self.vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": 4 * self.hidden_dim,
            "dropout": 0.1,
        }


SIZE = Size()
FAMILIES = ("gpt2", "t5")


def ids(size, length, seed=0):
    """A batch of random ids."""
    rng = np.random.default_rng(seed)
    return rng.integers(3, size.vocabulary_size, (size.batch_size, length), "int32")


def batch(family, size):
    """Full rows, targets and weights, with the names that Keras models have."""
    if family == "gpt2":
        rows = ids(size, size.sequence_length + 1)
        x = {"token_ids": rows[:, :-1]}
        y = rows[:, 1:]
    else:
        y = ids(size, size.target_length, seed=1)
        before = np.pad(y[:, :-1], [[0, 0], [1, 0]])
        x = {"encoder_token_ids": ids(size, size.sequence_length)}
        x["decoder_token_ids"] = before
    masks = {name.replace("token_ids", "padding_mask"): name for name in x}
    x |= {mask: np.ones(x[name].shape, bool) for mask, name in masks.items()}
    return x, y, np.ones(y.shape, "float32")


def our_task(family, size):
    """Our task."""
    import keras_bertfam

    if family == "gpt2":
        length = size.sequence_length
        backbone = keras_bertfam.models.GPT2Backbone(
            **size.architecture, max_sequence_length=length
        )
        return keras_bertfam.tasks.CausalLM(backbone)
    backbone = keras_bertfam.models.T5Backbone(**size.architecture)
    return keras_bertfam.tasks.TextToText(backbone, z_loss=0.0)


def their_task(family, size):
    """KerasHub's task."""
    import keras_hub

    if family == "gpt2":
        backbone = keras_hub.models.GPT2Backbone(
            **size.architecture, max_sequence_length=size.sequence_length
        )
        return keras_hub.models.GPT2CausalLM(backbone)
    backbone = keras_hub.models.T5Backbone(
        **size.architecture, use_gated_activation=False
    )
    return keras_hub.models.T5Seq2SeqLM(backbone)


def their_model(family, size):
    """The model of `transformers`."""
    import transformers

    common = {"vocab_size": size.vocabulary_size}
    if family == "gpt2":
        config = transformers.GPT2Config(
            **common,
            n_positions=size.sequence_length,
            n_embd=size.hidden_dim,
            n_layer=size.num_layers,
            n_head=size.num_heads,
            bos_token_id=0,
            eos_token_id=None,
        )
        return transformers.GPT2LMHeadModel(config)
    config = transformers.T5Config(
        **common,
        d_model=size.hidden_dim,
        d_kv=size.hidden_dim // size.num_heads,
        d_ff=4 * size.hidden_dim,
        num_layers=size.num_layers,
        num_heads=size.num_heads,
        decoder_start_token_id=0,
        eos_token_id=None,
    )
    return transformers.T5ForConditionalGeneration(config)


def train_keras_bertfam(family, size=SIZE):
    """Steps of ours, compiled as in a long `fit()`."""
    return fit_ours(our_task(family, size), batch(family, size))


def train_keras_hub(family, size=SIZE, compiled="auto"):
    """Steps of KerasHub's, by default as Keras compiles them."""
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(LEARNING_RATE)
    task = their_task(family, size)
    return fit(task, batch(family, size), optimizer, loss=loss, jit_compile=compiled)


def train_transformers(family, size=SIZE):
    """Steps of `transformers` in a PyTorch loop."""
    import torch

    model = their_model(family, size).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    x, y, _ = batch(family, size)
    x = {name: torch.tensor(value, dtype=torch.long) for name, value in x.items()}
    side = "encoder_" if family == "t5" else ""
    inputs = {
        "input_ids": x[f"{side}token_ids"],
        "attention_mask": x[f"{side}padding_mask"],
    }
    if family == "t5":
        inputs["decoder_input_ids"] = x["decoder_token_ids"]
    y = torch.tensor(y, dtype=torch.long)

    def step():
        # The models' own labels are to be shifted once more, GPT-2's.
        logits = model(**inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return repeated(step)


def write_keras_bertfam(family, size=SIZE, beams=1):
    """Texts of ours."""
    import keras_bertfam

    settings = keras_bertfam.tasks.GenerationSettings(num_beams=beams)
    sampler = "beam" if beams > 1 else "greedy"
    task = our_task(family, size)
    inputs, begun = _prompts(family, size)
    length = begun + NEW_TOKENS
    return repeated(lambda: task.generate(inputs, length, sampler, None, settings))


def write_keras_hub(family, size=SIZE, compiled="auto", beams=1):
    """Texts of KerasHub's."""
    import keras_hub

    task = their_task(family, size)
    search = keras_hub.samplers.BeamSampler(beams)
    task.compile(sampler=search if beams > 1 else "greedy", jit_compile=compiled)
    inputs, begun = _prompts(family, size)
    prompt = inputs if family == "gpt2" else np.zeros((size.batch_size, 1), "int32")
    rows = {
        "token_ids": np.pad(prompt, [[0, 0], [0, NEW_TOKENS]]),
        "padding_mask": np.arange(begun + NEW_TOKENS)[None] < begun,
    }
    rows["padding_mask"] = np.repeat(rows["padding_mask"], size.batch_size, 0)
    if family == "t5":
        rows = {f"decoder_{name}": value for name, value in rows.items()}
        rows["encoder_token_ids"] = inputs
        rows["encoder_padding_mask"] = np.ones(inputs.shape, bool)
    return repeated(lambda: task.generate(rows, stop_token_ids=None))


def write_transformers(family, size=SIZE, beams=1):
    """Texts of `transformers`."""
    import torch

    model = their_model(family, size).eval()
    inputs = torch.tensor(_prompts(family, size)[0], dtype=torch.long)
    write = functools.partial(
        model.generate,
        inputs,
        attention_mask=torch.ones_like(inputs),
        do_sample=False,
        num_beams=beams,
        max_new_tokens=NEW_TOKENS,
        pad_token_id=0,
    )
    return repeated(write)


def _prompts(family, size):
    """What texts are written for, and how many tokens they begin with."""
    if family == "gpt2":
        return ids(size, size.prompt_length), size.prompt_length
    return ids(size, size.source_length), 1


def _benchmarks(what, family):
    size = f"{SIZE.num_layers} x {SIZE.hidden_dim}, batch {SIZE.batch_size}"
    title = {
        "train": f"Training step of {family}: {size} x {SIZE.sequence_length}",
        "write": f"{NEW_TOKENS} tokens of {family}, greedily: {size}",
        "search": f"{NEW_TOKENS} tokens of {family}, {BEAMS} beams: {size}",
    }[what]
    given = {"beams": BEAMS} if what == "search" else {}
    function = "train" if what == "train" else "write"

    def competitor(side, backend, label="", **arguments):
        build = f"text_to_text:{function}_{side}"
        name = f"{side}, {backend}{label}"
        return Competitor(
            name, build, {"family": family, **given, **arguments}, backend
        )

    for backend in ("tensorflow", "jax", "torch"):
        sides = [competitor(side, backend) for side in ("keras_hub", "keras_bertfam")]
        if backend == "tensorflow":
            compiled = {"label": ", compiled", "compiled": True}
            sides.append(competitor("keras_hub", backend, **compiled))
        if backend == "torch":
            sides.append(competitor("transformers", backend))
        yield f"{what}-{family}-{backend}", Benchmark(f"{title}, {backend}", (*sides,))
    peers = [competitor("transformers", "torch")]
    peers += [competitor("keras_bertfam", name) for name in ("tensorflow", "jax")]
    yield f"{what}-{family}-transformers", Benchmark(title, (*peers,))


BENCHMARKS = {
    name: benchmark
    for what in ("train", "write", "search")
    for family in FAMILIES
    for name, benchmark in _benchmarks(what, family)
}
