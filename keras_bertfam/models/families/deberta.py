"""DeBERTa, first version."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.deberta import DEBERTA


@keras.saving.register_keras_serializable("keras_bertfam")
class DebertaBackbone(EncoderBackbone):
    """DeBERTa encoder of the first version: disentangled attention.

    Embeddings have no positions. Attention scores depend on what tokens are and on
    their distance, in both directions. Each distance has a vector, and distances have
    their own projections.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. DeBERTa's own values are
            `disentangled="separate"`, `relative_buckets=1024`,
            `relative_distance=512`, `max_sequence_length=None`,
            `layer_norm_epsilon=1e-7`.

    Inputs and outputs are those of `EncoderBackbone`. Rows may be of any length.

    `from_preset()` knows the sizes of the released models: `deberta_base_en`,
    `deberta_large_en` and `deberta_extra_large_en`.

    Reference: [He et al., 2020](https://arxiv.org/abs/2006.03654), section 3.1.

    Example:

    ```python
    backbone = keras_bertfam.models.DebertaBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 8, 2]])})
    outputs["sequence_output"].shape  # (1, 4, 16)
    ```
    """

    record = DEBERTA
