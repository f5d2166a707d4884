"""mmBERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.mmbert import MMBERT


@keras.saving.register_keras_serializable("keras_bertfam")
class MmBertBackbone(EncoderBackbone):
    """mmBERT: ModernBERT's body for 1,833 languages, with Gemma 2's vocabulary.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int. Half of what the gated feed-forward projects to.
        **kwargs: any other argument of `EncoderBackbone`. mmBERT's own values are those
            of `ModernBertBackbone`, with `rotary_base=(160_000, 160_000)`.

    Inputs and outputs are those of `EncoderBackbone`. `from_preset()` knows
    `mmbert_small_multi` and `mmbert_base_multi`.

    Reference: [Marone et al., 2025](https://arxiv.org/abs/2509.06888).

    Example:

    ```python
    backbone = keras_bertfam.models.MmBertBackbone(
        vocabulary_size=100, num_layers=3, num_heads=2, hidden_dim=16,
        intermediate_dim=24)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = MMBERT
