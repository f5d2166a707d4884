"""REALM's masking: one entity or date."""

import keras
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.selection import after_other, distinct_scores
from keras_bertfam.layers.corruption.word_strategies import GivenSpans
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.types import TFTensor


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SalientSpans(GivenSpans):
    """One whole marked span of each row, and nothing else.

    Spans stand between ⟦ and ⟧, as `KnowledgeMasking` has them: marks of the user's
    own, or those of `keras_bertfam.tasks.mark_entities`, a
    `keras_bertfam.layers.Lexicon` or `keras_bertfam.layers.mark_dates`. All spans that
    fit the slots of a row are equally likely; a row without one has no selection. How
    many tokens are selected depends on the span alone, not on a rate.

    Args:
        max_length: int or `None`. The longest span, in tokens; `None` for as many as
            there are slots.

    Raises:
        ValueError: for a `max_length` below 1.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy="salient_spans", mask_selection_length=10,
        mask_token_rate=1.0, random_token_rate=0.0)
    preprocessor(["⟦Jane Austen⟧ wrote Emma in ⟦1815⟧."])
    ```

    Reference: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.4.
    """

    name = "salient_spans"
    uses_words = False
    uses_rate = False
    uses_marks = True
    marked = "entity"

    def __init__(self, max_length: int | None = None) -> None:
        super().__init__(only_spans=True)
        check_at_least(1, max_length=max_length)
        self.max_length = max_length

    def select(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        counts: TFTensor,
        max_count: int,
        seed: TFTensor,
    ) -> TFTensor:
        begins = candidates & (starts | after_other(candidates))
        spans = tf.cumsum(tf.cast(begins, tf.int32), axis=1)
        spans = tf.where(candidates, spans, 0)  # 1, 2, ... and 0 for no span
        rows, length = tf.unstack(tf.shape(candidates))
        sizes = tf.math.unsorted_segment_sum(
            tf.reshape(tf.cast(candidates, tf.int32), [-1]),
            tf.reshape(spans + tf.range(rows)[:, None] * (length + 1), [-1]),
            rows * (length + 1),
        )
        sizes = tf.reshape(sizes, [rows, length + 1])
        longest = min(max_count, self.max_length or max_count)
        fits = (sizes > 0) & (sizes <= longest)
        scores = tf.where(fits, distinct_scores(tf.shape(sizes), seed), -1)
        chosen = tf.argmax(scores, axis=1, output_type=tf.int32)
        found = tf.reduce_max(scores, axis=1) >= 0
        return candidates & (spans == chosen[:, None]) & found[:, None]
