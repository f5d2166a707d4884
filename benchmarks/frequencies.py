"""`python -m benchmarks.frequencies PRESET`: what a model knows beyond frequencies.

Its loss on held-out text, and that of saying to all how frequent each token is among
the targets of the training text. A model that has learned nothing else is no better.
"""

from typing import Annotated

import keras
import numpy as np
import typer

from keras_bertfam import layers, models
from keras_bertfam.export.saved_model import default_task

PASSES = 4  # over the training text: each has other masks


def cross_entropy(counts, labels):
    """Mean loss of labels by frequencies, one added to each so that none is 0.

    Args:
        counts: int array `(vocabulary_size,)`.
        labels: int array `(labels,)`.
    """
    shares = (counts + 1) / (counts + 1).sum()
    return -np.log(shares)[labels].mean()


def targets(batches):
    """The labels of batches whose weight isn't 0, as an array."""
    return np.concatenate([y[w > 0] for _, y, w in batches.as_numpy_iterator()])


def main(
    preset: Annotated[str, typer.Argument(help="What an example has written.")],
    files: Annotated[list[str], typer.Option(help="What it was trained on.")],
    held_out: Annotated[list[str], typer.Option(help="What it wasn't.")],
    batch_size: Annotated[int, typer.Option(help="As in training.")] = 32,
    batches: Annotated[int, typer.Option(help="Of held-out text, at most.")] = 60,
    one_per_file: Annotated[bool, typer.Option(help="A document is a file.")] = False,
):
    """Print both losses."""
    keras.utils.set_random_seed(0)
    cls = default_task(models.Backbone.from_preset(preset, load_weights=False))
    model = cls.from_preset(preset)
    text, others = (
        layers.read_documents(each, one_per_file=one_per_file)
        for each in (files, held_out)
    )
    data = model.preprocessor.dataset(others, batch_size, training=False)
    data = data.take(batches).cache()
    size = model.backbone.vocabulary_size
    training = model.preprocessor.dataset(text, batch_size)
    counts = sum(np.bincount(targets(training), minlength=size) for _ in range(PASSES))
    labels = targets(data)
    loss = model.evaluate(data, verbose=0, return_dict=True)["loss"]
    print(
        f"{len(labels):,} targets: loss {loss:.2f}, "
        f"by frequencies alone {cross_entropy(counts, labels):.2f}"
    )


if __name__ == "__main__":
    typer.run(main)
