"""Turn raw text into batches with masked spans and their borders."""

from typing import Any, Literal

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.selection import is_any
from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.data.rows.rows import PackedRows
from keras_bertfam.tasks.masking.masking_preprocessor import MaskingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import special_token_ids
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SpanBoundaryLMPreprocessor(MaskingPreprocessor):
    """`MaskedLMPreprocessor` with SpanBERT's settings and the spans' borders.

    A row is one segment of one document. Random tokens are drawn uniformly, or by
    `random_token_weights`. SpanBERT's code draws them by their frequency in the corpus.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        max_span_length: int. Only so many first tokens of a span of neighbouring masks
            are targets of the span boundary objective. Defaults to `15`.
        skip_special_boundaries: bool. Whether a span beside a `[CLS]` or `[SEP]` has no
            targets of the span boundary objective, as in SpanBERT's code. Defaults to
            `False`, as in the paper.
        strategy: see `MaskedLMPreprocessor`. Defaults to `"spans"`.
        replacement_unit: see `MaskedLMPreprocessor`. Defaults to `"span"`.
        selections_per_row: see `MaskedLMPreprocessor`. Defaults to `"spanbert"`.
        mask_special_tokens: see `MaskedLMPreprocessor`. Defaults to `False`.
        **kwargs: other arguments of `MaskedLMPreprocessor`.

    Call arguments are those of `MaskedLMPreprocessor`.

    Returns:
        `(x, y, sample_weight)`: the dict `x` of `MaskedLMPreprocessor` with
        `span_bounds`, int32 `(batch, slots, 2)`, the first and last position of each
        slot's span of neighbouring masks; a dict of the targets, `masked_lm` and
        `span_boundary`, each the original ids, int32 `(batch, slots)`; and a dict of
        their float32 weights.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.SpanBoundaryLMPreprocessor(
        tokenizer, sequence_length=128)
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Joshi et al., 2019](https://arxiv.org/abs/1907.10529), section 3.
    """

    return_span_bounds = True

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        max_span_length: int = 15,
        skip_special_boundaries: bool = False,
        strategy: MaskingStrategy | Config | str = "spans",
        replacement_unit: Literal["token", "word", "span"] = "span",
        selections_per_row: Literal["bert", "fairseq", "spanbert"] = "spanbert",
        mask_special_tokens: bool = False,
        **kwargs: Any,
    ) -> None:
        if max_span_length < 1:
            raise ValueError(
                f"`max_span_length` must be at least 1. Received: {max_span_length}."
            )
        self.max_span_length = max_span_length
        self.skip_special_boundaries = skip_special_boundaries
        super().__init__(
            tokenizer,
            sequence_length=sequence_length,
            strategy=strategy,
            replacement_unit=replacement_unit,
            selections_per_row=selections_per_row,
            mask_special_tokens=mask_special_tokens,
            **kwargs,
        )

    def make_rows(self) -> PackedRows:
        return self.packed_rows("doc")

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], dict[str, TFTensor], dict[str, TFTensor]]:
        x = self.masked_inputs(rows, corrupted)
        bounds = x["span_bounds"] = corrupted["span_bounds"]
        ids, weights = corrupted["mask_ids"], corrupted["mask_weights"]
        has_target = self._has_target(x, bounds)
        return (
            x,
            {"masked_lm": ids, "span_boundary": ids},
            {
                "masked_lm": weights,
                "span_boundary": weights * tf.cast(has_target, tf.float32),
            },
        )

    def _has_target(self, x, bounds):
        first, last = tf.unstack(bounds, axis=-1)
        left, right = first - 1, last + 1
        length = tf.shape(x["token_ids"])[-1]
        allowed = (left >= 0) & (right < length)
        allowed &= x["mask_positions"] - first < self.max_span_length

        def beside(values):
            """Pick the values at the tokens beside the spans."""
            places = (tf.clip_by_value(place, 0, length - 1) for place in (left, right))
            return [tf.gather(values, p, axis=-1, batch_dims=-1) for p in places]

        if "sequence_ids" in x:  # tokens of another sequence don't count as borders
            before, after = beside(x["sequence_ids"])
            own = tf.gather(x["sequence_ids"], first, axis=-1, batch_dims=-1)
            allowed &= (before == own) & (after == own)
        if self.skip_special_boundaries:
            special = is_any(x["token_ids"], self._special_token_ids())
            for found in beside(special):
                allowed &= ~found
        return allowed

    def _special_token_ids(self):
        return [*special_token_ids(self.tokenizer), self.tokenizer.pad_token_id]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_span_length": self.max_span_length,
            "skip_special_boundaries": self.skip_special_boundaries,
        }
