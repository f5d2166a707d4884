"""BERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.bert import BERT


@keras.saving.register_keras_serializable("keras_bertfam")
class BertBackbone(EncoderBackbone):
    """BERT encoder: post-norm blocks, two segments, a pooler.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. BERT's own values are
            `num_segments=2`, `pooler=True`, `activation="gelu_tanh"`,
            `layer_norm_epsilon=1e-12`, `dropout=0.1`.

    Inputs and outputs are those of `EncoderBackbone`.

    `from_preset()` knows the sizes of the released models: `bert_base_en`,
    `bert_large_en_uncased`, `bert_large_en_whole_word` (masked by whole words) and so
    on. It knows the 24 miniatures as `bert_l{layers}_h{width}_en_uncased`. Four of them
    have a second name: `bert_tiny_en_uncased`, `bert_mini_en_uncased`,
    `bert_small_en_uncased` and `bert_medium_en_uncased`.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    3; miniatures: [Turc et al., 2019](https://arxiv.org/abs/1908.08962).

    Example:

    ```python
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    outputs = backbone({"token_ids": keras.ops.array([[101, 7592, 102]])})
    outputs["pooled_output"].shape  # (1, 128)
    ```
    """

    record = BERT
