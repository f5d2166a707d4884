"""The encoder-decoder Transformer, which reads one text and writes another."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import check_number
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.models.decoder import DecoderBackbone
from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.models.exported import row_specs
from keras_bertfam.presets.families.encoder_decoder import ENCODER_DECODER
from keras_bertfam.transformer_config import FIELDS, TransformerConfig, take_settings
from keras_bertfam.types import Tensor

_SIDES = ("encoder", "decoder")
_INPUTS = ("token_ids", "padding_mask", "position_ids", "sequence_ids")
# Fields of the config that can't be the same for both sides, or that no published model
# has.
_ONE_SIDED = (
    "embedding_dim num_segments num_languages share num_groups pooler causal "
    "cross_attention pruned_heads head_gates norm_bias first_norm rotary_base "
    "attention_window attention_dilation max_global_tokens disentangled convolution "
    "num_key_value_heads"
).split()


@keras.saving.register_keras_serializable("keras_bertfam")
class EncoderDecoderBackbone(TokenBackbone):
    """Encoder-decoder Transformer; a family is a set of its arguments.

    The attribute `encoder` is an `EncoderBackbone`. The attribute `decoder` is a
    `DecoderBackbone` that attends to the encoder's states. They share the token table.

    Args:
        vocabulary_size: int.
        num_layers: int. Layers of the encoder.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        num_decoder_layers: int or `None`; `None` means `num_layers`.
        scale_outputs: bool or `None`. Whether the decoder's states are divided by the
            root of their width before they give logits, as in T5. `None` means true if
            the tables are tied and `initializer_range=None`, so that they begin with
            unit variance.
        dtype: Keras dtype or dtype policy.
        **kwargs: `name`, and other fields of `keras_bertfam.models.TransformerConfig`,
            which count for both sides. Each side has its own table of positions and
            bias by relative position. Fields that only encoders or only decoders have
            are refused.

    Call arguments:
        inputs: dict of tensors with `encoder_token_ids` (int, `(batch, length)`) and
            `decoder_token_ids` (int, `(batch, decoder_length)`). These are optional,
            for each side, with `encoder_` or `decoder_` before their names:

            - `padding_mask`, bool or int, 0 for padding;
            - `position_ids`, int, counted from 0;
            - `sequence_ids`, int: the number of the sequence to which each token of a
              packed row belongs, for both sides or none. Tokens of the decoder see
              only the encoder's tokens with the same number.

        positions: int tensor `(batch, count)`. Return the decoder's output at these
            positions only.
        return_hidden_states: bool. Whether to add `hidden_states` to the outputs.
        return_attention: bool. Whether to add `attentions` to the outputs.

    Returns:
        Dict of float tensors: `encoder_sequence_output` `(batch, length, hidden_dim)`;
        `decoder_sequence_output` `(batch, decoder_length or count, hidden_dim)`; and
        for each side, if wanted, lists of `hidden_states` and `attentions`, see
        `EncoderBackbone`.

    Raises:
        ValueError: for what `EncoderBackbone` refuses, and for `sequence_ids` of one
            side only.

    Example:

    ```python
    backbone = keras_bertfam.models.EncoderDecoderBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({
        "encoder_token_ids": keras.ops.array([[1, 2, 3, 4]]),
        "decoder_token_ids": keras.ops.array([[5, 6]]),
    })
    outputs["decoder_sequence_output"].shape  # (1, 2, 16)
    ```

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.
    """

    record = ENCODER_DECODER
    settings = {name: each for name, each in FIELDS.items() if name not in _ONE_SIDED}
    argument_names = (*settings, "num_decoder_layers", "scale_outputs")
    input_names = tuple(f"{side}_{name}" for side in _SIDES for name in _INPUTS)
    required_inputs = ("encoder_token_ids", "decoder_token_ids")

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        num_decoder_layers: int | None = None,
        *,
        scale_outputs: bool | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        given, kwargs = take_settings(kwargs)
        refused = sorted(given.keys() - self.settings.keys())
        if refused:
            raise ValueError(
                f"`{refused[0]}` can't be an argument of {type(self).__name__}: its "
                "arguments count for encoder and decoder alike. Expected: "
                f"{[*self.settings]}."
            )
        sizes = (vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim)
        config = TransformerConfig(*sizes, **given)
        if scale_outputs is None:
            tied = config.tie_embeddings and config.initializer_range is None
            scale_outputs = tied
        super().__init__(dtype=dtype, **kwargs)
        dtype = self.policies(dtype)
        self.keep_arguments(vars(config))
        count = num_layers if num_decoder_layers is None else num_decoder_layers
        check_number("num_decoder_layers", count, 1)
        self.num_decoder_layers = count
        self.scale_outputs = scale_outputs
        common = {name: getattr(config, name) for name in self.settings}
        self.encoder = EncoderBackbone(**common, dtype=dtype, name="encoder")
        self.token_embedding = self.encoder.token_embedding
        common["num_layers"] = self.num_decoder_layers
        self.decoder = DecoderBackbone(
            **common,
            cross_attention=True,
            shared_embeddings={"token_embedding": self.token_embedding},
            dtype=dtype,
            name="decoder",
        )
        self._finish_made_layers()
        self.built = True

    def call(
        self,
        inputs: dict[str, Tensor],
        positions: Tensor = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        training: bool | None = None,
    ) -> dict[str, Any]:
        asked = {
            "return_hidden_states": return_hidden_states,
            "return_attention": return_attention,
            "training": training,
        }
        encoded = self.encoder(side_of(inputs, "encoder"), **asked)
        decoded = self.decoder(
            side_of(inputs, "decoder"),
            positions=positions,
            context=encoded["sequence_output"],
            cross_mask=cross_mask(inputs),
            **asked,
        )
        return {
            f"{side}_{name}": value
            for side, outputs in zip(_SIDES, (encoded, decoded), strict=True)
            for name, value in outputs.items()
        }

    def input_signature(self) -> dict[str, keras.InputSpec]:
        return row_specs(f"{side}_{name}" for side in _SIDES for name in _INPUTS[:2])

    def _parts(self):
        halves = [half._parts() for half in (self.encoder, self.decoder)]
        return tuple([*first, *second] for first, second in zip(*halves, strict=True))

    def default_lora_layer_names(self) -> list[str]:
        return self.decoder.default_lora_layer_names()


def side_of(inputs: dict[str, Tensor], side: str) -> dict[str, Tensor]:
    """Take the inputs of one side, `"encoder"` or `"decoder"`, without its prefix."""
    return {
        name.removeprefix(f"{side}_"): value
        for name, value in inputs.items()
        if name.startswith(f"{side}_")
    }


def cross_mask(inputs: dict[str, Tensor]) -> Tensor | None:
    """Tell which of the encoder's tokens the decoder's tokens see.

    Returns:
        bool tensor `(batch, length)`, or `(batch, decoder_length, length)` in packed
        rows; `None` if all are seen.
    """
    mask = inputs.get("encoder_padding_mask")
    mask = None if mask is None else ops.cast(mask, "bool")
    given = [inputs.get(f"{side}_sequence_ids") for side in _SIDES]
    if all(ids is None for ids in given):
        return mask
    if any(ids is None for ids in given):
        raise ValueError(
            "`inputs` must have `encoder_sequence_ids` and `decoder_sequence_ids`, or "
            f"neither. Received: {sorted(inputs)}."
        )
    same = ops.equal(ops.expand_dims(given[1], 2), ops.expand_dims(given[0], 1))
    return same if mask is None else ops.logical_and(same, ops.expand_dims(mask, 1))
