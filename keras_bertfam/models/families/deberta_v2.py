"""DeBERTa, second and third version."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.deberta_v2 import DEBERTA_V2


@keras.saving.register_keras_serializable("keras_bertfam")
class DebertaV2Backbone(EncoderBackbone):
    """DeBERTa encoder of the second and third version: disentangled attention.

    Embeddings have no positions. Attention scores depend on what tokens are and on
    their distance, in both directions. Distances fall into buckets that grow
    logarithmically, and go through the same projections as tokens. The two models of
    the second version have a convolution beside the first layer.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. DeBERTa's own values are
            `disentangled="shared"`, `relative_buckets=512`, `relative_distance=512`,
            `max_sequence_length=None`, `layer_norm_epsilon=1e-7`; the second version
            also has `convolution=3`.

    Inputs and outputs are those of `EncoderBackbone`. Rows may be of any length: a
    distance of 512 or more counts as 511, as in the released code. `transformers` has
    another row of the table for keys that are 512 or more after the query; no model was
    trained with it.

    `from_preset()` knows the sizes of the released models: `deberta_v3_extra_small_en`,
    `deberta_v3_small_en`, `deberta_v3_base_en`, `deberta_v3_large_en`,
    `deberta_v3_base_multi` (mDeBERTa), `deberta_v2_extra_large_en` and
    `deberta_v2_extra_extra_large_en`.

    References: [He et al., 2020](https://arxiv.org/abs/2006.03654), section 3.1;
    [He et al., 2021](https://arxiv.org/abs/2111.09543).

    Example:

    ```python
    backbone = keras_bertfam.models.DebertaV2Backbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 8, 2]])})
    outputs["sequence_output"].shape  # (1, 4, 16)
    ```
    """

    record = DEBERTA_V2
