"""Raw text to masked batches for distillation."""

from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.strategies import MaskingStrategy, SmoothedTokens
from keras_bertfam.layers.data.rows.rows import PackedRows
from keras_bertfam.tasks.pretraining.masked_lm_preprocessor import (
    MaskedLMPreprocessor,
)
from keras_bertfam.types import Config, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DistillerPreprocessor(MaskedLMPreprocessor):
    """`MaskedLMPreprocessor` with DistilBERT's settings.

    Rare tokens are masked more often: `dataset` first goes through the documents once
    to count tokens, unless the strategy has counts. A row is of one document.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        strategy: see `MaskedLMPreprocessor`. Defaults to
            `SmoothedTokens(smoothing=0.7, budget="batch")`.
        **kwargs: other arguments of `MaskedLMPreprocessor`, whose call arguments and
            returns it has.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.DistillerPreprocessor(
        tokenizer, sequence_length=128)
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Sanh et al., 2019](https://arxiv.org/abs/1910.01108), released code,
    train.py and distiller.py.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        strategy: MaskingStrategy | Config | str | None = None,
        **kwargs: Any,
    ) -> None:
        if strategy is None:
            strategy = SmoothedTokens(smoothing=0.7, budget="batch")
        super().__init__(tokenizer, sequence_length, strategy=strategy, **kwargs)

    def make_rows(self) -> PackedRows:
        return self.packed_rows("doc")
