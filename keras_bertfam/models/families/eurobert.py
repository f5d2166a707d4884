"""EuroBERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.eurobert import EUROBERT


@keras.saving.register_keras_serializable("keras_bertfam")
class EuroBertBackbone(EncoderBackbone):
    """EuroBERT: Llama's blocks as an encoder of European and other languages.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int. Half of what the gated feed-forward projects to.
        **kwargs: any other argument of `EncoderBackbone`. EuroBERT's own values are
            `norm="plain_rms"`, `norm_first=True`, `gated=True` with
            `activation="silu"`, `rotary_base=250_000`, `max_sequence_length=8192`,
            `tie_embeddings=False`, and neither biases (`use_bias=False`), a norm of
            embeddings (`embedding_norm=False`) nor dropout. In its larger sizes three
            heads of queries share keys and values (`num_key_value_heads=6`).

    Inputs and outputs are those of `EncoderBackbone`. The head of its masked language
    model is an output table and nothing else. `from_preset()` knows
    `eurobert_210m_multi`, `eurobert_610m_multi` and `eurobert_2.1b_multi`.

    Reference: [Boizard et al., 2025](https://arxiv.org/abs/2503.05500).

    Example:

    ```python
    backbone = keras_bertfam.models.EuroBertBackbone(
        vocabulary_size=100, num_layers=3, num_heads=4, hidden_dim=16,
        intermediate_dim=24, num_key_value_heads=2)
    outputs = backbone({"token_ids": keras.ops.array([[1, 7, 2]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = EUROBERT
