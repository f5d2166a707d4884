"""XLM."""

import keras

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.xlm import XLM


@keras.saving.register_keras_serializable("keras_bertfam")
class XlmBackbone(EncoderBackbone):
    """XLM: BERT's encoder without segments, with a vector of each token's language.

    The tokenizer of its checkpoints isn't here: ids of `transformers`' `XLMTokenizer`
    are what they take. New ones are trained with any tokenizer, and on translations by
    `MaskedLMPreprocessor(languages=)`.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. XLM's own value is
            `truncated_initializer=False`; those of 15 languages have
            `num_languages=15`.

    Inputs and outputs are those of `EncoderBackbone`, `language_ids` among them. States
    of padding, which nothing reads, are zero in the original, and not here.

    Reference: [Conneau and Lample, 2019](https://arxiv.org/abs/1901.07291), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.XlmBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=64, num_languages=2)
    outputs = backbone({
        "token_ids": keras.ops.array([[1, 20, 1]]),
        "language_ids": keras.ops.array([[0, 0, 0]])})
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```
    """

    record = XLM
