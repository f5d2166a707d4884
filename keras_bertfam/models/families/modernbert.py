"""ModernBERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.modernbert import MODERNBERT


@keras.saving.register_keras_serializable("keras_bertfam")
class ModernBertBackbone(EncoderBackbone):
    """ModernBERT encoder: rotary positions, windows, gated feed-forward, pre-norm.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int. Half of the width to which the gated feed-forward
            projects.
        **kwargs: any other argument of `EncoderBackbone`. ModernBERT's own values are
            `attention_window=(0, 128, 128)` (every third layer, from the first on, sees
            all tokens; the others see 64 on each side);
            `rotary_base=(160_000, 10_000)` (for layers without and with a window);
            `max_sequence_length=8192`, `gated=True`, `norm_first=True`,
            `first_norm=False` (no norm before the first attention), `use_bias=False`,
            `norm_bias=False`, and no dropout.

    Inputs and outputs are those of `EncoderBackbone`. `from_preset()` knows
    `modernbert_base_en` and `modernbert_large_en`.

    Reference: [Warner et al., 2024](https://arxiv.org/abs/2412.13663), section 2.

    Example:

    ```python
    backbone = keras_bertfam.models.ModernBertBackbone(
        vocabulary_size=100, num_layers=3, num_heads=2, hidden_dim=16,
        intermediate_dim=24)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = MODERNBERT
