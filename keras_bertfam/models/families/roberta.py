"""RoBERTa."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.roberta import ROBERTA


@keras.saving.register_keras_serializable("keras_bertfam")
class RobertaBackbone(EncoderBackbone):
    """RoBERTa encoder: BERT's without segments and pooler.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. RoBERTa's own values
            are `position_offset=2` (the first token's position is row 2 of a
            table of `max_sequence_length + 2` rows), `activation="gelu"` (erf),
            `layer_norm_epsilon=1e-5`, `truncated_initializer=False`,
            `dropout=0.1`.

    Inputs and outputs are those of `EncoderBackbone`.

    Reference: [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 2.

    Example:

    ```python
    backbone = keras_bertfam.models.RobertaBackbone(
        vocabulary_size=50265, num_layers=2, num_heads=2, hidden_dim=128,
        intermediate_dim=512)
    outputs = backbone({"token_ids": keras.ops.array([[0, 31414, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 128)
    ```
    """

    record = ROBERTA
