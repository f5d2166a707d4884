"""Which tokens of a task's rows are global, where a backbone has such."""

from typing import Any

from keras import ops

from keras_bertfam.layers.data.pairs.segments import get_layout
from keras_bertfam.tasks.summary import token_positions
from keras_bertfam.types import Model, Tensor

_GIVEN = ("global_attention_mask", "global_positions")


def with_summaries_global(
    backbone: Model, inputs: dict[str, Tensor], token: str
) -> dict[str, Tensor]:
    """Make the tokens that stand for sequences global.

    Args:
        backbone: a backbone.
        inputs: its inputs, of packed rows with `sequence_starts`. Those that say which
            tokens are global are left as they are.
        token: see `summary_token`.

    Returns:
        A dict of tensors.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.1.
    """
    if not _is_asked(backbone, inputs):
        return inputs
    starts = inputs.get("sequence_starts")
    if starts is None:
        places = token_positions(inputs, "first" if token == "mean" else token)
    else:
        places = ops.reshape(starts, (ops.shape(starts)[0], -1))
    return {**inputs, "global_positions": places}


def with_second_global(backbone: Model, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Make the second segment global: a question with a choice.

    Raises:
        ValueError: for inputs without `segment_ids`, by which it is told.
    """
    if not _is_asked(backbone, inputs):
        return inputs
    if inputs.get("segment_ids") is None:
        raise ValueError(
            "`segment_ids` must tell the choices, whose tokens are global, or "
            f"`global_attention_mask` say it. Received: {sorted(inputs)}."
        )
    mask = ops.equal(ops.cast(inputs["segment_ids"], "int32"), 1)
    return {**inputs, "global_attention_mask": _not_padding(mask, inputs)}


def with_question_global(
    backbone: Model,
    inputs: dict[str, Tensor],
    span_mask: Tensor | None,
    preprocessor: Any = None,
) -> dict[str, Tensor]:
    """Make the start token and the question before a context global.

    Args:
        backbone: a backbone.
        inputs: its inputs.
        span_mask: bool tensor `(batch, length)`, the tokens of the context; or `None`:
            the context is the segment 1.
        preprocessor: what made the rows, or `None` for those of the backbone's family.

    Raises:
        ValueError: for inputs without `segment_ids`, if there is no `span_mask`.
    """
    if not _is_asked(backbone, inputs):
        return inputs
    context = span_mask
    if context is None:
        context = inputs.get("segment_ids")
    if context is None:
        raise ValueError(
            "`span_mask` or `segment_ids` must tell the question, whose tokens are "
            "global, or `global_attention_mask` say it. "
            f"Received: {sorted(inputs)}."
        )
    layout = backbone.record.layout
    if preprocessor is not None:
        layout = get_layout(preprocessor.layout, preprocessor.tokenizer)
    begin = ops.argmax(ops.cast(context, "int32"), axis=1)
    begin = ops.expand_dims(ops.cast(begin, "int32"), 1) - layout.separators
    places = ops.arange(ops.shape(inputs["token_ids"])[1], dtype="int32")
    mask = ops.expand_dims(places, 0) < begin
    return {**inputs, "global_attention_mask": _not_padding(mask, inputs)}


def _is_asked(backbone, inputs):
    given = any(inputs.get(name) is not None for name in _GIVEN)
    return bool(getattr(backbone, "max_global_tokens", 0)) and not given


def _not_padding(mask, inputs):
    if inputs.get("padding_mask") is None:
        return mask
    return ops.logical_and(mask, ops.cast(inputs["padding_mask"], "bool"))
