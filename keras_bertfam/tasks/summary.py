"""Find the tokens that stand for sequences, and their states; mark global tokens."""

from typing import Any

from keras import ops

from keras_bertfam.layers.data.pairs.segments import get_layout, layouts
from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
from keras_bertfam.types import Model, Tensor


def summary_token(backbone: Model, token: str | None = None) -> str:
    """Name the token that stands for a row: `"first"`, `"last"` or `"end"`.

    A head may also read the `"mean"` of all tokens, or all of them: `"late"`.

    `"last"` is the start token, if rows have it at their end. `"end"` is the text's
    last token, the only one that sees the whole text in a causal backbone or a decoder.

    Args:
        backbone: a backbone.
        token: the token that a head reads in a backbone that isn't causal; `None` for
            the family's.
    """
    if token is None:
        record = backbone.record
        token = "first" if record is None else record.head_style.token
        token = "first" if token == "late" else token  # which is for heads
    causal = getattr(backbone, "causal", False) or is_encoder_decoder(backbone)
    return "end" if causal and token == "first" else token


def is_encoder_decoder(backbone: Model) -> bool:
    """Tell whether a backbone takes two texts."""
    return isinstance(backbone, EncoderDecoderBackbone)


def check_layout(preprocessor: Any, token: str) -> None:
    """Raise a `ValueError` if a preprocessor puts another token where the head reads.

    Args:
        preprocessor: `FineTuningPreprocessor` or `None`.
        token: see `summary_token`.
    """
    if preprocessor is None:
        return
    if preprocessor.start_last != (token == "last"):
        fitting = (x for x in layouts().values() if x.start_last == (token == "last"))
        layout = next(fitting).name
        raise ValueError(
            f"`preprocessor` must make rows for which the {token} token stands, as "
            f"layout={layout!r} does. Received: layout={preprocessor.layout!r}, "
            f"tokenizer={preprocessor.tokenizer}."
        )
    if getattr(preprocessor, "packed", False):
        _check_not_packed(token)


def _check_not_packed(token, packed=True):
    if packed and token != "first":
        what = "mean" if token in ("mean", "late") else "last token"
        raise ValueError(
            f"`packed` must be `False` where the {what} stands for a text: packed "
            "examples are found by their first tokens. Received: packed=True."
        )


def token_positions(inputs: dict[str, Tensor], token: str) -> Tensor:
    """Find the tokens that stand for rows: positions, int32 `(batch, 1)`.

    Rows may be padded on either side if the token isn't the first.
    """
    batch, length = ops.shape(inputs["token_ids"])
    if token == "first":
        return ops.zeros((batch, 1), "int32")
    places = ops.broadcast_to(ops.arange(length, dtype="int32"), (batch, length))
    if inputs.get("padding_mask") is not None:
        places = places * ops.cast(inputs["padding_mask"], "int32")
    return ops.max(places, axis=1, keepdims=True)


def states_of(
    backbone: Model,
    inputs: dict[str, Tensor],
    positions: Tensor = None,
    training: bool | None = None,
) -> Tensor:
    """Compute the last states of rows; the decoder's, if the backbone has one.

    An encoder-decoder gets the row on both sides. The decoder's row is shifted by one,
    and begins with the token from which texts are written.

    Args:
        backbone: a backbone.
        inputs: dict of tensors: `token_ids` and the other inputs of rows.
        positions: int tensor `(batch, count)`, or `None` for all.
        training: bool or `None`.

    Returns:
        Float tensor `(batch, length or count, hidden_dim)`.
    """
    if not is_encoder_decoder(backbone):
        outputs = backbone(
            inputs, positions=positions, return_pooled=False, training=training
        )
        return outputs["sequence_output"]
    both = _both_sides(inputs, backbone.record.start_token_ids)
    outputs = backbone(both, positions=positions, training=training)
    return outputs["decoder_sequence_output"]


def _both_sides(inputs, start_token_ids):
    if len(start_token_ids) != 1:
        raise ValueError(
            "`start_token_ids` must be one id in the record of an encoder-decoder that "
            f"reads a text on both sides. Received: {start_token_ids}."
        )
    token_ids = ops.cast(inputs["token_ids"], "int32")
    start = ops.zeros_like(token_ids[:, :1]) + start_token_ids[0]
    both = {f"encoder_{n}": x for n, x in inputs.items() if n != "segment_ids"}
    both["decoder_token_ids"] = ops.concatenate([start, token_ids[:, :-1]], axis=1)
    for name in ("padding_mask", "position_ids"):
        if inputs.get(name) is not None:
            both[f"decoder_{name}"] = inputs[name]
    return both


def mean_states(states: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Average a row's states without padding: float32 `(batch, 1, width)`."""
    states = ops.cast(states, "float32")  # a sum may overflow float16
    if padding_mask is None:
        return ops.mean(states, axis=1, keepdims=True)
    weights = ops.expand_dims(ops.cast(padding_mask, states.dtype), -1)
    total = ops.sum(states * weights, axis=1, keepdims=True)
    return total / ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1)


def summary_states(
    backbone: Model, inputs: dict[str, Tensor], token: str, training: bool | None
) -> Tensor:
    """Compute the states that stand for sequences; the last block computes only these.

    Args:
        backbone: a backbone.
        inputs: its inputs. Packed rows have `sequence_starts`: where their sequences
            begin, `(batch, max_sequences)`, or `(batch, max_sequences, 2)` for pairs.
        token: see `summary_token`.
        training: bool or `None`.

    Returns:
        Float tensor `(batch, sequences, hidden_dim)`, with one sequence if rows aren't
        packed; of all tokens if `token="late"`.
    """
    inputs = dict(inputs)
    starts = inputs.pop("sequence_starts", None)
    if token in ("mean", "late"):
        _check_not_packed(token, starts is not None)
        states = states_of(backbone, inputs, training=training)
        if token == "late":
            return states
        return mean_states(states, inputs.get("padding_mask"))
    if starts is None:
        positions = token_positions(inputs, token)
    else:
        _check_not_packed(token)
        positions = ops.reshape(starts, (ops.shape(starts)[0], -1))
    return states_of(backbone, inputs, positions, training)


def flat_rows(inputs: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[Any, Any]]:
    """Flatten groups of rows into one batch of rows.

    Args:
        inputs: dict of tensors `(batch, group, length)`.

    Returns:
        A tuple of the dict of tensors `(batch * group, length)`, and the first two
        axes, to which outputs are reshaped.
    """
    shape = ops.shape(inputs["token_ids"])
    rows = {name: ops.reshape(value, (-1, shape[2])) for name, value in inputs.items()}
    group = inputs["token_ids"].shape[1]
    return rows, (-1, shape[1] if group is None else group)


_GIVEN = ("global_attention_mask", "global_positions")


def with_summaries_global(
    backbone: Model, inputs: dict[str, Tensor], token: str
) -> dict[str, Tensor]:
    """Make the tokens that stand for sequences global.

    Args:
        backbone: a backbone.
        inputs: its inputs; packed rows have `sequence_starts`. Inputs that already mark
            global tokens don't change.
        token: see `summary_token`.

    Returns:
        A dict of tensors.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 3.1.
    """
    if not _is_asked(backbone, inputs):
        return inputs
    starts = inputs.get("sequence_starts")
    if starts is None:
        of_all = token in ("mean", "late")
        places = token_positions(inputs, "first" if of_all else token)
    else:
        places = ops.reshape(starts, (ops.shape(starts)[0], -1))
    return {**inputs, "global_positions": places}


def with_second_global(backbone: Model, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Make the second segment global: in multiple choice, the question with a choice.

    Raises:
        ValueError: for inputs without `segment_ids`, which mark the segment.
    """
    if not _is_asked(backbone, inputs):
        return inputs
    if inputs.get("segment_ids") is None:
        raise ValueError(
            "`segment_ids` or `global_attention_mask` must be given: they mark the "
            f"choices, whose tokens are global. Received: {sorted(inputs)}."
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
        span_mask: bool tensor `(batch, length)`, the tokens of the context. `None`
            takes segment 1 as the context.
        preprocessor: made the rows; `None` for rows of the backbone's family.

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
            "`span_mask`, `segment_ids` or `global_attention_mask` must be given: "
            "they mark the question, whose tokens are global. Received: "
            f"{sorted(inputs)}."
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
