"""ERNIE's masking: words, then phrases, then entities."""

import keras

from keras_bertfam.layers.corruption.strategies import MaskingStrategy
from keras_bertfam.layers.corruption.word_strategies import GivenSpans
from keras_bertfam.layers.data.marks import MARKS
from keras_bertfam.types import TFTensor

STAGES = ("basic", *MARKS)


@keras.saving.register_keras_serializable("keras_bertfam")
class KnowledgeMasking(GivenSpans):
    """Whole phrases, or entities, that are marked in the text, and words.

    A phrase stands between ⟪ and ⟫, an entity between ⟦ and ⟧: `"⟦New York⟧ is ⟪by
    far⟫ the largest."` A text may have both, one within the other. Marks can be the
    user's, those of a `keras_bertfam.layers.Lexicon` or of
    `keras_bertfam.tasks.mark_entities`; preprocessors leave them out of the text.

    Each stage masks whole units in random order, each that fits what is left of a
    row's count: in the `"basic"` stage words, which in Chinese are characters; in the
    other two the spans of that kind, and the words that are in none. A mark without
    its counterpart in the same sentence makes no span, and a span that a row's end cuts
    is one in each row.

    Called without a preprocessor, `MaskTokens` must be given `span_ids` in the other
    two stages; see `GivenSpans`.

    Args:
        stage: `"basic"`, `"phrase"` or `"entity"`. Training goes through them in this
            order. Defaults to `"entity"`.

    Raises:
        ValueError: for another stage.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    documents = documents.map(keras_bertfam.layers.Lexicon("entities.txt"))
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, strategy=keras_bertfam.layers.KnowledgeMasking("entity")
    )
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    Reference: [Sun et al., 2019](https://arxiv.org/abs/1904.09223), section 3.2.
    """

    name = "knowledge"
    uses_marks = True

    def __init__(self, stage: str = "entity") -> None:
        super().__init__()
        if stage not in STAGES:
            raise ValueError(f"`stage` must be one of {STAGES}. Received: {stage!r}.")
        self.stage = stage
        self.marked = None if stage == "basic" else stage

    def units(
        self,
        token_ids: TFTensor,
        candidates: TFTensor,
        starts: TFTensor,
        span_ids: TFTensor | None,
    ) -> tuple[TFTensor, TFTensor]:
        if self.stage == "basic":
            return MaskingStrategy.units(self, token_ids, candidates, starts, span_ids)
        return super().units(token_ids, candidates, starts, span_ids)
