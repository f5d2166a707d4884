"""Features from a backbone's states: a mix of them, and LSTMs on it."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.heads.scalar_mix import ScalarMix
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.types import Config, Model, Tensor

# What tasks read of a backbone.
_OF_BACKBONES = (
    "initializer_range",
    "truncated_initializer",
    "vocabulary_size",
    "max_sequence_length",
    "max_global_tokens",
)


@keras.saving.register_keras_serializable("keras_bertfam")
class FeatureBackbone(TokenBackbone):
    """A scalar mix of a backbone's layers, and a bidirectional LSTM on it.

    ELMo uses a frozen language model in this way; here any backbone can be used. The
    result is a backbone too, so every task of texts and words takes it. Tasks get the
    heads of the backbone's family, without its pooler. With an LSTM the first token's
    state can stand for the text, since the backward direction has read all of it. An
    LSTM reads whole rows: these features have no `sequence_ids`.

    Args:
        backbone: a backbone with `hidden_states`, such as `ElmoBackbone`.
        lstm_dim: int or `None`. Width of each direction; `None` for no LSTM.
        frozen: bool. If true, the backbone isn't trained, and computes without
            dropout. Defaults to `True`.
        layer_norm: bool. See `ScalarMix`.
        dropout: float. Dropout rate of the mix. Defaults to `0.5`.
        dtype: Keras dtype or policy.

    Inputs are those of the backbone. With `positions` the sequence output is given only
    there. `return_hidden_states` adds `hidden_states`: the backbone's, and then the
    mix.

    Returns:
        Dict of `sequence_output`, float tensor `(batch, length or count, hidden_dim)`.
        `hidden_dim` is `2 * lstm_dim`, or the backbone's without an LSTM.

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), section 3.3.

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    features = keras_bertfam.models.FeatureBackbone(backbone, lstm_dim=64)
    model = keras_bertfam.tasks.TextClassifier(features, num_classes=2)
    ```
    """

    fixed_arguments = ("lstm_dim", "frozen", "layer_norm", "dropout")

    def __init__(
        self,
        backbone: Model,
        lstm_dim: int | None = None,
        frozen: bool = True,
        layer_norm: bool = False,
        dropout: float = 0.5,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype or backbone.dtype_policy, **kwargs)
        self.backbone = backbone
        self.record = backbone.record  # its recipes and heads
        self.lstm_dim = lstm_dim
        self.frozen = frozen
        self.layer_norm = layer_norm
        self.dropout = dropout
        for name in _OF_BACKBONES:
            setattr(self, name, getattr(backbone, name))
        self.layer_norm_epsilon = getattr(backbone, "layer_norm_epsilon", None)
        unread = "sequence_ids" if lstm_dim else None
        names = backbone.input_names
        self.input_names = tuple(name for name in names if name != unread)
        self.required_inputs = backbone.required_inputs
        self.hidden_dim = 2 * lstm_dim if lstm_dim else backbone.hidden_dim

        # === Layers ===
        common = {"dtype": self.dtype_policy}
        self.mix = ScalarMix(
            backbone.num_layers + 1, layer_norm=layer_norm, name="mix", **common
        )
        self.mix_dropout = Dropout(dropout, name="mix_dropout", **common)
        self.lstm = None
        if lstm_dim:
            self.lstm = keras.layers.Bidirectional(
                keras.layers.LSTM(lstm_dim, return_sequences=True, **common),
                name="lstm",
                **common,
            )
        if frozen:
            backbone.trainable = False
        self.build()

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return
        self.mix.build()
        if self.lstm is not None:
            self.lstm.build((None, None, self.backbone.hidden_dim))
        self.built = True
        self._finish_made_layers()

    def _parts(self):
        return self.backbone._parts()

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        if self.lstm is not None and inputs.get("sequence_ids") is not None:
            raise ValueError(
                "`sequence_ids` must be left out of the inputs of features with an "
                "LSTM, which would read from one sequence on into the next. Received: "
                f"lstm_dim={self.lstm_dim}."
            )
        self.backbone.check_inputs(inputs)

    def call(
        self,
        inputs: dict[str, Any],
        positions: Tensor = None,
        return_pooled: bool | None = None,
        return_hidden_states: bool = False,
        training: bool | None = None,
    ) -> dict[str, Any]:
        if return_pooled:
            raise ValueError("`return_pooled` must be false: features have no pooler.")
        of_backbone = self.backbone(
            inputs,
            return_hidden_states=True,
            return_pooled=False,
            training=False if self.frozen else training,
        )
        states, mask = of_backbone["hidden_states"], inputs.get("padding_mask")
        mixed = self.mix(states, padding_mask=mask)
        x = self.mix_dropout(mixed, training=training)
        if self.lstm is not None:
            kept = None if mask is None else ops.cast(mask, "bool")
            x = self.lstm(x, mask=kept, training=training)
        if positions is not None:
            x = take_positions(x, ops.cast(positions, "int32"))
        outputs = {"sequence_output": x}
        if return_hidden_states:
            outputs["hidden_states"] = [*states, mixed]
        return outputs

    def input_signature(self) -> dict[str, keras.InputSpec]:
        signature: dict[str, keras.InputSpec] = self.backbone.input_signature()
        return signature

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "hidden_dim": self.hidden_dim,  # for readers of the file only
            **{name: getattr(self, name) for name in self.fixed_arguments},
        }

    @classmethod
    def from_config(cls, config: Config) -> "FeatureBackbone":
        config = {name: v for name, v in config.items() if name != "hidden_dim"}
        backbone = keras.saving.deserialize_keras_object(config["backbone"])
        return super().from_config({**config, "backbone": backbone})
