"""Turn raw text into masked batches, with a context for each token."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.mask_tokens import MaskTokens
from keras_bertfam.layers.corruption.sample_contexts import SampleContexts
from keras_bertfam.layers.corruption.selection import is_any
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.data.rows.rows import SummarizedRows
from keras_bertfam.layers.data.seeding import fold
from keras_bertfam.tasks.masking.masking_preprocessor import MaskingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids, word_start_table
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedAutoencoderPreprocessor(MaskingPreprocessor):
    """`MaskedLMPreprocessor` with RetroMAE's settings and a context for each token.

    A row is a block of one document. For each token that the decoder predicts, another
    half of the row's words is hidden, see `SampleContexts`.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        mask_selection_rate: float in [0, 1]. Share of the tokens masked for the
            encoder. Defaults to `0.3`.
        hiding_rate: float in [0, 1]. Share of the words hidden when the decoder
            predicts a token. Defaults to `0.5`.
        strategy: see `MaskedLMPreprocessor`. Defaults to `"words"`.
        sequence_ids: bool. Must be `False`: a row has one vector.
        **kwargs: other arguments of `MaskedLMPreprocessor`.

    Call arguments are those of `MaskedLMPreprocessor`.

    Returns:
        `(x, y, sample_weight)`. `x` is the dict of `MaskedLMPreprocessor`, with
        `target_ids`, int32 `(batch, length)`, the original tokens, and `contexts`, bool
        `(batch, length, length)`, the tokens from which each is predicted. `y` is a
        dict of the targets `masked_lm` `(batch, slots)` and `reconstruction` `(batch,
        length)`. `sample_weight` is a dict of their float32 weights: 0 for empty slots,
        padding and special tokens.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedAutoencoderPreprocessor(
        tokenizer, sequence_length=128)
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Xiao et al., 2022](https://arxiv.org/abs/2205.12035), section 3.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        mask_selection_rate: float = 0.3,
        hiding_rate: float = 0.5,
        strategy: MaskingStrategy | Config | str = "words",
        sequence_ids: bool = False,
        **kwargs: Any,
    ) -> None:
        if sequence_ids:
            raise ValueError(
                "`sequence_ids` must be `False`: a row has one vector. Received: True."
            )
        self.hiding_rate = hiding_rate
        super().__init__(
            tokenizer,
            sequence_length=sequence_length,
            mask_selection_rate=mask_selection_rate,
            strategy=strategy,
            **kwargs,
        )

    def make_rows(self) -> SummarizedRows:
        ends = (self.tokenizer.start_token_id, self.tokenizer.end_token_id)
        length = self.sequence_length
        return SummarizedRows(self.text_tokenizer, length, *ends, packing="doc")

    def make_corruption(self) -> Any:
        masks = super().make_corruption()
        try:
            starts_word = word_start_table(self.tokenizer)
        except ValueError:  # a vocabulary that doesn't say where words begin
            starts_word = None
        contexts = SampleContexts(
            self.hiding_rate,
            pad_token_id=self.tokenizer.pad_token_id,
            unselectable_token_ids=special_token_ids(self.tokenizer),
            starts_word=starts_word,
            seed=self.seed,
        )
        return _MasksAndContexts(masks, contexts)

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], dict[str, TFTensor], dict[str, TFTensor]]:
        x = self.masked_inputs(rows, corrupted)
        token_ids = x["target_ids"] = rows["token_ids"]
        x["contexts"] = corrupted["contexts"]
        special = [*special_token_ids(self.tokenizer), self.tokenizer.pad_token_id]
        return (
            x,
            {"masked_lm": corrupted["mask_ids"], "reconstruction": token_ids},
            {
                "masked_lm": corrupted["mask_weights"],
                "reconstruction": tf.cast(~is_any(token_ids, special), tf.float32),
            },
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "hiding_rate": self.hiding_rate}


class _MasksAndContexts:
    """Mask tokens, and draw contexts for the original tokens."""

    row_arguments = MaskTokens.row_arguments

    def __init__(self, masks, contexts):
        self.masks, self.contexts = masks, contexts

    def __call__(self, token_ids, seed=None, **others):
        own = None if seed is None else fold(seed, 1)
        masked = self.masks(token_ids, seed=seed, **others)
        spans = others.get("span_ids")
        contexts = self.contexts(token_ids, seed=own, span_ids=spans)
        return {**masked, "contexts": contexts}
