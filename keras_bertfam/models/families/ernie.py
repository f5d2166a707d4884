"""ERNIE 1.0."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.ernie import ERNIE


@keras.saving.register_keras_serializable("keras_bertfam")
class ErnieBackbone(EncoderBackbone):
    """ERNIE 1.0: BERT's encoder for Chinese characters, with ReLU and 513 positions.

    It learns phrases and entities by its masking, see
    `keras_bertfam.layers.KnowledgeMasking`.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. ERNIE's own values are
            `num_segments=2`, `pooler=True`, `activation="relu"`,
            `max_sequence_length=513`, `layer_norm_epsilon=1e-12`, `dropout=0.1`.

    Inputs and outputs are those of `EncoderBackbone`.

    `from_preset()` knows the released size, `ernie_base_zh`, and folders of
    `transformers` without ERNIE 2.0's table of tasks.

    Reference: [Sun et al., 2019](https://arxiv.org/abs/1904.09223), section 3.1.

    Example:

    ```python
    backbone = keras_bertfam.models.ErnieBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({"token_ids": keras.ops.array([[2, 7, 3]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = ERNIE
