"""XLM-R XL and XXL."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.xlm_roberta_xl import XLM_ROBERTA_XL


@keras.saving.register_keras_serializable("keras_bertfam")
class XLMRobertaXLBackbone(EncoderBackbone):
    """XLM-R XL and XXL: XLM-R with 36 and 48 layers, normalised before each sub-layer.

    Its vocabulary is `keras_bertfam.tokenizers.XLMRobertaTokenizer`, of which published
    tables have 878 rows more than there are tokens.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. Its own values are those of
            `XLMRobertaBackbone`, with `norm_first=True` and `embedding_norm=False`.

    Inputs and outputs are those of `EncoderBackbone`. `from_preset()` knows
    `xlm_roberta_xl_multi`, of 3.5 billion parameters, and `xlm_roberta_xxl_multi`, of
    10.7.

    Reference: [Goyal et al., 2021](https://arxiv.org/abs/2105.00572), section 2.

    Example:

    ```python
    backbone = keras_bertfam.models.XLMRobertaXLBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({"token_ids": keras.ops.array([[0, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = XLM_ROBERTA_XL
