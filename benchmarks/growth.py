"""`python -m benchmarks.growth`: how a training step's time and memory grow.

One thing grows, the rest stays: the rows' length, layers, batch, vocabulary, masked
positions, and processes that share a batch. Beside what is measured stands what
`benchmarks.laws` expects, both as multiples of the first measurement. Each measurement
has a process of its own, whose peak memory is the system's count.
"""

import dataclasses
import json
import os
import pathlib
import sys
from typing import Annotated

import typer

from benchmarks import harness, laws, replicas, tables, training
from benchmarks.harness import Benchmark, Competitor

SMALL = training.SIZES["small"]
TINY = training.Size(
    num_layers=2,
    hidden_dim=32,
    num_heads=2,
    batch_size=4,
    sequence_length=16,
    masked=2,
    vocabulary_size=1100,
)
# Half of a row's 512 tokens can be masked in rows that are at least 3/4 full.
HEAD = training.Size(
    num_layers=2,
    hidden_dim=128,
    num_heads=2,
    batch_size=256,
    sequence_length=512,
    masked=4,
)


@dataclasses.dataclass(frozen=True)
class Axis:
    """What grows: the argument of `Size`, its values, and the size of all else."""

    name: str
    argument: str
    values: tuple
    size: training.Size = SMALL

    def sizes(self):
        for value in self.values:
            yield value, dataclasses.replace(self.size, **{self.argument: value})


AXES = {
    "length": Axis("tokens in a row", "sequence_length", (64, 128, 256, 512, 1024)),
    "layers": Axis("layers", "num_layers", (2, 4, 8, 16, 24)),
    "batch": Axis("rows in a batch", "batch_size", (8, 16, 32, 64, 128)),
    "vocabulary": Axis(
        "vocabulary", "vocabulary_size", (4000, 8000, 16000, 32000, 64000)
    ),
    # 1k, 4k, 16k and 64k masked positions in a batch.
    "masked": Axis("masked in a row", "masked", (4, 16, 64, 256), HEAD),
    "replicas": Axis("processes", "", (1, 2, 4)),
}
TINY_VALUES = {
    "length": (16, 32),
    "layers": (2, 3),
    "batch": (4, 8),
    "vocabulary": (1100, 2200),
    "masked": (2, 4),
    "replicas": (1, 2),
}


def ours(size):
    """Our masked language model.

    The process is the first that the system ends when memory runs out.
    """
    score = pathlib.Path("/proc/self/oom_score_adj")
    if score.exists():
        score.write_text("1000")
    return training.keras_bertfam(size)


def measure(size, backend, rounds, steps):
    """Seconds per step and the process's peak in MB."""
    competitor = Competitor("step", "growth:ours", {"size": size}, backend)
    (result,) = harness.measure(Benchmark("", (competitor,)), rounds, steps)
    seconds = sorted(time for one_round in result.rounds for time in one_round)
    return seconds[len(seconds) // 2], result.memory


def row(axis, value, seconds, memory, size, first, chunk=None):
    """A row of the table.

    Args:
        axis: `Axis`.
        value: int.
        seconds: float, measured.
        memory: float, MB, measured.
        size: `Size`.
        first: the first row, or `None` for that row itself.
        chunk: see `laws.step_bytes`.
    """
    made = {
        axis.name: str(value),
        "ms": 1e3 * seconds,
        "GFLOP": laws.step_flops(size) / 1e9,
        "GFLOP/s": laws.step_flops(size) / 1e9 / seconds,
        "time": 1.0,
        "expected": 1.0,
        "peak MB": memory,
        "MB more": 0.0,
        "expected MB": laws.step_bytes(size, chunk) / 1e6,
    }
    if first is not None:
        made["time"] = made["ms"] / first["ms"]
        made["expected"] = made["GFLOP"] / first["GFLOP"]
        made["MB more"] = memory - first["peak MB"]
    return made


def replica_row(axis, count, seconds, memory, size, first):
    """A row of the table of processes; memory is that of all together.

    What each has imported is measured too, but no part of what is expected.
    """
    made = row(axis, count, seconds, memory, size, first)
    made["expected"] = laws.replica_seconds(1.0, count, os.cpu_count())
    made["expected MB"] = laws.step_bytes(size, replicas=count) / 1e6
    return made


def relative_to_first(rows):
    """Rows whose expected memory is what is added to the first row's, as measured."""
    start = rows[0]["expected MB"]
    return [
        made | {"expected MB more": made.pop("expected MB") - start}
        for made in map(dict, rows)
    ]


def picture(found, path):
    """A picture with a column for each axis: times above, memory below."""
    panels = []
    for measured, expected, label, scale in (
        ("time", "expected", "time, of the first", "log"),
        ("MB more", "expected MB more", "MB more than the first", "linear"),
    ):
        for name, rows in found.items():
            x_label = next(iter(rows[0]))
            x = [int(made[x_label]) for made in rows]
            panels.append(
                {
                    "lines": {"measured": (x, [made[measured] for made in rows])},
                    "expected": {"measured": (x, [made[expected] for made in rows])},
                    "title": name,
                    "xlabel": x_label,
                    "ylabel": f"{label} (dashed: expected)",
                    "xscale": "log",
                    "yscale": scale,
                    "xticks": x,
                    "xticklabels": [f"{value:,}" for value in x],
                }
            )
    tables.draw(panels, path, columns=len(found))


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(AXES)}; all without.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Of Keras.")] = "tensorflow",
    rounds: Annotated[int, typer.Option(min=1)] = 2,
    steps: Annotated[int, typer.Option(help="In each round.", min=1)] = 3,
    tiny: Annotated[bool, typer.Option(help="Small sizes, to try it out.")] = False,
    chunk: Annotated[
        int | None, typer.Option(help="Masked positions of which logits exist at once.")
    ] = None,
    output: Annotated[
        str, typer.Option(help="A folder for growth.json and growth.png.")
    ] = ".",
):
    """Print a table for each axis and draw all of them."""
    for name in names or ():
        if name not in AXES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(AXES)}")
    found = {}
    for name in names or AXES:
        axis = AXES[name]
        if tiny:
            axis = dataclasses.replace(axis, values=TINY_VALUES[name], size=TINY)
        rows = []
        for value, size in _points(axis):
            first = rows[0] if rows else None
            print(f"{name}: {value}", file=sys.stderr, flush=True)
            try:
                if name == "replicas":
                    taken = replicas.measure(size, backend, value, rounds * steps)
                    rows.append(replica_row(axis, value, *taken, size, first))
                else:
                    taken = measure(size, backend, rounds, steps)
                    rows.append(row(axis, value, *taken, size, first, chunk))
            except RuntimeError as error:  # of too little memory, mostly
                print(f"{name}: {value} failed: {error}", file=sys.stderr)
        if rows:
            found[name] = relative_to_first(rows)
            print(f"### {name}, {backend}: {_work(axis)}\n")
            print(tables.markdown(found[name]), end="\n\n", flush=True)
    if not found:
        raise SystemExit("nothing could be measured")
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "growth.json").write_text(json.dumps(found, indent=1))
    picture(found, folder / "growth.png")


def _points(axis):
    return axis.sizes() if axis.argument else ((n, axis.size) for n in axis.values)


def _work(axis):
    size = axis.size
    parts = {
        "num_layers": f"{size.num_layers} layers",
        "hidden_dim": f"{size.hidden_dim} wide",
        "batch_size": f"{size.batch_size} rows",
        "sequence_length": f"{size.sequence_length} tokens",
        "masked": f"{size.masked} masked",
        "vocabulary_size": f"{size.vocabulary_size} words",
    }
    return ", ".join(text for name, text in parts.items() if name != axis.argument)


if __name__ == "__main__":
    typer.run(main)
