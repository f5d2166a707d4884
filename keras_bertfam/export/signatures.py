"""Make signatures of SavedModels, by the kind of model."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.serving import (
    Signature,
    most_tokens,
    positions_of,
    row_example,
    strings,
    without_padding,
)
from keras_bertfam.tasks.masking.masked_lm import FillMask
from keras_bertfam.types import Model


@functools.singledispatch
def serving_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a model.

    Args:
        model: the model to export.
        preprocessor: its preprocessor.
        **options: options of `export_saved_model`.

    Returns:
        Dict from names to `Signature`s, `serving_default` first.

    Raises:
        TypeError: for a model of a kind that can't be exported.
    """
    raise not_exported(model)


def not_exported(model: Model) -> TypeError:
    """Make the error for a kind of model that can't be exported."""
    return TypeError(
        "`model` must be an `EncoderBackbone`, a task with `fill_mask`, such as "
        "`MaskedLM`, `TextToText`, `CausalLM`, `RecurrentLM`, `BidirectionalLM`, the "
        "backbone of one of these three, `DualEncoder` or a fine-tuning task. "
        f"Received: {type(model).__name__}."
    )


def token_signatures(
    function: Callable[[Any], dict[str, Any]],
    preprocessor: Any,
    backbone: Model,
    max_input_tokens: int | None = None,
    **options: Any,
) -> dict[str, Signature]:
    """Make the signatures of a function of rows: from text, and from token ids.

    Args:
        function: from a dict of tensors, as `preprocessor.encode` gives it, to a dict
            of tensors.
        preprocessor: what encodes texts, with a tokenizer.
        backbone: the model that reads them.
        max_input_tokens: int or `None`. The length to which rows of ids are cut.
            Defaults to the preprocessor's.
        **options: other options of `export_saved_model`.

    Returns:
        Dict of `Signature`s.
    """
    positions = positions_of(backbone)
    most = most_tokens(max_input_tokens, preprocessor.sequence_length, positions)
    # Without a mask token models don't fill in.
    mask = getattr(preprocessor.tokenizer, "mask_token", None) or "text"
    text = [f"A {mask} to start with."]
    told = "language_ids" in backbone.input_signature()
    names = ["token_ids", *(["language_ids"] if told else [])]
    example = row_example(preprocessor.encode(text), names)

    def from_text(text):
        return function(preprocessor.encode(text))

    def from_ids(**rows):
        rows = {name: x[:, :most] for name, x in rows.items()}
        mask = without_padding(rows["token_ids"], preprocessor.tokenizer)
        return function({**rows, "padding_mask": mask})

    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in names}
    return {
        "serving_default": Signature(
            from_text, {"text": strings("text")}, {"text": text}
        ),
        "token_ids": Signature(from_ids, specs, example),
    }


@serving_signatures.register
def _(
    model: EncoderBackbone, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    def encode(rows):
        outputs = model(rows, training=False)
        return {**outputs, "padding_mask": rows["padding_mask"]}

    return token_signatures(encode, preprocessor, model, **options)


@serving_signatures.register
def _(
    model: FillMask, preprocessor: Any, top_k: int = 5, **options: Any
) -> dict[str, Signature]:
    tokenizer = preprocessor.tokenizer
    tokens = model.token_strings()
    if not 1 <= top_k <= len(tokens):
        raise ValueError(
            f"`top_k` must be in [1, {len(tokens)}], the size of the vocabulary. "
            f"Received: {top_k}."
        )

    def fill_mask(rows):
        masked = tf.equal(rows["token_ids"], tokenizer.mask_token_id)
        counts = tf.reduce_sum(tf.cast(masked, tf.int32), axis=1)
        slots = tf.range(tf.maximum(tf.reduce_max(counts), 0))
        order = tf.argsort(tf.cast(masked, tf.int32), 1, "DESCENDING", stable=True)
        positions = tf.gather(order, slots, axis=1)
        logits = model.masked_lm_logits({**rows, "mask_positions": positions})
        # An embedding table may have more rows than there are tokens.
        logits = logits[..., : len(tokens)]
        values, ids = tf.math.top_k(tf.nn.softmax(logits), top_k)
        real = slots < counts[:, None]
        return {
            "mask_positions": tf.where(real, positions, -1),
            "predicted_ids": tf.where(real[..., None], ids, -1),
            "predicted_tokens": tf.where(real[..., None], tf.gather(tokens, ids), ""),
            "probabilities": tf.where(real[..., None], values, 0.0),
        }

    return token_signatures(fill_mask, preprocessor, model.backbone, **options)
