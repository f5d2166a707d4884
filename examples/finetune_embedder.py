"""Fine-tune vectors of texts on STS-B: python finetune_embedder.py --data data/stsb ...

As Sentence-BERT (Reimers and Gurevych, 2019, section 3): the cosine of the two vectors
of a pair learns how similar people found the pair. `--preset` is the name of a
published checkpoint, or a folder. Set KERAS_BACKEND to choose the backend.
"""

import time
from typing import Annotated

import keras
import typer

import keras_bertfam


def finetune(
    preset,
    data=None,
    epochs=4,
    learning_rate=2e-5,
    batch_size=16,
    seed=0,
    limit=None,
    load_weights=True,
    **compile_arguments,
):
    """Trains on STS-B; returns the model and its scores on the validation part."""
    keras.utils.set_random_seed(seed)
    load = keras_bertfam.datasets.load_examples
    train = load("stsb", "train", data, limit)
    validation = load("stsb", "validation", data, limit)
    model = keras_bertfam.tasks.TextEmbedder.from_preset(
        preset, load_weights=load_weights
    )
    model.preprocessor.seed = seed
    model.compile(learning_rate=learning_rate, **compile_arguments)
    cosines = [label / train.task.maximum for label in train.y]
    model.fit(train.x, cosines, batch_size=batch_size, epochs=epochs, verbose=2)
    return model, keras_bertfam.metrics.compute_metrics(
        train.task.metrics, validation.y, model.similarity(*validation.x)
    )


def main(
    preset: Annotated[str, typer.Option(help="Name or folder of a checkpoint.")],
    data: Annotated[str | None, typer.Option(help="The folder of STS-B.")] = None,
    epochs: int = 4,
    learning_rate: float = 2e-5,
    batch_size: int = 16,
    seed: int = 0,
    limit: Annotated[int | None, typer.Option(help="Only so many pairs.")] = None,
):
    start = time.perf_counter()
    model, scores = finetune(
        preset, data, epochs, learning_rate, batch_size, seed, limit
    )
    for name, score in scores.items():
        print(f"{name} {score:.4f}")
    print(f"{time.perf_counter() - start:.0f} s")
    print(model.similarity(["A cat sits on a mat."], ["On the mat is a cat."]))


if __name__ == "__main__":
    typer.run(main)
