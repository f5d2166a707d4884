"""Turn raw text into masked batches, for masked language models and distillation."""

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

    `dataset` packs documents into rows for `fit`, and masks them anew in each epoch.
    Called on strings, the preprocessor makes a row of each; the masks depend only on
    the batch's ids and `seed`.

    With `packing="translations"` rows hold texts beside their translations, of which
    both are masked (translation language modelling), and texts of one language, as
    `mark_languages` and `read_translations` give them. Positions begin anew with each.

    Args:
        tokenizer: a tokenizer layer with a mask token, such as
            `keras_bertfam.tokenizers.BertTokenizer` or
            `RobertaTokenizer`.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        mask_selection_rate: float in [0, 1]. Share of the tokens that are predicted.
            Defaults to `0.15`.
        mask_selection_length: int or `None`. The most predicted tokens (slots) of a
            row. Defaults to the number that the rate gives for a full row.
        mask_token_rate: float. Share of these that become the mask token. Defaults to
            `0.8`.
        random_token_rate: float. Share of these that become a random token. Defaults to
            `0.1`.
        random_token_weights: sequence of `vocabulary_size` floats or `None`; see
            `MaskTokens`. Defaults to `None`, all equal.
        strategy: which positions are masked: `"tokens"`, `"words"`, `"ngrams"`,
            `"spans"`, `"given_spans"`, or an object such as `NGrams(max_n=3)`;
            see `MaskTokens`. The vocabulary tells where words begin. Defaults to the
            choice of the tokenizer's family: `"ngrams"` for ALBERT, `"ngram_windows"`
            for DeBERTa's first version, `"tokens"` for others.
        replacement_unit: `"token"`, `"word"` or `"span"`; see `MaskTokens`.
            Defaults to `"token"`.
        selections_per_row: `"bert"`, `"fairseq"` or `"spanbert"`; see `MaskTokens`.
            Defaults to `"fairseq"` for RoBERTa's tokenizer, `"bert"` for others.
        sequence_ids: bool. Whether rows have `sequence_ids`, so that tokens attend only
            to their own document. Rows of `packing="best_fit"` always have them.
            Defaults to `False`.
        mask_special_tokens: bool. Whether the tokens that begin and end a row can be
            selected. Defaults to `True` for RoBERTa's tokenizer, as in fairseq, and
            `False` for others.
        random_special_tokens: bool. Whether random tokens may be start, end, padding or
            unknown tokens. Defaults to `False` for RoBERTa's tokenizer, as in fairseq,
            and `True` for others.
        segmenter: function that takes a str and returns ints: the places, in
            characters, where its words begin or end. `None` finds words by the
            vocabulary's marks. Use it for scripts without spaces, where these marks
            make one word of a whole line. A token that spans two words belongs to the
            first. The function is saved under its name in
            `keras.saving.register_keras_serializable`; you can also give that name.
        similar_words: dict from words to lists of similar words, such as
            `keras_bertfam.analysis.similar_words` gives, or `None`. With it, as in
            MacBERT, there are no mask tokens: a word that would be masked is replaced
            by a similar word of as many tokens, or by random tokens if there is none.
            `replacement_unit` must be `"word"` or `"span"`. Defaults to `None`.
        shuffle_rate: float in [0, 1]. Share of the trigrams without a mask whose tokens
            are shuffled. Their original tokens are predicted, too, in slots of their
            own (StructBERT has `0.05`). Defaults to `0.0`.
        languages: sequence of str or `None`. Names of languages, in the order of the
            vectors that a backbone with `num_languages` has. With them batches have
            `language_ids`, rows are `"translations"`, and texts of other languages are
            refused. Defaults to `None`.
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
        *args: Any,
        languages: Sequence[str] | None = None,
        separators: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.languages = None if languages is None else [*languages]
        self.separators = or_published(tokenizer, separators=separators)["separators"]
        super().__init__(tokenizer, sequence_length, *args, **kwargs)

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

    Rare tokens are masked more often. For that, `dataset` first reads the documents
    once to count tokens, unless the strategy has counts. A row is from one document.

    Args:
        tokenizer: a tokenizer layer with a mask token.
        sequence_length: int. Tokens in a row, special ones included. Defaults
            to `128`.
        strategy: see `MaskedLMPreprocessor`. Defaults to
            `SmoothedTokens(smoothing=0.7, budget="batch")`.
        **kwargs: other arguments of `MaskedLMPreprocessor`. Call arguments and returned
            values are the same, too.

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
