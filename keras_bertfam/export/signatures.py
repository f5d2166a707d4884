"""What the SavedModel of each kind of model computes."""

import functools

import tensorflow as tf

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.tasks.fill_mask import FillMask

TEXT = {"text": tf.TensorSpec([None], tf.string, name="text")}
TOKEN_IDS = {"token_ids": tf.TensorSpec([None, None], tf.int32, name="token_ids")}


@functools.singledispatch
def serving_function(model, preprocessor, **options):
    """The function from token ids to a model's named outputs.

    Args:
        model: what is exported.
        preprocessor: its preprocessor.
        **options: those of `export_saved_model`.

    Returns:
        A function from `token_ids`, an int32 tensor of shape `(batch, length)`,
        to a dict of tensors.

    Raises:
        TypeError: for a model of a kind that can't be exported.
    """
    raise TypeError(
        "`model` must be an `EncoderBackbone` or a task with `fill_mask`, such as "
        "`MaskedLM`. Received: "
        f"{type(model).__name__}"
    )


@serving_function.register
def _(model: EncoderBackbone, preprocessor, **options):
    def encode(token_ids):
        mask = tf.not_equal(token_ids, preprocessor.tokenizer.pad_token_id)
        outputs = model({"token_ids": token_ids, "padding_mask": mask}, training=False)
        return {**outputs, "padding_mask": mask}

    return encode


@serving_function.register
def _(model: FillMask, preprocessor, top_k=5, **options):
    tokenizer = preprocessor.tokenizer
    strings = tf.constant(model.token_strings())

    def fill_mask(token_ids):
        masked = tf.equal(token_ids, tokenizer.mask_token_id)
        counts = tf.reduce_sum(tf.cast(masked, tf.int32), axis=1)
        slots = tf.range(tf.maximum(tf.reduce_max(counts), 0))
        order = tf.argsort(tf.cast(masked, tf.int32), 1, "DESCENDING", stable=True)
        positions = tf.gather(order, slots, axis=1)
        inputs = {
            "token_ids": token_ids,
            "padding_mask": tf.not_equal(token_ids, tokenizer.pad_token_id),
            "mask_positions": positions,
        }
        logits = model.masked_lm_logits(inputs)
        values, ids = tf.math.top_k(tf.nn.softmax(logits), top_k)
        real = slots < counts[:, None]
        return {
            "mask_positions": tf.where(real, positions, -1),
            "predicted_ids": tf.where(real[..., None], ids, -1),
            "predicted_tokens": tf.where(real[..., None], tf.gather(strings, ids), ""),
            "probabilities": tf.where(real[..., None], values, 0.0),
        }

    return fill_mask
