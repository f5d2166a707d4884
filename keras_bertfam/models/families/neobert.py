"""NeoBERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.neobert import NEOBERT


@keras.saving.register_keras_serializable("keras_bertfam")
class NeoBertBackbone(EncoderBackbone):
    """NeoBERT: a deep, narrow encoder with rotary positions, RMS norms and SwiGLU.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int. Half of the width to which the gated feed-forward
            projects.
        **kwargs: any other argument of `EncoderBackbone`. NeoBERT's own values are
            `norm="plain_rms"`, `norm_first=True`, `gated=True` with
            `activation="silu"`, `rotary_base=10_000`, `max_sequence_length=4096`,
            `tie_embeddings=False`, `uniform_initializer=True`, `use_bias=False`,
            `embedding_norm=False`, and no dropout.

    Inputs and outputs are those of `EncoderBackbone`. The head of its masked language
    model is an output table and a bias only. `from_preset()` knows
    `neobert_base_en_uncased`.

    Reference: [Le Breton et al., 2025](https://arxiv.org/abs/2502.19587), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.NeoBertBackbone(
        vocabulary_size=100, num_layers=3, num_heads=2, hidden_dim=16,
        intermediate_dim=24)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = NEOBERT
