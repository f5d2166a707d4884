"""BART."""

import keras

from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
from keras_bertfam.presets.families.bart import BART


@keras.saving.register_keras_serializable("keras_bertfam")
class BartBackbone(EncoderDecoderBackbone):
    """BART: RoBERTa's encoder, and a decoder of the same kind.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderDecoderBackbone`. BART's own values are
            `position_offset=2`, `max_sequence_length=1024`,
            `layer_norm_epsilon=1e-5`, `truncated_initializer=False`,
            `attention_dropout=0.0`.

    Inputs and outputs are those of `EncoderDecoderBackbone`.

    `from_preset()` knows the released models as `bart_base_en` and `bart_large_en`.

    Reference: [Lewis et al., 2019](https://arxiv.org/abs/1910.13461), section 2.1.

    Example:

    ```python
    backbone = keras_bertfam.models.BartBackbone(
        vocabulary_size=50265, num_layers=2, num_heads=2, hidden_dim=128,
        intermediate_dim=512)
    outputs = backbone({
        "encoder_token_ids": keras.ops.array([[0, 31414, 50264, 2]]),
        "decoder_token_ids": keras.ops.array([[2, 0, 31414]]),
    })
    outputs["decoder_sequence_output"].shape  # (1, 3, 128)
    ```
    """

    record = BART
