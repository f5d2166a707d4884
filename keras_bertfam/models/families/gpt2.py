"""GPT-2, and GPT-3's sizes."""

import keras

from keras_bertfam.models.decoder import DecoderBackbone
from keras_bertfam.presets.families.gpt2 import GPT2


@keras.saving.register_keras_serializable("keras_bertfam")
class GPT2Backbone(DecoderBackbone):
    """GPT-2: a causal Transformer of pre-norm blocks and a final norm.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. GPT-2's own values are
            those of `GPTBackbone`, with `norm_first=True` and
            `max_sequence_length=1024`.

    Inputs and outputs are those of `DecoderBackbone`.

    `from_preset()` knows the four released models (`gpt2_base_en`, `gpt2_medium_en`,
    `gpt2_large_en`, `gpt2_extra_large_en`), DistilGPT2 as `distil_gpt2_en`, and the
    sizes of GPT-3, without weights, as `gpt3_small` to `gpt3_175b`.

    References: Radford et al., 2019, "Language Models are Unsupervised Multitask
    Learners", section 2.3; [Brown et al., 2020](https://arxiv.org/abs/2005.14165),
    table 2.1.

    Example:

    ```python
    backbone = keras_bertfam.models.GPT2Backbone(
        vocabulary_size=50257, num_layers=2, num_heads=2, hidden_dim=128,
        intermediate_dim=512)
    outputs = backbone({"token_ids": keras.ops.array([[464, 3290, 318]])})
    outputs["sequence_output"].shape  # (1, 3, 128)
    ```
    """

    record = GPT2
