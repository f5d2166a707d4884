"""Fine-tune vectors of texts on STS-B: python finetune_embedder.py --data data/stsb ...

As Sentence-BERT (Reimers and Gurevych, 2019, section 3): the cosine of the two vectors
of a pair learns how similar people found the pair. With `--negatives` pairs that are
alike, a similarity of 4 or 5, are told from all others of their batch instead.
`--preset` is the name of a published checkpoint, or a folder. Set KERAS_BACKEND to
choose the backend.
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
    negatives=False,
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
    x, y = train.x, [label / train.task.maximum for label in train.y]
    if negatives:
        alike = [k for k, cosine in enumerate(y) if cosine >= 0.8]
        x, y = tuple([texts[k] for k in alike] for texts in x), None
    model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=2)
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
    negatives: Annotated[
        bool, typer.Option("--negatives", help="Tell pairs that are alike from others.")
    ] = False,
):
    start = time.perf_counter()
    model, scores = finetune(
        preset,
        data,
        epochs,
        learning_rate,
        batch_size,
        seed,
        limit,
        negatives=negatives,
    )
    for name, score in scores.items():
        print(f"{name} {score:.4f}")
    print(f"{time.perf_counter() - start:.0f} s")
    print(model.similarity(["A cat sits on a mat."], ["On the mat is a cat."]))


if __name__ == "__main__":
    typer.run(main)
