"""Turn raw text into batches for replaced token detection."""

from typing import Any, Literal

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.data.pairs.electra_segments import ElectraRows
from keras_bertfam.tasks.masking.masking_preprocessor import (
    MaskingPreprocessor,
    or_published,
)
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class ReplacedTokenDetectionPreprocessor(MaskingPreprocessor):
    """`MaskedLMPreprocessor` with ELECTRA's settings, all in one dict.

    Rows have two segments of a document, see `ElectraSegments`. With `packing="full"`,
    `"doc"` or `"best_fit"` in `dataset`, or with `sequence_ids=True`, rows have no
    segments. Every selected token becomes the mask token, as in the paper. The released
    code keeps 15 % of them, which is `mask_token_rate=0.85`. The original tokens are
    inputs of the model, which makes the targets itself.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        mask_selection_rate: float in [0, 1]. Defaults to `0.15`; ELECTRA-large
            has `0.25`.
        mask_selection_length: int or `None`. Slots in a row. Defaults to
            `int((mask_selection_rate + 0.005) * sequence_length)`, at least 1.
        mask_token_rate: float. Defaults to `1.0`.
        random_token_rate: float. Defaults to `0.0`.
        strategy: see `MaskedLMPreprocessor`. Defaults to `"tokens"`.
        selections_per_row: see `MaskedLMPreprocessor`. Defaults to `"bert"`.
        mask_special_tokens: see `MaskedLMPreprocessor`. Defaults to `False`.
        **kwargs: other arguments of `MaskedLMPreprocessor`.

    Call arguments are those of `MaskedLMPreprocessor`.

    Returns:
        The dict `x` of `MaskedLMPreprocessor`, with `segment_ids`, int32 `(batch,
        length)`, if rows have segments; `mask_ids`, int32 `(batch, slots)`, the
        original ids; and `mask_weights`, float32 of that shape, 1 for a selection and 0
        for an empty slot.

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 2;
    slots: google-research/electra.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.ReplacedTokenDetectionPreprocessor(
        tokenizer, sequence_length=128)
    batches = preprocessor.dataset(documents, batch_size=32)
    ```
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        mask_selection_rate: float = 0.15,
        mask_selection_length: int | None = None,
        mask_token_rate: float = 1.0,
        random_token_rate: float = 0.0,
        strategy: MaskingStrategy | Config | str = "tokens",
        selections_per_row: Literal["bert", "fairseq", "spanbert"] = "bert",
        mask_special_tokens: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tokenizer,
            sequence_length=sequence_length,
            mask_selection_rate=mask_selection_rate,
            mask_selection_length=mask_selection_length,
            mask_token_rate=mask_token_rate,
            random_token_rate=random_token_rate,
            strategy=strategy,
            selections_per_row=selections_per_row,
            mask_special_tokens=mask_special_tokens,
            **kwargs,
        )

    def slots(self) -> int:
        if self.mask_selection_length is not None:
            return self.mask_selection_length
        return max(1, int((self.mask_selection_rate + 0.005) * self.sequence_length))

    def make_rows(self) -> ElectraRows:
        return ElectraRows(
            self.text_tokenizer,
            self.sequence_length,
            sequence_ids=self.sequence_ids,
            **or_published(self.tokenizer, separators=None),
        )

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> dict[str, TFTensor]:
        x = self.masked_inputs(rows, corrupted)
        ids, weights = corrupted["mask_ids"], corrupted["mask_weights"]
        return {**x, "mask_ids": ids, "mask_weights": weights}
