"""BERT."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone


def _size(num_layers, hidden_dim, vocabulary_size=30522, num_heads=None):
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "num_heads": num_heads or hidden_dim // 64,
        "hidden_dim": hidden_dim,
        "intermediate_dim": 4 * hidden_dim,
    }


_MINIATURES = {
    f"bert_l{layers}_h{width}_en_uncased": _size(layers, width)
    for layers in (2, 4, 6, 8, 10, 12)
    for width in (128, 256, 512, 768)
}


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

    `from_preset()` knows the sizes of the released models (`bert_base_en`,
    `bert_large_en_uncased`, ...) and the 24 miniatures as
    `bert_l{layers}_h{width}_en_uncased`, of which `bert_tiny_en_uncased`,
    `bert_mini_en_uncased`, `bert_small_en_uncased` and `bert_medium_en_uncased`
    also have names of their own.

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

    presets_table = {
        **_MINIATURES,
        "bert_tiny_en_uncased": _size(2, 128),
        "bert_mini_en_uncased": _size(4, 256),
        "bert_small_en_uncased": _size(4, 512),
        "bert_medium_en_uncased": _size(8, 512),
        "bert_base_en_uncased": _size(12, 768),
        "bert_base_en": _size(12, 768, 28996),
        "bert_base_zh": _size(12, 768, 21128),
        "bert_base_multi": _size(12, 768, 119547),
        "bert_large_en_uncased": _size(24, 1024),
        "bert_large_en": _size(24, 1024, 28996),
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
        family = {"num_segments": 2, "pooler": True, "activation": "gelu_tanh"}
        super().__init__(
            vocabulary_size,
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            **{**family, **kwargs},
        )
