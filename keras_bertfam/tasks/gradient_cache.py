"""Compute large batches in the memory of small ones: compute each part twice.

A loss that compares all examples of a batch needs all vectors, but not the values from
which they were computed. So the vectors are computed for one chunk of the batch at a
time, and nothing else is kept. When the gradient with respect to the vectors is known,
each chunk is computed once more, for its gradient, one after the other. Dropout drops
the same elements both times.

Reference: [Gao et al., 2021](https://arxiv.org/abs/2101.06983), section 3.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.autograph import as_written
from keras_bertfam.keras_quirks.layer_policies import stored_values
from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.tasks.torch_graph import check_part
from keras_bertfam.types import Config, Tensor

# Odd, and different from the stride between a layer's several calls.
_STRIDE = 0x3C6EF373


def check_rows(rows: int | None, settings: Config) -> None:
    """Check `gradient_cache_rows` beside the other arguments of `compile()`.

    Args:
        rows: int or `None`.
        settings: dict of the other arguments.

    Raises:
        ValueError: for settings that don't go with it.
    """
    if rows is None:
        return
    check_part(settings.get("jit_compile"), "gradient_cache_rows", rows)
    again = settings.get("rematerialize", "none")
    if again != "none" and keras.backend.backend() == "tensorflow":
        # `tf.recompute_grad` gives variables their gradient; here they are tensors.
        raise ValueError(
            '`rematerialize` must be "none" with `gradient_cache_rows` under '
            f"TensorFlow. Received: rematerialize={again!r}."
        )


class Chunks:
    """Compute a batch in chunks of equally many rows.

    Args:
        call: function of a dict of tensors to a tensor, both `(rows, ...)`.
        layers: the layers that it calls.
        inputs: dict of tensors `(batch, ...)`.
        rows: int. Rows of a chunk.

    Attributes:
        count: int or int tensor.
    """

    def __init__(
        self,
        call: Callable[[dict[str, Tensor]], Tensor],
        layers: Sequence[Any],
        inputs: dict[str, Tensor],
        rows: int,
    ) -> None:
        self._call = call
        self._layers = layers
        self._batch = next(iter(inputs.values())).shape[0]
        if self._batch is None:
            self._batch = ops.shape(next(iter(inputs.values())))[0]
        self.count = (self._batch + rows - 1) // rows
        # Copies of the last row fill up the last chunk: rows without any token would
        # have NaN as gradient.
        places = ops.arange(self.count * rows, dtype="int32")
        places = ops.minimum(places, self._batch - 1)
        self.inputs = {
            name: ops.reshape(
                ops.take(x, places, axis=0), (-1, rows, *ops.shape(x)[1:])
            )
            for name, x in inputs.items()
        }
        every = {id(each): each for layer in layers for each in layers_of(layer)}
        for each in every.values():
            drawn = getattr(each, "seed_generator", None)
            if drawn is not None and not isinstance(each, Dropout):
                raise ValueError(
                    "`gradient_cache_rows` must be `None` for a model with layers "
                    "that draw random numbers, other than this library's Dropout: "
                    f"they would draw others for the gradient. Received: {each.path}."
                )
        self._dropouts = [
            each
            for each in every.values()
            if isinstance(each, Dropout) and each.kept_rate < 1
        ]
        self._seeds = [each.next_seed() for each in self._dropouts]

    def compute(self, number: Any, inputs: dict[str, Tensor]) -> Tensor:
        """Compute a chunk, with the same dropout each time.

        Args:
            number: int or int tensor.
            inputs: dict of tensors, the rows of this chunk.
        """
        with contextlib.ExitStack() as stack:
            for each, seed in zip(self._dropouts, self._seeds, strict=True):
                stack.enter_context(each.drops_by(_seed_of(seed, number)))
            return self._call(inputs)

    def joined(self, vectors: Tensor) -> Tensor:
        """Join the vectors of chunks, `(chunks, rows, ...)`, to `(batch, ...)`."""
        return ops.reshape(vectors, (-1, *ops.shape(vectors)[2:]))[: self._batch]

    def variables(self, trainable: bool) -> list[keras.Variable]:
        """List the trainable variables of the layers, or the others."""
        found = {id(v): v for layer in self._layers for v in layer.weights}
        return [v for v in found.values() if v.trainable == trainable]


def _seed_of(seed, number):
    """Make the seed of a chunk from the seed that was drawn for all chunks."""
    if isinstance(seed, tuple):
        return (seed[0] + int(number) * _STRIDE) % 2**31, seed[1]
    if isinstance(number, int):
        number = number * _STRIDE % 2**31
        return ops.stack([seed[0] + ops.cast(number, seed.dtype), seed[1]])
    apart = ops.cast(number, seed.dtype) * ops.cast(_STRIDE, seed.dtype)
    return ops.stack([seed[0] + apart, seed[1]])


def in_chunks(
    call: Callable[[dict[str, Tensor], bool | None], Tensor],
    layers: Sequence[Any],
    inputs: dict[str, Tensor],
    rows: int | None,
    training: bool | None,
) -> Tensor:
    """Compute a function of a batch; in training, a chunk at a time if it is large.

    Args:
        call: function of a dict of tensors and `training` to a float tensor, each
            `(rows, ...)`. Each row must depend only on its own inputs.
        layers: the layers that it calls. Their dropouts drop the same elements both
            times, and their variables get the gradient.
        inputs: dict of tensors `(batch, ...)`.
        rows: int or `None`. Rows of a chunk; the last chunk may have fewer. `None` for
            the whole batch.
        training: bool or `None`.

    Returns:
        Float tensor `(batch, ...)`.
    """
    batch = inputs["token_ids"].shape[0]
    if not training or rows is None or (batch is not None and batch <= rows):
        return call(inputs, training)
    chunks = Chunks(lambda part: call(part, training), layers, inputs, rows)
    return chunks.joined(_BACKENDS[keras.backend.backend()](chunks))


def _under_torch(chunks):
    """Keep nothing between chunks.

    `torch.utils.checkpoint` would keep the graph of each chunk. Its small objects lie
    between what glibc could give back: a pass over 16 parts kept 424 MB, not 13.
    """
    import torch

    variables = stored_values(chunks.variables(trainable=True))

    def compute(number):
        part = {name: x[number] for name, x in chunks.inputs.items()}
        return chunks.compute(number, part)

    class Run(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *_):
            return torch.stack([compute(number) for number in range(chunks.count)])

        @staticmethod
        def backward(ctx, upstream):
            sums = [torch.zeros_like(value) for value in variables]
            for number in range(chunks.count):
                with torch.enable_grad():
                    part = compute(number)
                grads = torch.autograd.grad(
                    part, variables, upstream[number], allow_unused=True
                )
                for total, grad in zip(sums, grads, strict=True):
                    if grad is not None:
                        total += grad
            return tuple(sums)

    return Run.apply(*variables)


def _under_jax(chunks):
    import jax

    again = jax.checkpoint(chunks.compute)

    def step(number, part):
        return number + 1, again(number, part)

    _, vectors = jax.lax.scan(step, ops.zeros((), "int32"), chunks.inputs)
    return vectors


@as_written
def _under_tensorflow(chunks):
    """Compute the chunks in a loop, whose gradient is another loop over them.

    TensorFlow would run independent chunks at the same time, and a loop's own gradient
    keeps the values of all of them.
    """
    import tensorflow as tf

    variables = chunks.variables(trainable=True)
    fixed = chunks.variables(trainable=False)
    fixed_values = [tf.convert_to_tensor(x) for x in stored_values(fixed)]

    def compute(number, values):
        part = {name: x[number] for name, x in chunks.inputs.items()}
        pairs = [
            *zip(variables, values, strict=True),
            *zip(fixed, fixed_values, strict=True),
        ]
        with keras.StatelessScope(pairs):
            return chunks.compute(number, part)

    @tf.custom_gradient
    def run(*values):
        vectors = tf.map_fn(
            lambda number: compute(number, values),
            tf.range(chunks.count),
            parallel_iterations=1,
            fn_output_signature=tf.float32,
        )

        def gradient(upstream):
            def step(number, *sums):
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(values)
                    part = compute(number, values)
                grads = tape.gradient(
                    part, values, upstream[number], tf.UnconnectedGradients.ZERO
                )
                sums = [
                    total + tf.convert_to_tensor(grad)
                    for total, grad in zip(sums, grads, strict=True)
                ]
                return number + 1, *sums

            nothing = [tf.zeros_like(value) for value in values]
            _, *sums = tf.while_loop(
                lambda number, *_: number < chunks.count,
                step,
                (tf.constant(0), *nothing),
                parallel_iterations=1,
            )
            return sums

        return vectors, gradient

    return run(*(tf.convert_to_tensor(x) for x in stored_values(variables)))


_BACKENDS: dict[str, Callable[[Chunks], Tensor]] = {
    "tensorflow": _under_tensorflow,
    "jax": _under_jax,
    "torch": _under_torch,
}
