"""RoBERTa."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone


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

    presets_table = {
        "roberta_base_en": {
            "vocabulary_size": 50265,
            "num_layers": 12,
            "num_heads": 12,
            "hidden_dim": 768,
            "intermediate_dim": 3072,
        },
        "roberta_large_en": {
            "vocabulary_size": 50265,
            "num_layers": 24,
            "num_heads": 16,
            "hidden_dim": 1024,
            "intermediate_dim": 4096,
        },
    }

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        **kwargs,
    ):
        family = {
            "position_offset": 2,
            "layer_norm_epsilon": 1e-5,
            "truncated_initializer": False,
        }
        super().__init__(
            vocabulary_size,
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            **{**family, **kwargs},
        )
