"""ModernBERT's decoder."""

import keras

from keras_bertfam.models.decoder import DecoderBackbone
from keras_bertfam.presets.families.modernbert_decoder import MODERNBERT_DECODER


@keras.saving.register_keras_serializable("keras_bertfam")
class ModernBertDecoderBackbone(DecoderBackbone):
    """ModernBERT's blocks as a decoder: Ettin's decoders.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int. Half of the width to which the gated feed-forward
            projects.
        **kwargs: any other argument of `EncoderBackbone`. Its own values are those of
            `EttinBackbone`, with `causal=True` and `attention_window=(0, 126, 126)`: in
            two of three layers a token sees itself and the 63 tokens before it, as in
            `transformers`.

    Inputs and outputs are those of `DecoderBackbone`. Its language model has the head
    of a masked one: a dense layer, an activation and a norm before the table, and a
    bias.

    `from_preset()` knows `ettin_decoder_17m_en`, and the sizes `32m`, `68m`, `150m`,
    `400m` and `1b`.

    Reference: [Weller et al., 2025](https://arxiv.org/abs/2507.11412).

    Example:

    ```python
    backbone = keras_bertfam.models.ModernBertDecoderBackbone(
        vocabulary_size=100, num_layers=3, num_heads=2, hidden_dim=16,
        intermediate_dim=24)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = MODERNBERT_DECODER
