"""MPNet."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.mpnet import MPNET


@keras.saving.register_keras_serializable("keras_bertfam")
class MPNetBackbone(EncoderBackbone):
    """MPNet: RoBERTa's encoder with a bias by relative position.

    Its vocabulary is `keras_bertfam.tokenizers.MPNetTokenizer`.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. MPNet's own values are
            RoBERTa's, see `RobertaBackbone`, and `relative_buckets=32` with
            `relative_distance=128`: T5's bias, which all layers share, in addition to
            the table of positions.

    Inputs and outputs are those of `EncoderBackbone`. `from_preset()` knows
    `mpnet_base_en_uncased`.

    Reference: [Song et al., 2020](https://arxiv.org/abs/2004.09297), section 3.1.

    Example:

    ```python
    backbone = keras_bertfam.models.MPNetBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({"token_ids": keras.ops.array([[0, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = MPNET
