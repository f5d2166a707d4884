"""A training loop of one's own under TensorFlow: KERAS_BACKEND=tensorflow.

    python loop_tensorflow.py 'corpus/*.txt' my_bert --steps 1000

`my_bert` is the preset to go on from, which the result replaces. The loss is the
task's: the mean over the masked tokens. Keras's own losses take the mean over all
slots, empty ones included.
"""

import tensorflow as tf
import typer

import keras_bertfam
from keras_bertfam.tasks import MaskedCrossentropy, MaskedLM


def train(model, batches):
    """Makes a step of each batch, and yields the losses.

    Args:
        model: a `MaskedLM` that is compiled with `total_steps`.
        batches: iterable of what its preprocessor's `dataset` has.
    """
    loss_of, optimizer = MaskedCrossentropy(), model.optimizer
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function(autograph=False)
    def step(x, y, weight):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True), weight)
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    for x, y, weight in batches:
        yield float(step(x, y, weight))


def main(files: str, preset: str, steps: int = 1000, batch_size: int = 32) -> None:
    """Goes on with the training of a preset."""
    model = MaskedLM.from_preset(preset)
    model.compile(total_steps=steps)
    documents = keras_bertfam.layers.read_documents(files)
    data = model.preprocessor.dataset(documents, batch_size).repeat().take(steps)
    for number, loss in enumerate(train(model, data), start=1):
        if number % 100 == 0 or number == steps:
            print(f"step {number}: loss {loss:.3f}")
    model.save_to_preset(preset)


if __name__ == "__main__":
    typer.run(main)
