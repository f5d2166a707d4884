"""Global tokens among the inputs of a backbone."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.modeling.global_tokens import spoilt
from keras_bertfam.types import Mixin, Tensor

_MASK, _POSITIONS = "global_attention_mask", "global_positions"


class GlobalInputs(Mixin):
    """Mixin of a backbone that may have tokens which attend to all and are seen by all.

    `encoder`, `max_global_tokens` and `embeddings` are the backbone's.
    """

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        super().check_inputs(inputs)
        given = [
            name for name in (_MASK, _POSITIONS) if inputs.get(name, None) is not None
        ]
        if not given:
            return
        if not self.max_global_tokens or len(given) > 1:
            raise ValueError(
                f"`{given[0]}` must be left out of the inputs of a backbone with "
                "max_global_tokens=0, and given without the other name. Received: "
                f"max_global_tokens={self.max_global_tokens}, {', '.join(given)}."
            )
        (name,) = given
        if isinstance(inputs[name], np.ndarray) and inputs[name].size:
            check = _check_positions if name == _POSITIONS else _check_count
            check(inputs[name], inputs["token_ids"].shape[1], self.max_global_tokens)

    def _global_tokens(
        self, x: Tensor, inputs: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        """The embedded tokens, and those among them that are global, if any.

        A row of too many has no numbers: what is compiled can't raise an error.
        """
        mask, positions = inputs.get(_MASK), inputs.get(_POSITIONS)
        tokens = self.encoder.global_tokens(mask, positions, ops.shape(x)[1])
        if mask is not None:
            x = spoilt(x, ops.cast(mask, "bool"), self.max_global_tokens)
        return x, tokens

    def global_projections(self) -> list[keras.layers.Layer]:
        """The dense layers that project global tokens, which only these train."""
        layers = (layer.sublayer for layer in self.encoder.attention_layers)
        found = (getattr(layer, "global_qkv", None) for layer in layers)
        return [layer for layer in found if layer is not None]

    def copy_global_projections(self) -> None:
        """Makes the projections of global tokens those of all tokens.

        As a Longformer is to begin fine-tuning: pre-training without global tokens
        doesn't train theirs.

        Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 5.

        Example:

        ```python
        backbone = keras_bertfam.models.LongformerBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32, attention_window=4)
        backbone.copy_global_projections()
        ```
        """
        for layer in self.encoder.attention_layers:
            theirs = getattr(layer.sublayer, "global_qkv", None)
            if theirs is not None:
                pairs = zip(layer.sublayer.qkv.weights, theirs.weights, strict=True)
                for source, target in pairs:
                    target.assign(ops.copy(source))  # JAX would share the buffer


def _check_positions(positions, length, most):
    if positions.min() < -1 or positions.max() >= length:
        raise ValueError(
            f"`{_POSITIONS}` must be from 0 to {length - 1}, in rows of {length} "
            f"tokens, or -1 for none. Received: {positions.min()} to "
            f"{positions.max()}."
        )
    if positions.shape[1] > most:
        raise ValueError(
            f"`{_POSITIONS}` must be at most max_global_tokens={most} of a row. "
            f"Received: {positions.shape[1]}."
        )


def _check_count(mask, length, most):
    count = int((mask != 0).sum(axis=1).max())
    if mask.shape[1] != length or count > most:
        raise ValueError(
            f"`{_MASK}` must have a row's {length} tokens, at most "
            f"max_global_tokens={most} of them global. Received: the shape "
            f"{mask.shape}, with {count} in a row."
        )
