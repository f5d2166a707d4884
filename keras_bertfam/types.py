"""Names for what the signatures of this package take and give.

Keras and TensorFlow are untyped: these tell a reader what they can't tell a checker.
"""

import os
from typing import Any, TypeAlias

# A tensor of the current backend, or what `keras.ops` makes one of.
Tensor: TypeAlias = Any
# Of a tensor: ints, and `None` for an axis of any length.
Shape: TypeAlias = tuple[Any, ...]
# A `tf.Tensor`, a `tf.RaggedTensor` or a `tf.data.Dataset`, whatever the backend.
TFTensor: TypeAlias = Any
TFRagged: TypeAlias = Any
TFDataset: TypeAlias = Any
# A `keras_hub.tokenizers.Tokenizer`.
Tokenizer: TypeAlias = Any
# A `keras_hub.models.Backbone` or `Task`, or any `keras.Model`.
Model: TypeAlias = Any
# The name, the config or an instance of a `keras.initializers.Initializer`.
Initializer: TypeAlias = Any
Path: TypeAlias = str | os.PathLike[str]
Config: TypeAlias = dict[str, Any]
# Shapes of the weights in a file, by their names there.
Shapes: TypeAlias = dict[str, tuple[int, ...]]
# The base of mixins of Keras's classes, whose methods and attributes they call.
Mixin: Any = object
