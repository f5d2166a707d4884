"""Fine-tune on labels: python finetune_classification.py --task sst2 ...

A task may have texts or pairs of them with a class or a number (GLUE), words with a
label each (CoNLL-2003, WNUT-17) or a head and a relation (GENIA), two spans and how
they are related (ChemProt, SciERC), or choices (RACE, SWAG).
`--preset` is the name of a published checkpoint, or a folder: one of ours, or one of
`transformers`. `--data` is the folder with the task's files; without it they are
downloaded. Set KERAS_BACKEND to choose the backend.
"""

import statistics
import sys
import time
from typing import Annotated

import keras
import typer

import keras_bertfam

CLASSES = {
    "classification": keras_bertfam.tasks.TextClassifier,
    "regression": keras_bertfam.tasks.TextRegressor,
    "tagging": keras_bertfam.tasks.TokenClassifier,
    "parsing": keras_bertfam.tasks.DependencyParser,
    "relations": keras_bertfam.tasks.RelationClassifier,
    "multiple_choice": keras_bertfam.tasks.MultipleChoice,
}


def finetune(
    task="sst2",
    preset="bert_tiny_en_uncased",
    data=None,
    epochs=3,
    learning_rate=5e-5,
    batch_size=32,
    seed=0,
    limit=None,
    packed=False,
    load_weights=True,
    **compile_arguments,
):
    """Trains on a task and returns the model and the metrics of the best epoch."""
    keras.utils.set_random_seed(seed)
    examples = {
        split: keras_bertfam.datasets.load_examples(task, split, data, limit)
        for split in ("train", "validation")
    }
    facts = examples["train"].task
    named = facts.kind in ("classification", "tagging", "parsing", "relations")
    labels = {"label_names": facts.label_names} if named else {}
    model = CLASSES[facts.kind].from_preset(preset, load_weights=load_weights, **labels)
    model.preprocessor.seed = seed
    if packed:  # for texts and words: examples share rows in training
        model.preprocessor.packed = True
    model.compile(learning_rate=learning_rate, **compile_arguments)
    scores = keras_bertfam.metrics.TaskMetrics(examples["validation"])
    train = examples["train"]
    history = model.fit(
        train.x,
        train.y,
        batch_size=batch_size,
        epochs=epochs,
        callbacks=[scores],
        verbose=2,
    ).history
    watched = history[f"val_{facts.metrics[0]}"]
    best = watched.index(max(watched))
    return model, {name: history[f"val_{name}"][best] for name in facts.metrics}


def main(
    task: Annotated[str, typer.Option(help="sst2, cola, stsb, wnut17, race, ...")],
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    data: Annotated[str | None, typer.Option(help="The task's folder.")] = None,
    epochs: int = 3,
    learning_rate: float = 5e-5,
    batch_size: int = 32,
    seed: Annotated[
        list[int] | None, typer.Option(help="May be repeated: the median counts.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only so many examples.")] = None,
    packed: Annotated[
        bool, typer.Option("--packed", help="Examples share rows in training.")
    ] = False,
):
    runs = []
    for each in seed or [0]:
        start = time.perf_counter()
        _, metrics = finetune(
            task,
            preset,
            data,
            epochs,
            learning_rate,
            batch_size,
            each,
            limit,
            packed,
        )
        runs.append(metrics)
        seconds = time.perf_counter() - start
        print(f"seed {each}: {_formatted(metrics)}, {seconds:.0f} s")
    if len(runs) > 1:
        median = {k: statistics.median(run[k] for run in runs) for k in runs[0]}
        print(f"median: {_formatted(median)}")
    print("command:", " ".join(["python", *sys.argv]))


def _formatted(metrics):
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


if __name__ == "__main__":
    typer.run(main)
