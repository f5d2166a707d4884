"""SpanBERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.spanbert import SPANBERT


@keras.saving.register_keras_serializable("keras_bertfam")
class SpanBertBackbone(EncoderBackbone):
    """SpanBERT encoder: BERT's for cased text, always in one segment.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. SpanBERT's own values
            are `num_segments=2` (pre-training uses only the first),
            `pooler=True`, `activation="gelu"` (erf), `layer_norm_epsilon=1e-12`,
            `truncated_initializer=False`, `dropout=0.1`.

    Inputs and outputs are those of `EncoderBackbone`.

    `from_preset()` knows the released sizes, `spanbert_base_en_cased` and
    `spanbert_large_en_cased`.

    Reference: [Joshi et al., 2019](https://arxiv.org/abs/1907.10529), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.SpanBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    outputs = backbone({"token_ids": keras.ops.array([[2, 7, 3]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = SPANBERT
