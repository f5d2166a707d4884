"""Turn raw text into rows that are masked at any rate, for masked diffusion."""

from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.diffuse_tokens import DiffuseTokens
from keras_bertfam.layers.data.rows.rows import PackedRows
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedDiffusionLMPreprocessor(PackingPreprocessor):
    """Makes rows of text, each masked at a rate of its own.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults to `128`.
        lowest_rate: float in [0, 1]. Rates are drawn uniformly between it and 1.
            Defaults to `0.001`.
        sequence_ids: bool. Whether tokens attend only to their own document. Defaults
            to `False`.
        seed: int. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed of rates and masks.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`, with
        masks, and `padding_mask`, bool; the original ids, int32, -1 for special tokens
        and padding; and float32 weights, `1 / rate` for masked tokens and 0 for others.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedDiffusionLMPreprocessor(
        tokenizer, sequence_length=64)
    batches = preprocessor.dataset(documents, batch_size=8)
    ```

    Reference: [Nie et al., 2025](https://arxiv.org/abs/2502.09992), section 2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        lowest_rate: float = 0.001,
        sequence_ids: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if getattr(tokenizer, "mask_token", None) is None:
            raise ValueError(
                "`tokenizer` must have a mask token. "
                f"Received: {type(tokenizer).__name__}."
            )
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        self.lowest_rate = lowest_rate
        self.sequence_ids = sequence_ids
        self.build_if_ready()

    def make_rows(self) -> PackedRows:
        return PackedRows(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            sequence_ids=self.sequence_ids,
        )

    def make_corruption(self) -> DiffuseTokens:
        return DiffuseTokens(
            self.tokenizer.mask_token_id,
            self.lowest_rate,
            pad_token_id=self.tokenizer.pad_token_id,
            unselectable_token_ids=[
                *special_token_ids(self.tokenizer),
                self.tokenizer.mask_token_id,
            ],
            seed=self.seed,
        )

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        x = {**rows, "token_ids": corrupted["token_ids"]}
        return x, corrupted["targets"], corrupted["weights"]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "lowest_rate": self.lowest_rate,
            "sequence_ids": self.sequence_ids,
        }
