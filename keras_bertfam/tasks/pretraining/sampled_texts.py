"""Texts that are sampled with their scores, several for each prompt."""

from collections.abc import Callable
from typing import Any

import keras
import keras_hub
from keras import ops

from keras_bertfam.tasks.losses import token_crossentropy
from keras_bertfam.tasks.pretraining.generation_settings import GenerationSettings
from keras_bertfam.tasks.pretraining.token_rules import ruled
from keras_bertfam.types import Tensor


def is_plain(sampler: Any) -> bool:
    """Whether a sampler only chooses tokens, by KerasHub's loop over them."""
    return type(sampler).__call__ is keras_hub.samplers.Sampler.__call__


def sample(
    sampler: Any,
    following: Callable[..., Any],
    prompt: Tensor,
    cache: Any,
    index: Tensor,
    starts: Tensor,
    stop: Tensor | None,
    settings: GenerationSettings,
    model: Any = None,
) -> tuple[Tensor, Tensor]:
    """Sample texts of each row, and order them by how likely the model finds them.

    A text's score is its log-probability by the model, whatever temperature and rules
    it was sampled with, divided by `length ** length_penalty`.

    Args:
        sampler: `keras_hub.samplers.Sampler` that `is_plain`.
        following: as `BeamSearch` takes it, for `num_return_sequences` copies of rows.
        prompt: int32 tensor `(batch, length)` of prompts, with -1 after them.
        cache: nested structure of tensors `(batch, ...)`, of the tokens before `index`.
        index: int32 scalar, at most the shortest prompt.
        starts: int32 tensor `(batch,)`, the prompts' lengths.
        stop: int32 tensor `(batch, count)`, see `ruled`, or `None`.
        settings: `GenerationSettings`, with ids for `bad_words`.
        model: the task, for the loop that the backend compiles.

    Returns:
        The texts, the likeliest first, int32 `(batch, num_return_sequences, length)`,
        and their scores, float32. What follows a stop token is arbitrary.

    Reference: [Adiwardana et al., 2020](https://arxiv.org/abs/2001.09977), section 3.1,
    which orders samples by their probability.
    """
    count, length = settings.num_return_sequences, prompt.shape[1]

    def copies(x):
        return ops.repeat(x, count, axis=0)

    starts, stop = copies(starts), None if stop is None else copies(stop)

    def is_open(texts, cache, index, total, written, open_rows):
        return ops.any(open_rows)

    def step(texts, cache, index, total, written, open_rows):
        logits, _, cache = following(texts, cache, index)
        allowed = ruled(logits, texts, index, starts, stop, settings)
        tokens = sampler.get_next_token(sampler.compute_probabilities(allowed))
        given = ops.slice(texts, [0, index], [ops.shape(texts)[0], 1])
        begun = index >= starts
        tokens = ops.where(begun, ops.cast(tokens, "int32"), given[:, 0])
        new = ops.cast(begun & open_rows, "float32")
        losses = token_crossentropy(ops.maximum(tokens, 0), logits)
        total, written = total - new * losses, written + new
        tokens = ops.expand_dims(tokens, 1)
        if stop is not None:
            ended = begun & ops.any(tokens == stop, axis=1)
            open_rows = open_rows & ops.logical_not(ended)
        texts = ops.slice_update(texts, [0, index], tokens)
        return texts, cache, index + 1, total, written, open_rows

    texts = copies(prompt)
    index = ops.cast(index, "int32")
    nothing = ops.zeros_like(texts[:, 0], dtype="float32")
    texts, *_, total, written, _ = sampler.run_loop(
        is_open,
        step,
        loop_vars=(
            texts,
            keras.tree.map_structure(copies, cache),
            index,
            nothing,
            nothing,
            starts < length,
        ),
        maximum_iterations=length - index,
        model=model,
    )
    lengths = ops.power(ops.maximum(written, 1.0), settings.length_penalty)
    scores = ops.reshape(total / lengths, (-1, count))
    scores, order = ops.top_k(scores, count)
    texts = ops.reshape(texts, (-1, count, length))
    order = ops.expand_dims(ops.cast(order, "int32"), 2)
    return ops.take_along_axis(texts, order, axis=1), ops.reshape(scores, (-1, count))
