"""`python -m benchmarks`: measure and print Markdown tables."""

import fnmatch
import importlib.metadata
import os
import platform
import sys
from typing import Annotated

import typer

from benchmarks import (
    conversion,
    deberta,
    denoising,
    electra,
    embeddings,
    finetune,
    harness,
    imports,
    longer,
    pipeline,
    prepared,
    quantization,
    sentences,
    serving,
    text_to_text,
    training,
)

BENCHMARKS = {
    name: benchmark
    for module in (
        training,
        text_to_text,
        longer,
        deberta,
        sentences,
        electra,
        pipeline,
        prepared,
        denoising,
        imports,
        conversion,
        finetune,
        serving,
        quantization,
        embeddings,
    )
    for name, benchmark in module.BENCHMARKS.items()
}
PACKAGES = ("keras", "keras-hub", "tensorflow", "jax", "torch", "transformers")


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names or patterns; all without.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Times each one is asked.", min=1)] = 7,
    steps: Annotated[int, typer.Option(help="Steps each time.", min=1)] = 4,
    quick: Annotated[
        bool, typer.Option(help="3 rounds of 2 steps, without the base size.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Name the benchmarks and stop.")
    ] = False,
):
    """Measure ours beside the peers; speed is relative to each table's first row."""
    chosen = _chosen(names or ["*"])
    if quick:
        rounds, steps = 3, 2
        chosen = [name for name in chosen if names or "-base-" not in name]
    if show:
        print("\n".join(chosen))
        return
    print(f"{_machine()}; {rounds} rounds of {steps} steps\n", flush=True)
    for name in chosen:
        benchmark = BENCHMARKS[name]
        results = harness.measure(
            benchmark,
            rounds,
            steps,
            report=lambda message, name=name: print(
                f"{name}: {message}", file=sys.stderr
            ),
        )
        print(harness.table(benchmark, results), end="\n\n", flush=True)


def _chosen(patterns):
    for pattern in patterns:
        if not fnmatch.filter(BENCHMARKS, pattern):
            raise typer.BadParameter(
                f"no benchmark is named {pattern!r}; there are {', '.join(BENCHMARKS)}"
            )
    return [
        name
        for name in BENCHMARKS
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]


def _machine():
    versions = ", ".join(
        f"{package} {importlib.metadata.version(package)}" for package in PACKAGES
    )
    return (
        f"{os.cpu_count()} CPU cores ({platform.machine()}), "
        f"Python {platform.python_version()}, {versions}"
    )


if __name__ == "__main__":
    typer.run(main)
