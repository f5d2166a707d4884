"""ELECTRA."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.electra import ELECTRA


@keras.saving.register_keras_serializable("keras_bertfam")
class ElectraBackbone(EncoderBackbone):
    """ELECTRA encoder: BERT's without pooler, its embeddings factorised.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. ELECTRA's own values are
            `num_segments=2`, `activation="gelu_tanh"`, `layer_norm_epsilon=1e-12`,
            `dropout=0.1`; `embedding_dim` is 128 in the small model.

    Inputs and outputs are those of `EncoderBackbone`.

    `from_preset()` knows the sizes of the released models, such as
    `electra_small_discriminator_uncased_en`, and those of the generators released
    with them. The generator of the small one is of full size, although the
    paper's (table 6) has a quarter of the discriminator's width:
    `keras_bertfam.tasks.ReplacedTokenDetection` makes the paper's.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 3
    and appendix A.

    Example:

    ```python
    backbone = keras_bertfam.models.ElectraBackbone.from_preset(
        "electra_small_discriminator_uncased_en", load_weights=False)
    outputs = backbone({"token_ids": keras.ops.array([[101, 7592, 102]])})
    outputs["sequence_output"].shape  # (1, 3, 256)
    ```
    """

    record = ELECTRA
