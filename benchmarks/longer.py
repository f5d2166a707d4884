"""Training steps of ModernBERT and Longformer at equal work, and long rows.

Batches, masked positions and what is compiled are those of `benchmarks.training`.
`python -m benchmarks.longer` shows how a Longformer's time and memory grow with rows.
"""

import dataclasses

import typer

from benchmarks import harness, tables, training
from benchmarks.harness import Benchmark, Competitor, repeated
from benchmarks.training import LEARNING_RATE, Size

# ModernBERT's masked share is 30 %; dropout, Longformer's too, is 0.
MODERNBERT = Size(
    num_layers=6,
    hidden_dim=384,
    num_heads=6,
    batch_size=8,
    sequence_length=512,
    masked=115,
    vocabulary_size=50368,
)
LONGFORMER = Size(
    num_layers=2,
    hidden_dim=256,
    num_heads=4,
    batch_size=1,
    sequence_length=4096,
    masked=64,
    vocabulary_size=8192,
)
WINDOW = {"modernbert": 128, "longformer": 256}
LENGTHS = (1024, 2048, 4096, 8192, 16384)


def _architecture(size):
    return {**size.architecture, "dropout": 0.0}


def modernbert(size=MODERNBERT):
    """Our masked language model of ModernBERT's shape."""
    import keras_bertfam

    arguments = _architecture(size) | {"intermediate_dim": 3 * size.hidden_dim // 2}
    backbone = keras_bertfam.models.ModernBertBackbone(**arguments)
    return _ours(backbone, size)


def longformer(size=LONGFORMER, full=False):
    """Our masked language model with a window, or all tokens seen."""
    import keras_bertfam

    cls = keras_bertfam.models.LongformerBackbone
    pattern = {"attention_window": WINDOW["longformer"]}
    if full:
        pattern = {"attention_window": None, "max_global_tokens": 0}
    return _ours(cls(**_architecture(size), **pattern), size)


def _ours(backbone, size):
    import keras_bertfam

    x, y, weight = training.batch(size)
    x["padding_mask"] = x["padding_mask"].astype("bool")
    del x["segment_ids"]
    return training.fit_ours(keras_bertfam.tasks.MaskedLM(backbone), (x, y, weight))


def transformers(kind, size=None, gathered=False, full=False):
    """HF's in a PyTorch loop.

    Args:
        kind: `"modernbert"` or `"longformer"`.
        size: a `Size`, or `None` for that of the kind.
        gathered: whether only the masked positions are projected onto the vocabulary.
        full: whether it is RoBERTa, all of whose tokens see all.
    """
    import torch
    import transformers

    size = size or {"modernbert": MODERNBERT, "longformer": LONGFORMER}[kind]
    common = {
        "vocab_size": size.vocabulary_size,
        "hidden_size": size.hidden_dim,
        "num_hidden_layers": size.num_layers,
        "num_attention_heads": size.num_heads,
        "max_position_embeddings": size.sequence_length + 2,
    }
    if kind == "modernbert":
        model = transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(
                **common,
                intermediate_size=3 * size.hidden_dim // 2,
                sparse_prediction=gathered,
            )
        )
    else:
        name = "Roberta" if full else "Longformer"
        config = getattr(transformers, f"{name}Config")(
            **common,
            intermediate_size=4 * size.hidden_dim,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            **({} if full else {"attention_window": WINDOW[kind]}),
        )
        model = getattr(transformers, f"{name}ForMaskedLM")(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    x, y, _ = training.batch(size)
    x = {name: torch.tensor(value, dtype=torch.long) for name, value in x.items()}
    labels = torch.full_like(x["token_ids"], -100)
    labels = labels.scatter(1, x["mask_positions"], torch.tensor(y, dtype=torch.long))
    inputs = {"input_ids": x["token_ids"], "attention_mask": x["padding_mask"]}

    def step():
        value = model(**inputs, labels=labels).loss
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        value.item()

    return repeated(step)


def _benchmarks():
    work = "6 x 384, batch 8 x 512, window 128, 115 masked"
    build = "longer:transformers"
    theirs = [
        Competitor(label, build, {"kind": "modernbert", "gathered": gathered}, "torch")
        for label, gathered in (
            ("transformers as it comes", False),
            ("transformers, sparse_prediction", True),
        )
    ]
    ours = [
        Competitor(f"keras_bertfam, {backend}", "longer:modernbert", {}, backend)
        for backend in ("torch", "tensorflow", "jax")
    ]
    title = f"Training step of ModernBERT: {work}"
    yield "train-modernbert", Benchmark(title, (*theirs, *ours))
    work = "2 x 256, 1 x 4096, window 256, 64 masked"
    for backend in ("torch", "tensorflow", "jax"):
        sides = [
            Competitor(
                f"keras_bertfam, {seen}", "longer:longformer", {"full": full}, backend
            )
            for seen, full in (("all tokens", True), ("window", False))
        ]
        if backend == "torch":
            sides += [
                Competitor(
                    f"transformers, {seen}",
                    build,
                    {"kind": "longformer", "full": full},
                    backend,
                )
                for seen, full in (("all tokens", True), ("window", False))
            ]
        title = f"Training step of Longformer, {backend}: {work}"
        yield f"train-longformer-{backend}", Benchmark(title, tuple(sides))


BENCHMARKS = dict(_benchmarks())


def main(backend: str = "torch", rounds: int = 3, steps: int = 1, longest: int = 16384):
    """Time and memory of steps of rows of more and more tokens."""
    rows = []
    for length in (n for n in LENGTHS if n <= longest):
        size = dataclasses.replace(LONGFORMER, sequence_length=length)
        row = {"tokens": str(length)}
        for name, build, arguments in (
            ("window", "longformer", {}),
            ("all tokens", "longformer", {"full": True}),
            ("transformers", "transformers", {"kind": "longformer"}),
        ):
            side = Competitor(
                name, f"longer:{build}", arguments | {"size": size}, backend
            )
            benchmark = Benchmark("", (side,))
            (result,) = harness.measure(benchmark, rounds, steps)
            times = sorted(time for each in result.rounds for time in each)
            row[f"{name}, ms"] = 1e3 * times[len(times) // 2]
            row[f"{name}, MB"] = result.memory
        rows.append(row)
        print(tables.markdown(rows[-1:]), flush=True)
    print(tables.markdown(rows))


if __name__ == "__main__":
    typer.run(main)
