"""GPT."""

import keras

from keras_bertfam.models.decoder import DecoderBackbone
from keras_bertfam.presets.families.gpt import GPT


@keras.saving.register_keras_serializable("keras_bertfam")
class GPTBackbone(DecoderBackbone):
    """GPT: a causal Transformer of post-norm blocks.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. GPT's own values are
            `causal=True`, `embedding_norm=False`, `activation="gelu_tanh"`,
            `layer_norm_epsilon=1e-5`, `truncated_initializer=False`, `dropout=0.1`.

    Inputs and outputs are those of `DecoderBackbone`.

    `from_preset()` knows the released model as `gpt_base_en`.

    Reference: Radford et al., 2018, "Improving Language Understanding by Generative
    Pre-Training", sections 3.1 and 4.1.

    Example:

    ```python
    backbone = keras_bertfam.models.GPTBackbone(
        vocabulary_size=40478, num_layers=2, num_heads=2, hidden_dim=128,
        intermediate_dim=512)
    outputs = backbone({"token_ids": keras.ops.array([[509, 1109, 544]])})
    outputs["sequence_output"].shape  # (1, 3, 128)
    ```
    """

    record = GPT
