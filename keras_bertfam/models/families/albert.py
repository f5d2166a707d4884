"""ALBERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.albert import ALBERT


@keras.saving.register_keras_serializable("keras_bertfam")
class AlbertBackbone(EncoderBackbone):
    """ALBERT encoder: BERT's with factorised embeddings and shared layers.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. ALBERT's own values are
            `embedding_dim=128`, `share="all"`, `num_segments=2`, `pooler=True`,
            `activation="gelu_tanh"`, `layer_norm_epsilon=1e-12`, and no dropout,
            as in version 2 of the released models.

    Inputs and outputs are those of `EncoderBackbone`. The rows of the paper's
    table 4 are `share="none"`, `"attention"`, `"ffn"` and `"all"`.

    `from_preset()` knows the sizes of the released models: version 2 by KerasHub's
    names (`albert_base_en_uncased`, `albert_large_en_uncased`,
    `albert_extra_large_en_uncased`, `albert_extra_extra_large_en_uncased`), and
    version 1, which has dropout 0.1 except in the largest, as
    `albert_base_v1_en_uncased` and so on.

    Reference: [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.AlbertBackbone.from_preset(
        "albert_base_en_uncased", load_weights=False)
    outputs = backbone({"token_ids": keras.ops.array([[2, 10975, 3]])})
    outputs["pooled_output"].shape  # (1, 768)
    ```
    """

    record = ALBERT
