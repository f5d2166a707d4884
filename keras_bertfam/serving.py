"""What a SavedModel is asked: functions of strings, and of rows of ids."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.types import Model


@dataclasses.dataclass(frozen=True)
class Signature:
    """A way to ask a SavedModel.

    Attributes:
        function: from tensors, by their names, to a dict of tensors.
        inputs: dict from names to `tf.TensorSpec`s.
        example: dict from names to values, for a warm-up request.
    """

    function: Callable
    inputs: dict
    example: dict

    def concrete(self) -> Callable[..., Any]:
        """Make the function for `tf.saved_model.save`."""
        # What runs in graphs has no Python loops: Autograph would only take its time.
        traced = tf.function(self.function, autograph=False)
        return traced.get_concrete_function(**self.inputs)


def strings(name: str, rank: int = 1) -> Any:
    """Describe an input of strings, every axis dynamic."""
    return tf.TensorSpec([None] * rank, tf.string, name=name)


def without_padding(token_ids: Any, tokenizer: Any) -> Any:
    """Tell which tokens aren't padding, which is at the end of rows.

    The token can't tell: GPT-2 pads with one that texts have as well.

    Args:
        token_ids: int32 tensor `(..., length)`.
        tokenizer: a tokenizer layer.

    Returns:
        Bool tensor of that shape.
    """
    others = tf.cast(tf.not_equal(token_ids, tokenizer.pad_token_id), tf.int32)
    return tf.cumsum(others, axis=-1, reverse=True) > 0


def positions_of(backbone: Model) -> int | None:
    """Count the positions that there are, `None` for any number."""
    return getattr(backbone, "max_sequence_length", None)


def most_tokens(given: int | None, usual: int, positions: int | None) -> int:
    """Tell how many tokens of a text are read: those given, else of a row of training.

    Args:
        given: `max_input_tokens` of `export_saved_model`.
        usual: int, the tokens of such a row.
        positions: int or `None`, the most that there may be.
    """
    most = min(usual, positions or usual) if given is None else given
    if type(most) is not int or most < 1 or most > (positions or most):
        room = f"from 1 to {positions}" if positions else "of at least 1"
        raise ValueError(
            f"`max_input_tokens` must be an int {room}. "
            f"Received: max_input_tokens={given!r}."
        )
    return most


def row_example(rows: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Take an example's rows by name; where they tell no languages, they have none.

    Args:
        rows: dict of tensors, as a preprocessor makes them.
        names: the names of what is asked for.

    Returns:
        Dict of arrays.
    """
    # Few preprocessors know languages, but a client's rows may have them.
    if "language_ids" in names and "language_ids" not in rows:
        rows = {**rows, "language_ids": np.full_like(rows["token_ids"], -1)}
    return {name: np.asarray(rows[name]) for name in names}


def row_signatures(
    model: Model,
    preprocessor: Any,
    rows: dict[str, Any],
    name_outputs: Callable[..., dict[str, Any]],
    max_input_tokens: int | None = None,
    **options: Any,
) -> dict[str, Signature]:
    """Make the signature `token_ids` of a task: rows as its preprocessor makes them.

    A task that reads words by their characters has `character_ids` instead.

    Args:
        model: a task. What its `input_signature()` names is asked for, but for the
            padding mask, which the padding token or padding characters tell.
            `language_ids` are among it if the backbone has languages.
        preprocessor: its preprocessor.
        rows: dict of tensors, an example.
        name_outputs: from the task's outputs and the padding mask to a dict.
        max_input_tokens: int or `None`. At how many tokens rows are cut, as long as
            the preprocessor's by default.
        **options: others of `export_saved_model`.

    Returns:
        Dict from the name to the `Signature`.
    """
    specs = dict(model.input_signature())
    del specs["padding_mask"]
    by_characters = "character_ids" in specs
    if by_characters:
        del specs["token_ids"]
    positions = positions_of(model.backbone)
    most = most_tokens(max_input_tokens, preprocessor.sequence_length, positions)

    def cut(name, x):
        if name == "character_ids":
            return x[:, :most]
        return x[..., :most] if specs[name].shape[-1] is None else x

    def answer(**inputs):
        inputs = {name: cut(name, x) for name, x in inputs.items()}
        if by_characters:
            mask = tf.reduce_any(inputs["character_ids"] > 0, -1)
            inputs["token_ids"] = tf.cast(mask, tf.int32)  # only its shape is read
        else:
            mask = without_padding(inputs["token_ids"], preprocessor.tokenizer)
        outputs = model({**inputs, "padding_mask": mask}, training=False)
        return name_outputs(outputs, mask)

    inputs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
        for name, spec in specs.items()
    }
    name = "character_ids" if by_characters else "token_ids"
    return {name: Signature(answer, inputs, row_example(rows, specs))}


def text_signatures(
    model: Model,
    preprocessor: Any,
    name_outputs: Callable[[Any], dict[str, Any]],
    options: Mapping[str, Any],
    pairs: bool = True,
) -> dict[str, Signature]:
    """Make the signatures of a task that takes texts, or pairs of texts.

    Args:
        model: a task.
        preprocessor: its preprocessor.
        name_outputs: from the task's outputs to a dict.
        options: those of `export_saved_model`.
        pairs: bool. Whether it takes pairs.

    Returns:
        Dict from names to `Signature`s.
    """

    def answer(x):
        return name_outputs(model(preprocessor.encode(x), training=False))

    text, pair = ["A text to start with."], ["And another one."]
    signatures = {
        "serving_default": Signature(
            lambda text: answer(text), {"text": strings("text")}, {"text": text}
        )
    }
    if pairs:
        signatures["pairs"] = Signature(
            lambda text, text_pair: answer((text, text_pair)),
            {"text": strings("text"), "text_pair": strings("text_pair")},
            {"text": text, "text_pair": pair},
        )
    rows = preprocessor(tf.constant(text))
    by_ids = row_signatures(
        model, preprocessor, rows, lambda x, mask: name_outputs(x), **options
    )
    return signatures | by_ids
