"""Ettin's encoders."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.ettin import ETTIN


@keras.saving.register_keras_serializable("keras_bertfam")
class EttinBackbone(EncoderBackbone):
    """Ettin's encoder: ModernBERT's architecture, trained at six sizes on open data.

    Each size also has a decoder that was trained on the same text in the same order,
    see `ModernBertDecoderBackbone`.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int. Half of the width to which the gated feed-forward
            projects.
        **kwargs: any other argument of `EncoderBackbone`. Ettin's own values are those
            of `ModernBertBackbone`, with `rotary_base=(160_000, 160_000)`.

    Inputs and outputs are those of `EncoderBackbone`. `from_preset()` knows
    `ettin_encoder_17m_en`, and the sizes `32m`, `68m`, `150m`, `400m` and `1b`.

    Reference: [Weller et al., 2025](https://arxiv.org/abs/2507.11412).

    Example:

    ```python
    backbone = keras_bertfam.models.EttinBackbone(
        vocabulary_size=100, num_layers=3, num_heads=2, hidden_dim=16,
        intermediate_dim=24)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = ETTIN
