"""Which token stands for a sequence, and its state, in rows of one and of several."""

from typing import Any

from keras import ops

from keras_bertfam.layers.data.pairs.segments import layouts
from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
from keras_bertfam.types import Model, Tensor


def summary_token(backbone: Model, token: str | None = None) -> str:
    """Name the token that stands for a row: `"first"`, `"last"` or `"end"`.

    `"last"` is the start token where rows end with it, and `"end"` what ends the text,
    the only one that has seen all of it in a causal backbone, and in a decoder.

    Args:
        backbone: a backbone.
        token: what a head of no causal family reads; `None` for the family's.
    """
    if token is None:
        record = backbone.record
        token = "first" if record is None else record.head_style.token
    causal = getattr(backbone, "causal", False) or is_encoder_decoder(backbone)
    return "end" if causal and token == "first" else token


def is_encoder_decoder(backbone: Model) -> bool:
    """Tell whether a backbone takes two texts."""
    return isinstance(backbone, EncoderDecoderBackbone)


def check_layout(preprocessor: Any, token: str) -> None:
    """Raise a `ValueError` if a preprocessor puts another token in a head's place.

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
            f"`preprocessor` must make rows with the {token} token standing for the "
            f"row, as layout={layout!r} does. Received: "
            f"layout={preprocessor.layout!r}, tokenizer={preprocessor.tokenizer}."
        )
    if getattr(preprocessor, "packed", False):
        _check_not_packed(token)


def _check_not_packed(token, packed=True):
    if packed and token != "first":
        what = "mean" if token == "mean" else "last token"
        raise ValueError(
            f"`packed` must be `False` where the {what} stands for a text: examples "
            "that share a row are told by their first tokens. Received: packed=True."
        )


def token_positions(inputs: dict[str, Tensor], token: str) -> Tensor:
    """Find the tokens that stand for rows: positions, int32 `(batch, 1)`.

    Padding may be on either side of one that isn't the first.
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
    """Compute the last states of rows, of the decoder where a backbone has one.

    An encoder-decoder gets the row on both sides, and the decoder's is shifted by one:
    it begins with the token that texts are written from.

    Args:
        backbone: a backbone.
        inputs: dict of tensors, `token_ids` and what else there is of rows.
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
    start = ops.full_like(token_ids[:, :1], start_token_ids[0])
    both = {f"encoder_{n}": x for n, x in inputs.items() if n != "segment_ids"}
    both["decoder_token_ids"] = ops.concatenate([start, token_ids[:, :-1]], axis=1)
    if inputs.get("padding_mask") is not None:
        both["decoder_padding_mask"] = inputs["padding_mask"]
    return both


def mean_states(states: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Average a row's states, without those of padding: `(batch, 1, width)`."""
    if padding_mask is None:
        return ops.mean(states, axis=1, keepdims=True)
    weights = ops.expand_dims(ops.cast(padding_mask, states.dtype), -1)
    total = ops.sum(states * weights, axis=1, keepdims=True)
    return total / ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1)


def summary_states(
    backbone: Model, inputs: dict[str, Tensor], token: str, training: bool | None
) -> Tensor:
    """Compute the states that stand for sequences, of the last block only these.

    Args:
        backbone: a backbone.
        inputs: its inputs, of packed rows with `sequence_starts`: where their
            sequences begin, `(batch, max_sequences)`, or `(batch, max_sequences, 2)`
            of pairs of sequences.
        token: see `summary_token`.
        training: bool or `None`.

    Returns:
        Float tensor `(batch, sequences, hidden_dim)`, of one sequence in rows that
        aren't packed.
    """
    inputs = dict(inputs)
    starts = inputs.pop("sequence_starts", None)
    if token == "mean":
        _check_not_packed(token, starts is not None)
        states = states_of(backbone, inputs, training=training)
        return mean_states(states, inputs.get("padding_mask"))
    if starts is None:
        positions = token_positions(inputs, token)
    else:
        _check_not_packed(token)
        positions = ops.reshape(starts, (ops.shape(starts)[0], -1))
    return states_of(backbone, inputs, positions, training)


def flat_rows(inputs: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[Any, Any]]:
    """Flatten groups of rows to one batch of rows.

    Args:
        inputs: dict of tensors `(batch, group, length)`.

    Returns:
        A tuple of the dict of tensors `(batch * group, length)`, and the first two
        axes to reshape outputs to.
    """
    shape = ops.shape(inputs["token_ids"])
    rows = {name: ops.reshape(value, (-1, shape[2])) for name, value in inputs.items()}
    group = inputs["token_ids"].shape[1]
    return rows, (-1, shape[1] if group is None else group)
