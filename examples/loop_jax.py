"""A training loop of one's own under JAX: KERAS_BACKEND=jax.

    python loop_jax.py 'corpus/*.txt' my_bert --steps 1000

`my_bert` is the preset to go on from, which the result replaces. The loss is the
task's: the mean over the masked tokens. Keras's own losses take the mean over all
slots, empty ones included.
"""

import jax
import typer

import keras_bertfam
from keras_bertfam.tasks import MaskedCrossentropy, MaskedLM


def train(model, batches):
    """Makes a step of each batch, and yields the losses.

    Args:
        model: a `MaskedLM` that is compiled with `total_steps`.
        batches: `tf.data.Dataset`, as its preprocessor's `dataset` gives.
    """
    loss_of, optimizer = MaskedCrossentropy(), model.optimizer
    optimizer.build(model.trainable_variables)

    def forward(trainable, others, x, y, weight):
        logits, others = model.stateless_call(trainable, others, x, training=True)
        return loss_of(y, logits, weight), others

    @jax.jit
    def step(trainable, others, state, x, y, weight):
        gradient = jax.value_and_grad(forward, has_aux=True)
        (loss, others), grads = gradient(trainable, others, x, y, weight)
        trainable, state = optimizer.stateless_apply(state, grads, trainable)
        return loss, trainable, others, state

    parts = (model.trainable_variables, model.non_trainable_variables)
    parts = (*parts, optimizer.variables)
    values = [[variable.value for variable in part] for part in parts]
    for x, y, weight in batches.as_numpy_iterator():
        loss, *values = step(*values, x, y, weight)
        yield float(loss)
    # JAX's steps change nothing: what they have computed goes back into the model.
    for part, new in zip(parts, values, strict=True):
        for variable, value in zip(part, new, strict=True):
            variable.assign(value)


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
