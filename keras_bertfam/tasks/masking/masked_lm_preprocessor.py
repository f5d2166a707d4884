"""Raw text to masked batches, for masked language models and distillation."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.strategies import MaskingStrategy, SmoothedTokens
from keras_bertfam.layers.data.rows.translation_rows import TranslationRows
from keras_bertfam.tasks.masking.masking_preprocessor import (
    MaskingPreprocessor,
    or_published,
)
from keras_bertfam.tokenizers.pipeline_ops import tokenize_with_masks
from keras_bertfam.types import Config, TFTensor, Tokenizer


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MaskedLMPreprocessor(MaskingPreprocessor):
    """Makes masked language model examples from text, and encodes prompts.

    `dataset` packs documents into blocks and masks them anew in each pass, for
    `fit`. Called on strings, the preprocessor masks them one per row, by a
    function of the batch's ids and `seed` alone.

    With `packing="translations"` rows hold texts beside their translations, of which
    both are masked (translation language modelling), and texts of one language, as
    `mark_languages` and `read_translations` give them. Positions begin anew with each.

    Args:
        tokenizer: a tokenizer layer with a mask token, such as
            `keras_bertfam.tokenizers.BertTokenizer` or
            `RobertaTokenizer`.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        mask_selection_rate: float in [0, 1]. Defaults to `0.15`.
        mask_selection_length: int or `None`. Slots in a row. Defaults to what
            the rate gives for a full row.
        mask_token_rate: float. Defaults to `0.8`.
        random_token_rate: float. Defaults to `0.1`.
        random_token_weights: sequence of `vocabulary_size` floats or `None`; see
            `MaskTokens`. Defaults to `None`, all equal.
        strategy: which positions are masked: `"tokens"`, `"words"`, `"ngrams"`,
            `"spans"`, `"given_spans"`, or an object such as `NGrams(max_n=3)`;
            see `MaskTokens`. Where words begin is read off the vocabulary.
            Defaults to what the tokenizer's family has: `"ngrams"` for ALBERT's,
            `"ngram_windows"` for that of DeBERTa's first version, `"tokens"` for
            others.
        replacement_unit: `"token"`, `"word"` or `"span"`; see `MaskTokens`.
            Defaults to `"token"`.
        selections_per_row: `"bert"`, `"fairseq"` or `"spanbert"`; see `MaskTokens`.
            Defaults to `"fairseq"` for RoBERTa's tokenizer, `"bert"` for others.
        sequence_ids: bool. Whether blocks tell their documents apart, so that
            attention doesn't leak between them; `packing="best_fit"` always does.
            Defaults to `False`.
        mask_special_tokens: bool. Whether the tokens that begin and end a row can be
            selected. Defaults to `True` for RoBERTa's tokenizer, as in fairseq, and
            `False` for others.
        random_special_tokens: bool. Whether tokens can be replaced by one that begins
            or ends a row, pads it or is unknown. Defaults to `False` for RoBERTa's
            tokenizer, as in fairseq, and `True` for others.
        segmenter: function of a str that returns ints, the places, in characters, where
            its words begin or end; or `None` for words by the vocabulary's signs. For
            scripts without spaces, where these make one word of a line. A token of
            two words is of the first. It is saved by the name under which
            `keras.saving.register_keras_serializable` knows it, which can be given in
            its place.
        similar_words: dict from words to lists of similar ones, such as
            `keras_bertfam.analysis.similar_words` gives, or `None`. What would become
            masks becomes a similar word of as many tokens, or random tokens if there is
            none, and nothing becomes the mask token (MacBERT). Takes `"word"` or
            `"span"` as `replacement_unit`. Defaults to `None`.
        shuffle_rate: float in [0, 1]. Share of the trigrams without a mask that are put
            into a random order; the original tokens are predicted there, too, in
            slots of their own (StructBERT, with `0.05`). Defaults to `0.0`.
        languages: sequence of str or `None`. Names of languages, in the order in which
            a backbone of `num_languages` has their vectors: batches have
            `language_ids` then, rows are `"translations"`, and texts of another
            language are refused. Defaults to `None`.
        separators: int or `None`. End tokens between a text and its translation.
            Defaults to 2 for the tokenizers of RoBERTa and XLM, 1 for others.
        seed: int. Decides every order and mask. Defaults to `0`.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`.
        seed: integer tensor of shape `(2,)` or `None`: the seed of the masks.

    Returns:
        `(x, y, sample_weight)`: a dict of `token_ids`, int32 `(batch, length)`,
        `padding_mask`, bool, and `mask_positions`, int32 `(batch, slots)`; the
        original ids, int32 `(batch, slots)`; and float32 weights, 1 for a
        selection and 0 for an empty slot. By `packing="translations"` the dict has
        `position_ids` and `sequence_ids` besides, int32 `(batch, length)`, and with
        `languages` `language_ids`, -1 for a text without a language.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        tokenizer, sequence_length=128
    )
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4;
        [Conneau and Lample, 2019](https://arxiv.org/abs/1901.07291), sections 3.2 and
        3.3.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 128,
        languages: Sequence[str] | None = None,
        separators: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.languages = None if languages is None else [*languages]
        self.separators = or_published(tokenizer, separators=separators)["separators"]
        super().__init__(tokenizer, sequence_length, **kwargs)

    def packed_rows(self, packing: str) -> TranslationRows:
        return TranslationRows(
            self.text_tokenizer,
            self.sequence_length,
            self.separators,
            self.languages,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            packing=packing,
            sequence_ids=self.sequence_ids,
        )

    def _encode(self, texts, padding, corrupted=False):
        if self.languages is None:
            return super()._encode(texts, padding, corrupted)
        tokenizer = self.text_tokenizer if corrupted else self.prompt_tokenizer
        rows, _ = self.parts()
        return rows.lay_out_texts(
            texts,
            lambda texts: tokenize_with_masks(tokenizer, texts),
            rows.sequence_length if padding == "max_length" else None,
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "languages": self.languages,
            "separators": self.separators,
        }

    def make_rows(self) -> TranslationRows:
        return self.packed_rows("full")

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        x = self.masked_inputs(rows, corrupted)
        return x, corrupted["mask_ids"], corrupted["mask_weights"]


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

    def make_rows(self) -> TranslationRows:
        return self.packed_rows("doc")
