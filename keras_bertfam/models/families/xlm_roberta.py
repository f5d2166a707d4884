"""XLM-R."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.xlm_roberta import XLM_ROBERTA


@keras.saving.register_keras_serializable("keras_bertfam")
class XLMRobertaBackbone(EncoderBackbone):
    """XLM-R: RoBERTa's encoder with a vocabulary of 100 languages.

    Its vocabulary is `keras_bertfam.tokenizers.XLMRobertaTokenizer`.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. Its own values are
            RoBERTa's, see `RobertaBackbone`.

    Inputs and outputs are those of `EncoderBackbone`.

    Reference: [Conneau et al., 2019](https://arxiv.org/abs/1911.02116), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.XLMRobertaBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({"token_ids": keras.ops.array([[0, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = XLM_ROBERTA
