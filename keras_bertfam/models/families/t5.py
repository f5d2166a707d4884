"""T5."""

import keras

from keras_bertfam.models.encoder_decoder import EncoderDecoderBackbone
from keras_bertfam.presets.families.t5 import T5


@keras.saving.register_keras_serializable("keras_bertfam")
class T5Backbone(EncoderDecoderBackbone):
    """T5: pre-norm blocks with RMS norms, relative positions and no biases.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderDecoderBackbone`. T5's own values are
            `norm="rms"`, `norm_first=True`, `use_bias=False`, `attention_scale=1.0`,
            `relative_buckets=32`, `max_sequence_length=None`, `activation="relu"`,
            `embedding_norm=False`, `layer_norm_epsilon=1e-6`, and `dropout=0.1`, also
            inside the feed-forward sub-layers and after the last norm.
            Version 1.1 has `gated=True`, `activation="gelu_tanh"` and
            `tie_embeddings=False`.

    Inputs and outputs are those of `EncoderDecoderBackbone`.

    `from_preset()` knows the released models: version 1 (`t5_small_multi`,
    `t5_base_multi`, `t5_large_multi`, `t5_3b_multi`, `t5_11b_multi`), version 1.1
    (`t5_1.1_small` to `t5_1.1_xxl`) and Flan-T5 (`flan_small_multi` to
    `flan_xxl_multi`).

    References: [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.1;
    version 1.1: [Shazeer, 2020](https://arxiv.org/abs/2002.05202).

    Example:

    ```python
    backbone = keras_bertfam.models.T5Backbone(
        vocabulary_size=32128, num_layers=2, num_heads=2, hidden_dim=128,
        intermediate_dim=512)
    outputs = backbone({
        "encoder_token_ids": keras.ops.array([[37, 1712, 19, 1]]),
        "decoder_token_ids": keras.ops.array([[0, 644]]),
    })
    outputs["decoder_sequence_output"].shape  # (1, 2, 128)
    ```
    """

    record = T5
