"""Longformer, and Longformers made from other encoders."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.longformer import LONGFORMER
from keras_bertfam.types import Model


@keras.saving.register_keras_serializable("keras_bertfam")
class LongformerBackbone(EncoderBackbone):
    """Longformer encoder: RoBERTa's with windowed attention and global tokens.

    Time and memory grow with the length of rows, not with its square.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. Longformer's own values are
            `max_sequence_length=4096`, `attention_window=512` (256 tokens on each
            side, as `transformers` counts), `max_global_tokens=160`, and RoBERTa's.

    Inputs and outputs are those of `EncoderBackbone`. The input `global_attention_mask`
    chooses the global tokens. Fine-tuning tasks of this library set it themselves, to
    the first token of a text, a question's tokens, or the tokens of each choice.
    Pre-training has no global tokens, and so doesn't train their projections. Call
    `copy_global_projections()` after it.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), sections 3
    and 5.

    Example:

    ```python
    backbone = keras_bertfam.models.LongformerBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32, attention_window=4)
    outputs = backbone({
        "token_ids": keras.ops.array([[0, 7, 8, 9, 2]]),
        "global_attention_mask": keras.ops.array([[1, 0, 0, 0, 0]]),
    })
    outputs["sequence_output"].shape  # (1, 5, 16)
    ```
    """

    record = LONGFORMER


@checked
def make_longformer(
    model: Model,
    max_sequence_length: int = 4096,
    attention_window: Any = 512,
    **kwargs: Any,
) -> Model:
    """Make a Longformer that begins with the weights of a BERT or RoBERTa.

    The model's table of positions is repeated until it is long enough. The projections
    of global tokens are copies of the other projections. Next, train it with masked
    language modelling on long rows, and then call `copy_global_projections()`.

    Args:
        model: an `EncoderBackbone` with a table of positions, such as BERT's or
            RoBERTa's, or a task of one.
        max_sequence_length: int. The longest sequence of the Longformer.
        attention_window: see `EncoderBackbone`.
        **kwargs: other arguments of `LongformerBackbone`, such as `dropout`.

    Returns:
        A `LongformerBackbone`; for a task, a task of the same class with such a
        backbone. It has no preprocessor, since it needs one for longer rows.

    Raises:
        ValueError: for another kind of model, or a `max_sequence_length` that isn't
            greater than the model's.

    Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 5.

    Example:

    ```python
    roberta = keras_bertfam.models.RobertaBackbone.from_preset(
        "roberta_base_en", load_weights=False)
    keras_bertfam.models.make_longformer(roberta).max_sequence_length  # 4096
    ```
    """
    backbone: Model = getattr(model, "backbone", model)
    _check(backbone, max_sequence_length)
    config = {
        **backbone.get_config(),
        "name": None,
        "dtype": backbone.dtype_policy,
        "max_sequence_length": max_sequence_length,
        # In `transformers` row 0 of the table is for padding.
        "position_offset": backbone.position_offset or 1,
        "attention_window": attention_window,
        "max_global_tokens": LONGFORMER.arguments["max_global_tokens"],
        **kwargs,
    }
    longer = LongformerBackbone(**config)
    _copy(backbone, longer)
    if model is backbone:
        return longer
    config = {**model.get_config(), "backbone": longer, "preprocessor": None}
    task = type(model).from_config(config)
    theirs = {id(variable) for variable in backbone.weights}
    ours = {id(variable) for variable in longer.weights}
    pairs = zip(
        (v for v in model.weights if id(v) not in theirs),
        (v for v in task.weights if id(v) not in ours),
        strict=True,
    )
    for source, target in pairs:
        target.assign(ops.copy(source))
    return task


def _check(backbone, max_sequence_length):
    fits = isinstance(backbone, EncoderBackbone) and not backbone.causal
    if not fits or backbone.embeddings.position_table is None or backbone.pruned_heads:
        raise ValueError(
            "`model` must be an encoder with a table of positions and all of its "
            f"heads, or a task with one. Received: {type(backbone).__name__}."
        )
    if backbone.config.is_local:
        raise ValueError(
            "`model` must have full attention in each layer, no windows. Received: "
            f"{type(backbone).__name__} with attention_window="
            f"{backbone.attention_window!r}."
        )
    longest = backbone.max_sequence_length
    if not isinstance(max_sequence_length, int) or max_sequence_length <= longest:
        raise ValueError(
            f"`max_sequence_length` must be more than the {longest} of `model`. "
            f"Received: {max_sequence_length!r}."
        )


def _copy(old, new):
    """Copy all weights; the table of positions is repeated."""
    shared = ("token_embedding", "norm", "projection")
    pairs = [(getattr(old.embeddings, n), getattr(new.embeddings, n)) for n in shared]
    for name in ("final_norm", "gates", "convolution"):
        pairs.append((getattr(old.encoder, name), getattr(new.encoder, name)))
    pairs.append((old.pooler, new.pooler))
    for kind in ("attention_layers", "feedforward_layers"):
        for one, other in zip(
            getattr(old.encoder, kind), getattr(new.encoder, kind), strict=True
        ):
            pairs.append((one.norm, other.norm))
            for name in ("qkv", "output_dense", "intermediate", "gated_intermediate"):
                parts = (getattr(each.sublayer, name, None) for each in (one, other))
                pairs.append(tuple(parts))
    for source, target in pairs:
        for theirs, ours in zip(_weights(source), _weights(target), strict=True):
            ours.assign(ops.copy(theirs))  # JAX would share the buffer
    for name in ("segment_table", "language_table"):
        if (of_old := getattr(old.embeddings, name)) is not None:
            getattr(new.embeddings, name).assign(ops.copy(of_old))
    table = ops.convert_to_numpy(old.embeddings.position_table)
    new.embeddings.position_table.assign(
        longer_positions(table, old.position_offset, new.position_offset, new)
    )
    new.copy_global_projections()


def _weights(layer):
    return [] if layer is None else layer.weights


def longer_positions(
    table: np.ndarray, old_offset: int, new_offset: int, backbone: Model
) -> np.ndarray:
    """Make a table of positions by repeating a shorter one.

    Args:
        table: array `(old_offset + length, width)`.
        old_offset: int. Number of rows before the first token's.
        new_offset: int. The same for the new table.
        backbone: the backbone of the new table, for its length.

    Returns:
        Array `(new_offset + max_sequence_length, width)`.
    """
    rows = table[old_offset:]
    count = -(-backbone.max_sequence_length // len(rows))
    first = np.zeros((new_offset, table.shape[1]), table.dtype)
    first[new_offset - old_offset :] = table[:old_offset]
    again = np.tile(rows, (count, 1))[: backbone.max_sequence_length]
    return np.concatenate([first, again])
