"""Signatures of SavedModels: functions of strings, and of rows of ids."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.types import Model


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature of a SavedModel.

    Attributes:
        function: function of tensors, given by name, to a dict of tensors.
        inputs: dict from names to `tf.TensorSpec`s.
        example: dict from names to values, for a warm-up request.
    """

    function: Callable
    inputs: dict
    example: dict

    def concrete(self) -> Callable[..., Any]:
        """Make the function for `tf.saved_model.save`."""
        # The functions have no Python loops on tensors, so AutoGraph isn't needed.
        traced = tf.function(self.function, autograph=False)
        return traced.get_concrete_function(**self.inputs)


def strings(name: str, rank: int = 1) -> Any:
    """Describe an input of strings, whose axes are all dynamic."""
    return tf.TensorSpec([None] * rank, tf.string, name=name)


def without_padding(token_ids: Any, tokenizer: Any) -> Any:
    """Tell which tokens aren't padding; padding is at the ends of rows.

    The id alone doesn't tell: GPT-2 pads with a token that texts have as well. EuroBERT
    pads with the token that ends a row: the first of them at the end isn't padding.

    Args:
        token_ids: int32 tensor `(..., length)`.
        tokenizer: a tokenizer layer.

    Returns:
        Bool tensor of that shape.
    """
    others = tf.cast(tf.not_equal(token_ids, tokenizer.pad_token_id), tf.int32)
    inside = tf.cumsum(others, axis=-1, reverse=True) > 0
    start, end = tokenizer.start_token_id, tokenizer.end_token_id
    if end == tokenizer.pad_token_id and start != end:
        before = tf.concat([tf.zeros_like(inside[..., :1]), inside[..., :-1]], -1)
        inside |= before
    return inside


def positions_of(backbone: Model) -> int | None:
    """Give a backbone's number of positions; `None` for any number."""
    return getattr(backbone, "max_sequence_length", None)


def most_tokens(given: int | None, usual: int, positions: int | None) -> int:
    """Give the most tokens of a text that are read: the given number, or the usual.

    Args:
        given: `max_input_tokens` of `export_saved_model`, or `None`.
        usual: int, the tokens of a row in training.
        positions: int or `None`, the most tokens that the model can take.
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
    """Make the signature `token_ids` of a task, which takes its preprocessor's rows.

    For a task that reads words by their characters the signature is `character_ids`.

    Args:
        model: a task. The signature has the inputs of its `input_signature()`, such as
            `language_ids` if the backbone has languages, except the padding mask, which
            follows from padding ids.
        preprocessor: the task's preprocessor.
        rows: dict of tensors, an example.
        name_outputs: function of the task's outputs and the padding mask to a dict.
        max_input_tokens: int or `None`. Rows are cut to this number of tokens; by
            default to the length of the preprocessor's rows.
        **options: other options of `export_saved_model`.

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
        preprocessor: the task's preprocessor.
        name_outputs: function of the task's outputs to a dict.
        options: the options of `export_saved_model`.
        pairs: bool. Whether the task takes pairs of texts.

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
