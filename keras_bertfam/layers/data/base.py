"""Base classes: layers for `tf.data`, preprocessors, and objects found by name."""

import contextlib
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import keras
import tensorflow as tf

from keras_bertfam.layers.data.pipeline_warnings import CutTextCounter, is_counting
from keras_bertfam.lazy import Registry
from keras_bertfam.tokenizers.text_tokenizer import PlainInGrain
from keras_bertfam.types import Config, TFTensor


class PreprocessingLayer(keras.layers.Layer):
    """Base of layers that map TensorFlow tensors to TensorFlow tensors.

    A plain Keras layer converts its inputs to tensors of the current backend, and casts
    integers to the compute dtype. Both would corrupt token ids in a `tf.data` pipeline.
    This layer leaves its inputs unchanged on every backend, always returns
    `tf.Tensor`s, and runs eager calls on the CPU.
    """

    # Names of the features that a preprocessor hands to the call besides `token_ids`.
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
    """Convert `inputs` to dense int32 ids, or raise a `ValueError`."""
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
    # Ids beyond 32 bits must not wrap round to ids that exist.
    return tf.saturate_cast(ids, tf.int32)


def as_ids_like(token_ids: TFTensor, **others: Any) -> dict[str, TFTensor]:
    """Convert other features of rows to int32; those that are `None` are left out.

    Raises:
        ValueError: for a feature whose shape isn't that of the ids.
    """
    given = {k: as_token_ids(x, k) for k, x in others.items() if x is not None}
    for name, x in given.items():
        if not token_ids.shape.is_compatible_with(x.shape):
            raise ValueError(
                f"`{name}` must have the shape of `token_ids`, {token_ids.shape}. "
                f"Received: shape={x.shape}."
            )
    return given


class AdjustableLength(PlainInGrain):
    """Mixin of preprocessors: a settable `sequence_length`, and warnings of cut texts.

    Everything that depends on the length is made anew after a change, when it is next
    needed.
    """

    _length: int | None = None
    _cut_texts: CutTextCounter | None = None
    _made: Any = None  # what depends on the length
    tokenizer: Any

    @property
    def sequence_length(self) -> int:
        """int: the most tokens of a row, special ones included."""
        length: Any = self._length
        return length

    @sequence_length.setter
    def sequence_length(self, value: int) -> None:
        if self._length not in (None, value):
            self._check_arguments(sequence_length=value)
        self._length = value
        self._made = None

    def _check_arguments(self, **changed):
        """Raise the constructor's errors for its own arguments with these changes."""
        config = {**self.get_config(), "tokenizer": self.tokenizer, **changed}
        config = {k: v for k, v in config.items() if k not in ("config_file", "dtype")}
        type(self)(**config)

    def in_graph(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a graph of a function; another length traces it anew.

        An eager call counts the texts that it cuts.
        """
        traced: dict[tuple[Any, ...], Any] = {}

        def call(*args):
            with self.counted_if_eager():
                length = self.sequence_length
                if any(key[0] != length for key in traced):
                    traced.clear()
                # A graph for tensors of several ranks would know no rank.
                shapes = (getattr(x, "shape", None) for x in tf.nest.flatten(args))
                ranks = tuple(tf.TensorShape(shape).rank for shape in shapes)
                key = (length, is_counting(), ranks)
                if key not in traced:
                    traced[key] = tf.function(
                        function, reduce_retracing=True, autograph=False
                    )
                return traced[key](*args)

        return call

    def counted_if_eager(self) -> contextlib.AbstractContextManager:
        """Count the cut texts of a call, unless it is part of another graph."""
        if tf.executing_eagerly() and not is_counting():
            return self.counted("calls")
        return contextlib.nullcontext()

    def counted(self, use: str, enough: int = 1) -> contextlib.AbstractContextManager:
        """Count texts that are cut in this context, see `CutTextCounter.counted`."""
        if self._cut_texts is None:
            self._cut_texts = CutTextCounter(self)
        return self._cut_texts.counted(self, use, enough)


class KnownByName:
    """Base of objects that can be given by name, such as masking strategies.

    A kind of objects is a direct subclass with its own `kind`, a word for errors, and
    its own `Registry` in `named`. A class of the kind that has a `name`, and whose
    arguments have defaults, can be given by this name as soon as it is defined.
    """

    kind: ClassVar[str] = ""
    name: ClassVar[str | None] = None
    named: ClassVar[Registry] = Registry()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        name = vars(cls).get("name")
        if name is None:
            return
        known = cls.named.enter(name, cls)
        if known is not cls:
            raise ValueError(
                f"`name` must not be the name of another {cls.kind}. Received: "
                f"{name!r} for {cls.__name__}, which is the name of {known.__name__}."
            )

    def get_config(self) -> Config:
        """Collect the attributes that are named like the constructor's arguments."""
        arguments = inspect.signature(type(self)).parameters.values()
        names = [each.name for each in arguments if each.kind is not each.VAR_KEYWORD]
        if missing := [name for name in names if not hasattr(self, name)]:
            raise ValueError(
                f"{type(self).__name__} must keep each argument as an attribute of its "
                f"name, so that it can be saved, or define `get_config`. Missing: "
                f"{missing}."
            )
        return {name: _as_config(getattr(self, name)) for name in names}

    @classmethod
    def from_config(cls, config: Config) -> Any:
        return cls(**config)

    @classmethod
    def get(cls, identifier: Any) -> Any:
        """Return the object that is meant by an object, its config or its name.

        Raises:
            ValueError: for anything else. The error lists the known names.
        """
        if isinstance(identifier, dict):
            identifier = keras.saving.deserialize_keras_object(identifier)
        if isinstance(identifier, cls):
            identifier.get_config()  # an error now, not after training
            return identifier
        if isinstance(identifier, str) and identifier in cls.named:
            return cls.named[identifier]()
        article = "an" if cls.__name__[0] in "AEIOU" else "a"
        raise ValueError(
            f"`{cls.kind}` must be {article} {cls.__name__} or one of "
            f"{sorted(cls.named)}. Received: {identifier!r}."
        )


def _as_config(value):
    """Replace `KnownByName` objects in an argument by their configs."""
    if isinstance(value, list):
        return [*map(_as_config, value)]
    if isinstance(value, KnownByName):
        return keras.saving.serialize_keras_object(value)
    return value
