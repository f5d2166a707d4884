"""`python -m benchmarks.quality_per_minute FILES`: what a budget of minutes teaches.

Ours, KerasHub's and that of `transformers`, one after the other, each in a process of
its own on the same number of cores: the same text, size, optimizer and time, from
strings to weights. Imports aren't counted; compilation is; evaluation stops the clock.
With `--ablate`, recipes of ours take the place of the sides.
"""

import json
import multiprocessing
import os
import pathlib
import sys
from typing import Annotated

import typer

from benchmarks import budget_sides, corpus, recipes, tables
from benchmarks.held_out import read_paragraphs

DEFAULT_SIDES = "keras_bertfam", "keras_hub", "transformers"


def run(name, side, backend, threads, work):
    """Trains one side in a process of its own, which writes its curve."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_train, args=(side, backend, threads, work))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{name}: the process ended with code {process.exitcode}")


def _train(side, backend, threads, work):
    os.environ["KERAS_BACKEND"] = backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Every framework takes as many threads as there are cores for its process.
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cores)
    budget_sides.SIDES[side](work)


def read_points(path):
    """The points of all curves in a file, by name; of two runs of a name, the last."""
    curves = {}
    with open(path, encoding="utf-8") as file:
        for point in map(json.loads, file):
            points = curves.setdefault(point["name"], [])
            if points and point["steps"] <= points[-1]["steps"]:
                points.clear()
            points.append(point)
    return curves


def table(curves):
    """A Markdown table of where the curves end."""
    rows = []
    for name, points in curves.items():
        last = points[-1]
        rows.append(
            {
                "": name,
                "backend": last["backend"],
                "minutes": last["seconds"] / 60,
                "steps": last["steps"],
                "masked accuracy": last["masked_accuracy"],
                "in blocks": last["blocks"],
                "in paragraphs": last["paragraphs"],
                "pseudo-perplexity": last["pseudo_perplexity"],
            }
        )
    return tables.markdown(rows)


def picture(curves, path):
    """A picture of both scores over the time that was used."""
    panels = []
    for key, label in (
        ("masked_accuracy", "masked accuracy, held out"),
        ("pseudo_perplexity", "pseudo-perplexity, held out"),
    ):
        lines = {
            name: ([p["seconds"] / 60 for p in points], [p[key] for p in points])
            for name, points in curves.items()
        }
        panels.append({"lines": lines, "xlabel": "minutes", "ylabel": label})
    panels[1]["yscale"] = "log"
    tables.draw(panels, path)


def main(
    files: Annotated[
        str, typer.Argument(help="A glob of text files, a tenth of them held out.")
    ] = "",
    side: Annotated[
        list[str], typer.Option(help=f"Of {', '.join(budget_sides.SIDES)}.")
    ] = DEFAULT_SIDES,
    ours: Annotated[
        str, typer.Option(help="Our recipe: 'dropout=0,norm_first=true'.")
    ] = "",
    ablate: Annotated[
        bool, typer.Option(help="Our recipes one by one, each added to --ours.")
    ] = False,
    candidate: Annotated[
        list[str] | None, typer.Option(help="Of --ablate, only these names.")
    ] = None,
    candidates: Annotated[
        str, typer.Option(help="A file of lines of 'name: dropout=0'.")
    ] = "",
    minutes: Annotated[float, typer.Option(help="The budget of each.", min=0)] = 10,
    backend: Annotated[str, typer.Option(help="Of Keras.")] = "tensorflow",
    precision: Annotated[
        str, typer.Option(help="Of all sides: Keras's policy.")
    ] = "float32",
    learning_rate: Annotated[float, typer.Option(help="Of all sides.")] = 1e-3,
    warmup: Annotated[float, typer.Option(help="Share of the budget.")] = 0.1,
    layers: int = 4,
    width: int = 256,
    heads: int = 4,
    length: int = 128,
    batch_size: int = 32,
    vocabulary: Annotated[
        str, typer.Option(help="vocab.txt; that of the data folder without.")
    ] = "",
    points: Annotated[int, typer.Option(help="Evaluations.", min=1)] = 10,
    rows: Annotated[int, typer.Option(help="Held-out rows.", min=2)] = 512,
    sentences: Annotated[int, typer.Option(help="Held-out sentences.", min=1)] = 200,
    threads: Annotated[int, typer.Option(help="Cores for each.", min=1)] = 2,
    seed: int = 0,
    output: Annotated[
        str, typer.Option(help="The file of the points; others are beside it.")
    ] = "quality_per_minute.jsonl",
    plot: Annotated[
        bool, typer.Option(help="Only show what the file has already.")
    ] = False,
):
    """Print a table and write a picture of what is learned over time."""
    if plot:
        _show(output)
        return
    base = recipes.Recipe(
        sequence_length=length,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warmup=warmup,
        precision=precision,
    )
    chosen = _chosen(base, side, ours, ablate, candidate, candidates)
    train, held_out = read_paragraphs(files)
    failed = []
    tokens = _vocabulary(vocabulary)
    for name, which, recipe in chosen:
        theirs = "torch" if which.startswith("transformers") else backend
        theirs = recipe.backend or theirs
        work = budget_sides.Work(
            train=train,
            held_out=held_out,
            vocabulary=tokens,
            recipe=recipe,
            seconds=60 * minutes,
            num_layers=layers,
            hidden_dim=width,
            num_heads=heads,
            points=points,
            rows=rows,
            sentences=sentences,
            seed=seed,
            output=os.path.abspath(output),
            known={
                "name": name,
                "side": which,
                "backend": theirs,
                "threads": threads,
                "recipe": vars(recipe),
            },
        )
        print(f"{name}: {minutes:g} minutes", file=sys.stderr, flush=True)
        try:
            run(name, which, theirs, threads, work)
        except RuntimeError as error:  # the others are still worth their time
            failed.append(str(error))
    _show(output)
    if failed:
        raise SystemExit("\n".join(failed))


def _chosen(base, sides, ours, ablate, names, path):
    """Names, sides and recipes of what is to be run."""
    for side in sides:
        if side not in budget_sides.SIDES:
            raise typer.BadParameter(
                f"{side!r} is none of {', '.join(budget_sides.SIDES)}"
            )
    own = recipes.parse(ours, base)
    if not ablate:
        return [(s, s, own if s == "keras_bertfam" else base) for s in sides]
    known = recipes.read_candidates(path) if path else recipes.CANDIDATES
    unknown = set(names or ()) - set(known)
    if unknown:
        raise typer.BadParameter(f"{sorted(unknown)} not among {', '.join(known)}")
    return [
        (name, "keras_bertfam", recipes.parse(known[name], own))
        for name in (names or known)
    ]


def _vocabulary(path):
    if not path:
        return corpus.vocabulary()
    return pathlib.Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")


def _show(output):
    curves = read_points(output)
    print(table(curves))
    picture(curves, pathlib.Path(output).with_suffix(".png"))


if __name__ == "__main__":
    typer.run(main)
