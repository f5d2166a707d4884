"""`python -m benchmarks.gpu`: packed pre-training on an accelerator, in bfloat16.

Ours with JAX and PyTorch beside `transformers`, all with the same sequences of uneven
length, the same architecture and, with PyTorch, the same kernel of attention. Counted
are useful tokens, those that aren't padding, and of the operations those that such
tokens need, as a share of the device's peak.
"""

import dataclasses
import os
import statistics
import sys
from typing import Annotated

import typer

from benchmarks import harness, tables, training
from benchmarks.gpu_rows import packed_batch, padded_batches, useful
from benchmarks.harness import Benchmark, Competitor, repeated

SIZES = {
    "base": training.Size(
        num_layers=12,
        hidden_dim=768,
        num_heads=12,
        batch_size=32,
        sequence_length=512,
        masked=77,
    ),
    "tiny": training.Size(
        num_layers=1,
        hidden_dim=32,
        num_heads=2,
        batch_size=2,
        sequence_length=32,
        masked=5,
        vocabulary_size=1100,
    ),
}
# Operations per second in bfloat16 without sparsity, as their makers say.
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "L4": 121e12}


def keras_bertfam(size, compiled=True):
    """Our masked language model on packed rows.

    Args:
        size: `benchmarks.training.Size`.
        compiled: bool. Whether the step is one graph.
    """
    import keras

    import keras_bertfam

    keras.config.set_dtype_policy("mixed_bfloat16")
    batch = packed_batch(size)
    x = {name: batch[name] for name in ("token_ids", "sequence_ids")}
    x["padding_mask"] = batch["padding_mask"].astype("bool")
    x["mask_positions"] = batch["positions"]
    backbone = keras_bertfam.models.BertBackbone(
        **size.architecture, attention_dropout=size.attention_dropout
    )
    model = keras_bertfam.tasks.MaskedLM(backbone)
    elements = x, batch["labels"], batch["weights"]
    run = training.fit_ours(model, elements, jit_compile=compiled)
    return with_memory(run, keras.backend.backend())


def with_memory(run, framework):
    """Steps that know the most MB of the GPU that they had."""

    def memory():
        if framework == "torch":
            import torch

            # 0 on a CPU.
            return torch.cuda.max_memory_allocated() / 2**20
        import jax

        found = jax.local_devices()[0].memory_stats() or {}
        return found.get("peak_bytes_in_use", 0) / 2**20

    run.memory = memory
    return run


def transformers(size, rows, attention, compiled):
    """HF's masked language model under autocast.

    Args:
        size: `benchmarks.training.Size`.
        rows: `"padded"`, a sequence a row in batches padded to their longest; or
            `"packed"`, the rows that ours has, by a mask of `(length, length)` and
            with the masked positions gathered by hand.
        attention: `"sdpa"`, `"eager"`, or with padded rows `"flash_attention_2"`.
        compiled: bool. Whether by `torch.compile`.
    """
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    architecture = size.architecture
    model = transformers.BertForMaskedLM._from_config(
        transformers.BertConfig(
            vocab_size=architecture["vocabulary_size"],
            hidden_size=architecture["hidden_dim"],
            num_hidden_layers=architecture["num_layers"],
            num_attention_heads=architecture["num_heads"],
            intermediate_size=architecture["intermediate_dim"],
            max_position_embeddings=architecture["max_sequence_length"],
            attention_probs_dropout_prob=size.attention_dropout,
        ),
        attn_implementation=attention,
    )
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=training.LEARNING_RATE, fused=True
    )
    packed = rows == "packed"
    batches = [packed_batch(size)] if packed else padded_batches(size)
    batches = [
        {name: torch.tensor(value, device=device) for name, value in batch.items()}
        for batch in batches
    ]
    for batch in batches:
        for name in ("labels", "positions"):
            if name in batch:
                batch[name] = batch[name].long()
    loss = _packed_loss(model) if packed else _padded_loss(model)
    if compiled:
        loss = torch.compile(loss)

    def step():
        for batch in batches:
            with torch.autocast(device, torch.bfloat16):
                value = loss(batch)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
        value.item()

    return with_memory(repeated(step), "torch")


def _padded_loss(model):
    def loss(batch):
        return model(
            batch["token_ids"], batch["padding_mask"], labels=batch["labels"]
        ).loss

    return loss


def _packed_loss(model):
    import torch

    def loss(batch):
        numbers, positions = batch["sequence_ids"], batch["positions"]
        same = (numbers[:, None, :, None] == numbers[:, None, None, :]).float()
        states = model.bert(
            batch["token_ids"],
            attention_mask=(1.0 - same) * torch.finfo(torch.float32).min,
            position_ids=batch["position_ids"],
        ).last_hidden_state
        states = states[torch.arange(len(positions))[:, None], positions]
        logits = model.cls(states).flatten(0, 1)
        losses = torch.nn.functional.cross_entropy(
            logits.float(), batch["labels"].flatten(), reduction="none"
        )
        weights = batch["weights"].flatten()
        return (losses * weights).sum() / weights.sum()

    return loss


def competitors(size, attention, compiled):
    """Ours on two backends, after theirs on padded and on packed rows."""
    theirs = tuple(
        Competitor(
            f"transformers, {rows} rows, {kernel}",
            "gpu:transformers",
            {"size": size, "rows": rows, "attention": kernel, "compiled": compiled},
            "torch",
        )
        # Their flash kernel takes no mask of two dimensions.
        for rows, kernel in (
            ("padded", attention),
            ("packed", "eager" if attention == "eager" else "sdpa"),
        )
    )
    ours = tuple(
        Competitor(
            f"keras_bertfam, packed rows, {name}",
            "gpu:keras_bertfam",
            {"size": size, "compiled": whole},
            backend,
        )
        for name, backend, whole in (
            ("JAX", "jax", True),
            ("PyTorch", "torch", False),
            ("PyTorch, jit_compile=True", "torch", True),
        )
    )
    return theirs + ours


def table(results, tokens, flops, peak):
    """A Markdown table of results, relative to the first."""
    rows = []
    medians = [statistics.median(sum(result.rounds, [])) for result in results]
    for result, seconds in zip(results, medians, strict=True):
        row = {
            "": result.name,
            "useful tokens/s": tokens / seconds,
            "speed": medians[0] / seconds,
            "TFLOP/s": flops / seconds / 1e12,
            "peak GB": result.memory / 1024,
        }
        if peak:
            row["of the peak, %"] = 100 * flops / seconds / peak
        rows.append(row)
    return tables.markdown(rows)


def device_and_peak(device):
    """A device's name, and its operations per second in bfloat16, `None` if unknown."""
    import torch

    if device == "cpu":
        return "a CPU", None
    if not torch.cuda.is_available():
        raise typer.BadParameter(f"PyTorch finds no {device!r}; try --device cpu")
    name = torch.cuda.get_device_name()
    return name, next((PEAKS[key] for key in PEAKS if key in name), None)


def main(
    size: Annotated[str, typer.Option(help=" or ".join(SIZES))] = "base",
    device: Annotated[str, typer.Option(help="cuda or cpu")] = "cuda",
    batch_size: Annotated[int | None, typer.Option(help="Packed rows.")] = None,
    attention: Annotated[
        str, typer.Option(help="Of transformers: sdpa, flash_attention_2 or eager.")
    ] = "sdpa",
    compiled: Annotated[
        bool, typer.Option(help="Whether transformers by torch.compile.")
    ] = False,
    peak: Annotated[
        float | None, typer.Option(help="The device's TFLOP/s in bfloat16.")
    ] = None,
    attention_dropout: Annotated[
        float, typer.Option(help="Dropout rate of attention probabilities.")
    ] = 0.1,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    steps: Annotated[int, typer.Option(help="In each round.", min=1)] = 10,
):
    """Print a table of useful tokens per second and of the share of the peak."""
    if device == "cpu":
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # others are beside it
    chosen = SIZES[size]
    chosen = dataclasses.replace(
        chosen,
        batch_size=batch_size or chosen.batch_size,
        attention_dropout=attention_dropout,
    )
    name, known = device_and_peak(device)
    tokens, flops = useful(chosen)
    places = chosen.batch_size * chosen.sequence_length
    benchmark = Benchmark(
        f"{size} on {name}: {tokens} useful tokens in packed rows of "
        f"{chosen.batch_size} x {chosen.sequence_length} ({tokens / places:.1%} full)",
        competitors(chosen, attention, compiled),
    )
    results = harness.measure(
        benchmark, rounds, steps, report=lambda line: print(line, file=sys.stderr)
    )
    print(f"### {benchmark.title}\n")
    print(table(results, tokens, flops, known if peak is None else 1e12 * peak))


if __name__ == "__main__":
    typer.run(main)
