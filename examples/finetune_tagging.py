"""Fine-tune on named entities: python finetune_tagging.py --data data/wnut17 ...

`--preset` is the name of a published checkpoint, or a folder. `--task` may be
`conll2003` as well, which is downloaded without `--data`. Set KERAS_BACKEND to choose
the backend.
"""

import time
from typing import Annotated

import keras
import typer

import keras_bertfam


def finetune(
    task="wnut17",
    preset="bert_tiny_en_uncased",
    data=None,
    epochs=4,
    learning_rate=5e-5,
    batch_size=32,
    seed=0,
    limit=None,
    load_weights=True,
    **compile_arguments,
):
    """Trains on a task's words; returns the model and the best epoch's metrics."""
    keras.utils.set_random_seed(seed)
    load = keras_bertfam.datasets.load_examples
    train = load(task, "train", data, limit)
    validation = load(task, "validation", data, limit)
    model = keras_bertfam.tasks.TokenClassifier.from_preset(
        preset, load_weights=load_weights, label_names=list(train.task.label_names)
    )
    model.preprocessor.seed = seed
    model.compile(learning_rate=learning_rate, **compile_arguments)
    watched = f"val_{train.task.metrics[0]}"
    callbacks = [
        keras_bertfam.metrics.TaskMetrics(validation),
        keras.callbacks.EarlyStopping(
            watched, mode="max", patience=2, restore_best_weights=True
        ),
    ]
    history = model.fit(
        train.x,
        train.y,
        batch_size=batch_size,
        epochs=epochs,
        callbacks=callbacks,
        verbose=2,
    ).history
    return model, {watched: max(history[watched])}


def main(
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    task: str = "wnut17",
    data: Annotated[str | None, typer.Option(help="The task's folder.")] = None,
    epochs: int = 4,
    learning_rate: float = 5e-5,
    batch_size: int = 32,
    seed: int = 0,
    limit: Annotated[int | None, typer.Option(help="Only so many sentences.")] = None,
):
    start = time.perf_counter()
    model, scores = finetune(
        task, preset, data, epochs, learning_rate, batch_size, seed, limit
    )
    for name, score in scores.items():
        print(f"{name} {score:.4f}")
    print(f"{time.perf_counter() - start:.0f} s")
    print(model.tag("Ada Lovelace was born in London .".split()))


if __name__ == "__main__":
    typer.run(main)
