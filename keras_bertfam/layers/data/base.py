"""The base class of the layers that run inside `tf.data`."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from keras_bertfam.types import TFTensor


class PreprocessingLayer(keras.layers.Layer):
    """Base of layers that map TensorFlow tensors to TensorFlow tensors.

    A plain Keras layer converts its inputs to tensors of the current backend
    and casts integers to the compute dtype, which corrupts token ids in a
    `tf.data` pipeline. This one leaves its inputs alone, whatever the backend,
    always returns `tf.Tensor`s, and keeps eager calls on the CPU.
    """

    # What else of the rows a preprocessor hands over to a corruption, by name.
    row_arguments: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.built = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with tf.device("CPU:0"):
            return super().__call__(*args, **kwargs)

    def get_build_config(self) -> None:
        return None


def as_token_ids(inputs: Any, name: str = "token_ids") -> TFTensor:
    """Convert `inputs` to dense int32 ids, refusing what can't be ids."""
    if isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
        raise ValueError(
            f"`{name}` must be a dense tensor; call `.to_tensor()` first. "
            f"Received: {type(inputs).__name__}."
        )
    ids = tf.convert_to_tensor(inputs)
    if not ids.dtype.is_integer:
        raise ValueError(
            f"`{name}` must have an integer dtype. Received: dtype={ids.dtype.name}."
        )
    return tf.cast(ids, tf.int32)


def as_ids_like(token_ids: TFTensor, **others: Any) -> dict[str, TFTensor]:
    """Convert what else rows have to int32; what is `None` is left out.

    Raises:
        ValueError: for another shape than that of the ids.
    """
    given = {k: as_token_ids(x, k) for k, x in others.items() if x is not None}
    for name, x in given.items():
        if not token_ids.shape.is_compatible_with(x.shape):
            raise ValueError(
                f"`{name}` must have the shape of `token_ids`, {token_ids.shape}. "
                f"Received: shape={x.shape}."
            )
    return given
