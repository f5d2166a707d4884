"""ELMo."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.blocks.character_encoder import CharacterEncoder
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.layers.recurrent.projected_lstm import BidirectionalLSTM
from keras_bertfam.models.base import TokenBackbone, arguments_of
from keras_bertfam.models.exported import row_specs
from keras_bertfam.presets import preset_checks
from keras_bertfam.presets.checkpoints.allennlp import (
    check_elmo_weights,
    elmo_arguments,
    elmo_weights,
)
from keras_bertfam.presets.families.elmo import ELMO
from keras_bertfam.types import Path, Tensor

# 256 bytes; begin and end of a sentence and of a word; and the filler of short words.
# 0 is padding.
NUM_CHARACTERS = 261


@keras.saving.register_keras_serializable("keras_bertfam")
class ElmoBackbone(TokenBackbone):
    """ELMo: LSTMs in both directions over words that are built from characters.

    A mix of its states is the best feature, see `FeatureBackbone`.

    Args:
        vocabulary_size: int. Number of words that pre-training predicts. No weight of
            the backbone depends on it.
        num_layers: int. Number of LSTMs in each direction.
        hidden_dim: int, even. Width of the states; each direction has half of it.
        cell_dim: int. Width of the cells.
        embedding_dim: int. Width of the characters' embeddings.
        filters: sequence of `(width, count)`: the convolutions over characters.
        num_highways: int. Number of highway layers.
        max_characters: int. Characters of a word, its begin and end included.
        cell_clip: float or `None`. The greatest magnitude in a cell.
        projection_clip: float or `None`. The greatest magnitude in a projection.
        dropout: float. Dropout rate of the inputs of LSTMs.
        dtype: Keras dtype or policy.

    Call arguments:
        inputs: dict of tensors with `character_ids`, int `(batch, length,
            max_characters)`, see `ElmoTokenizer`. Three are optional: `padding_mask`,
            bool `(batch, length)`, false for padding, which must be at the ends of
            rows; `states`, the `states` that the call for earlier words returned; and
            `token_ids`, int `(batch, length)`, which isn't read.
        positions: int tensor `(batch, count)`. Return the sequence output only there.
        return_pooled: bool. There is no pooler, so `True` is an error.
        return_hidden_states: bool. Whether to add `hidden_states` to the outputs.
        return_states: bool. Whether to add `states` to the outputs.

    Returns:
        Dict of float tensors: `sequence_output` `(batch, length or count, hidden_dim)`,
        the last layer's output; `hidden_states`, list of `num_layers + 1` tensors
        `(batch, length, hidden_dim)`, of which the first holds the words' vectors
        twice, side by side; `states`, list of `4 * num_layers` tensors, see
        `BidirectionalLSTM`.

    Raises:
        ValueError: for an odd `hidden_dim`, words that don't have `max_characters`
            characters, or character ids out of range in a NumPy input.

    `from_preset()` knows the sizes `elmo_small_en`, `elmo_medium_en`,
    `elmo_original_en` and `elmo_original_5.5b_en`, without weights. `from_allennlp`
    reads the weights from AllenNLP's files.

    Reference: [Peters et al., 2018](https://arxiv.org/abs/1802.05365), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.ElmoBackbone(
        vocabulary_size=1000, num_layers=2, hidden_dim=16, cell_dim=32,
        embedding_dim=4, filters=[(1, 8), (3, 8)], num_highways=1)
    tokenizer = keras_bertfam.tokenizers.ElmoTokenizer()
    words = tokenizer.split_words(["<S> Ada wrote . </S>"]).to_tensor()
    inputs = {"character_ids": tokenizer.characters(words).numpy()}
    backbone(inputs)["sequence_output"].shape  # (1, 5, 16)
    ```
    """

    record = ELMO
    input_names = ("character_ids", "padding_mask", "token_ids", "states")
    required_inputs = ("character_ids",)
    # `make_initializer` uses it for heads.
    initializer_range = 0.02
    truncated_initializer = False

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        hidden_dim: int,
        cell_dim: int,
        embedding_dim: int,
        filters: Sequence[Sequence[int]],
        num_highways: int,
        max_characters: int = 50,
        cell_clip: float | None = 3.0,
        projection_clip: float | None = 3.0,
        dropout: float = 0.1,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        if hidden_dim % 2:
            raise ValueError(
                "`hidden_dim` must be even, for two directions. "
                f"Received: hidden_dim={hidden_dim}."
            )
        filters = [[int(width), int(count)] for width, count in filters]
        super().__init__(dtype=dtype, **kwargs)
        dtype = self.policies(dtype)
        self.keep_arguments(locals())

        # === Layers ===
        self.characters = CharacterEncoder(
            NUM_CHARACTERS,
            embedding_dim,
            filters,
            num_highways,
            hidden_dim // 2,
            dtype=dtype,
            name="characters",
        )
        self.lstm = BidirectionalLSTM(
            num_layers,
            cell_dim,
            hidden_dim // 2,
            cell_clip,
            projection_clip,
            dropout,
            dtype=dtype,
            name="lstm",
        )
        self.build()

    argument_names = arguments_of(__init__)

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return
        self.characters.build()
        self.lstm.build()
        self._finish_made_layers()
        self.built = True

    def _check_ids(self, name, token_ids):
        shape = tuple(token_ids.shape)
        if len(shape) != 3 or shape[2] not in (None, self.max_characters):
            raise ValueError(
                "`character_ids` must have the shape `(batch, length, "
                f"{self.max_characters})`, for max_characters={self.max_characters}. "
                f"Received: shape={shape}."
            )
        if isinstance(token_ids, np.ndarray) and token_ids.size:
            low, high = token_ids.min(), token_ids.max()
            if low < 0 or high > NUM_CHARACTERS:
                raise ValueError(
                    f"`character_ids` must be from 0 to {NUM_CHARACTERS}. Received ids "
                    f"from {low} to {high}."
                )

    def call(
        self,
        inputs: dict[str, Any],
        positions: Tensor = None,
        return_pooled: bool | None = None,
        return_hidden_states: bool = False,
        return_states: bool = False,
        training: bool | None = None,
    ) -> dict[str, Any]:
        if return_pooled:
            raise ValueError("`return_pooled` must be false: ELMo has no pooler.")
        mask = inputs.get("padding_mask")
        x = self.characters(inputs["character_ids"])
        layers, states = self.lstm(
            x, padding_mask=mask, states=inputs.get("states"), training=training
        )
        output = layers[-1]
        if positions is not None:
            output = take_positions(output, ops.cast(positions, "int32"))
        outputs = {"sequence_output": output}
        if return_hidden_states:
            first = ops.concatenate([x, x], axis=-1)
            if mask is not None:
                first = first * ops.cast(ops.expand_dims(mask, -1), first.dtype)
            outputs["hidden_states"] = [first, *layers]
        if return_states:
            outputs["states"] = states
        return outputs

    def _parts(self):
        lstm = self.lstm
        pairs = zip(lstm.forward_layers, lstm.backward_layers, strict=True)
        return [self.characters], list(pairs)

    def input_signature(self) -> dict[str, keras.InputSpec]:
        shape = (None, None, self.max_characters)
        spec = keras.InputSpec(shape=shape, dtype="int32", name="character_ids")
        return {**row_specs(["token_ids", "padding_mask"]), "character_ids": spec}

    @classmethod
    def from_allennlp(
        cls, options_file: Path, weights_file: Path, **kwargs: Any
    ) -> "ElmoBackbone":
        """Make a backbone with weights that AllenNLP or bilm-tf wrote.

        Args:
            options_file: path of `options.json`.
            weights_file: path of the HDF5 file with the weights. Only numbers are read
                from it.
            **kwargs: arguments of the constructor that the files don't contain, such as
                `dropout`.

        Returns:
            An `ElmoBackbone`.

        Raises:
            CheckpointError: for damaged files, or options that this library's model
                doesn't have.

        Example:

        ```py
        backbone = keras_bertfam.models.ElmoBackbone.from_allennlp(
            "elmo_options.json", "elmo_weights.hdf5")
        ```
        """
        arguments = elmo_arguments(options_file)
        words = {
            "vocabulary_size": ELMO.sizes["elmo_original_en"].arguments[
                "vocabulary_size"
            ]
        }
        check_elmo_weights(weights_file, arguments)
        backbone = cls(**{**words, **arguments, **kwargs})
        for path, value in elmo_weights(weights_file, arguments):
            functools.reduce(_part, path.split("."), backbone).assign(value)
        preset_checks.warn_if_not_finite(backbone.weights, weights_file)
        return backbone


def _part(whole, name):
    return whole[int(name)] if name.isdigit() else getattr(whole, name)
