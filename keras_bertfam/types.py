"""Names of types in this package's signatures.

Keras and TensorFlow are untyped. So these names inform readers, but not type checkers.
"""

import os
from typing import Any, TypeAlias

# A tensor of the current backend, or a value that `keras.ops` turns into one.
Tensor: TypeAlias = Any
# A tensor's shape: ints, and `None` for an axis of any length.
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
# Shapes of a file's weights, by their names in the file.
Shapes: TypeAlias = dict[str, tuple[int, ...]]
# The base of mixins of Keras's classes; mixins use the classes' methods and attributes.
Mixin: Any = object
