"""Rows of texts beside their translations, for translation language modelling."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import check_number
from keras_bertfam.layers.data.documents.reading import sentences_of
from keras_bertfam.layers.data.documents.translations import (
    checked_languages,
    split_languages,
)
from keras_bertfam.layers.data.pairs.segments import truncated_lengths
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.prepared.token_rows import TokenRows
from keras_bertfam.layers.data.rows.rows import BatchOptions, PackedRows, is_prepared
from keras_bertfam.layers.data.rows.sentence_packing import cut, whole_texts
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer

TRANSLATIONS = "translations"


class TranslationRows(PackedRows):
    """`PackedRows`, or by `packing="translations"` texts beside their translations.

    Documents are then what `mark_languages` gives. One of two languages is a sequence,
    `[start] text [end] translation [end]`, with as many end tokens between as segments
    of the family have; the last of two is the translation's first token. One of a
    single language is a sequence as by `"best_fit"`, and rows hold as many sequences as
    fit. They have `position_ids`, which begin at 0 with each text.

    Args:
        tokenizer: see `Rows`.
        sequence_length: see `Rows`.
        separators: int. End tokens between a text and its translation.
        languages: sequence of names of languages, or `None`. With them rows have
            `language_ids`, a language's place among them, or -1 for none, and hold
            nothing but `"translations"`.
        **kwargs: other arguments of `PackedRows`.

    Raises:
        ValueError: for languages that aren't names, each once, or no separator.
    """

    packings = (*PackedRows.packings, TRANSLATIONS)

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        separators: int = 1,
        languages: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.languages = None
        if languages is not None:
            self.languages = checked_languages("languages", languages, Sequence)
            kwargs["packing"] = TRANSLATIONS
        check_number("separators", separators, 1)
        super().__init__(tokenizer, sequence_length, **kwargs)
        self.separators = separators

    def check_packing(self, packing: str | None) -> str:
        packing = super().check_packing(packing)
        if self.languages and packing != TRANSLATIONS:
            raise ValueError(
                f'`packing` must be "{TRANSLATIONS}" with `languages`, of which other '
                f"rows know nothing. Received: {packing!r}."
            )
        return packing

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        packing = self.check_packing(options.packing or self.packing)
        if is_prepared(documents) or packing != TRANSLATIONS:
            return super().prepare(documents, options)
        if self._pair_budget() < 2:
            raise ValueError(self._too_short())
        texts = whole_texts(documents, options.break_lines, packing)
        return texts.map(self._parallel, **PARALLEL).apply(self._pack())

    def token_rows(self, options: BatchOptions) -> TokenRows:
        if self.check_packing(options.packing or self.packing) == TRANSLATIONS:
            raise ValueError(
                "`documents` must be a `tf.data.Dataset` of texts with "
                f'packing="{TRANSLATIONS}", or several mixed. Received: a prepared '
                "corpus."
            )
        return super().token_rows(options)

    def _too_short(self):
        return (
            f"`sequence_length` must be at least "
            f"{self.sequence_length - self._pair_budget() + 2} for a text beside its "
            f"translation. Received: {self.sequence_length}."
        )

    def _pair_budget(self):
        """Count the tokens of a text and its translation beside the special ones."""
        ends = self.separators if self.end_token_id is not None else 0
        return self._budget() - ends

    def _parallel(self, documents):
        """Make sequences of documents, of long ones several."""

        def tokens_of(texts):
            lines, text = sentences_of(self.tokenizer, texts, break_lines=False)
            count = tf.size(texts)
            lengths = tf.math.unsorted_segment_sum(lines.row_lengths(), text, count)
            return ragged.from_lengths(lines.flat_values, lengths)

        tokens, language, document = self._texts_of(documents, tokens_of)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        first, second = _of_pairs(document)
        a, b = (tf.gather(lengths, place) for place in (first, second))
        both = (a > 0) & (b > 0)  # what lost its translation is left out
        a, b = (tf.where(both, size, 0) for size in (a, b))
        lengths = self._cut_pairs(lengths, first, second, a, b)
        sizes, text = cut(lengths, self._budget())
        return self._sequences_of(tokens, lengths, sizes, text, language, second)

    def lay_out_texts(
        self,
        documents: TFTensor,
        tokenize: Callable[[TFTensor], TFRagged],
        length: int | None = None,
    ) -> dict[str, TFTensor]:
        """Lay a document out in each row, cut to `sequence_length`. Works in a graph.

        Args:
            documents: string tensor of shape `(batch,)`, with languages or without.
            tokenize: function that makes ids of texts.
            length: int, or `None` for that of the longest row.

        Returns:
            A dict of `token_ids`, `position_ids` and, if there are `languages`,
            `language_ids`, int32 `(batch, length)`, and `padding_mask`, bool.
        """
        tokens, language, document = self._texts_of(documents, tokenize)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        first, second = _of_pairs(document)
        if self._pair_budget() < 2:
            tf.debugging.Assert(tf.equal(tf.size(first), 0), [self._too_short()])
        a, b = (tf.gather(lengths, place) for place in (first, second))
        count_cut(lengths > self._budget())
        lengths = tf.minimum(lengths, self._budget())
        lengths = self._cut_pairs(lengths, first, second, a, b)
        every = tf.range(tf.size(lengths))
        rows = self._sequences_of(tokens, lengths, lengths, every, language, second)
        out = {}
        for name, column in rows.items():
            pad = self.tokenizer.pad_token_id if name == "token_ids" else 0
            dense = column.to_tensor(pad, shape=[None, length])
            out[name] = tf.ensure_shape(dense, [None, length])
        width = tf.shape(out["token_ids"])[1]
        inside = tf.sequence_mask(rows["token_ids"].row_lengths(), width)
        return {**out, "padding_mask": tf.ensure_shape(inside, [None, length])}

    def _texts_of(self, documents, tokenize):
        """Tokenise texts, and number their languages."""
        texts, names, document = split_languages(documents)
        language = tf.zeros(tf.shape(document), tf.int32)
        if self.languages is not None:
            known = names[:, None] == tf.constant(["", *self.languages])
            named = tf.reduce_any(known, 1)
            others = tf.unique(ragged.keep(names, ~named)).y
            listed = ", ".join(self.languages)
            said = f"`documents` must be of the languages {listed}. Received: "
            parts = [said, tf.strings.reduce_join(others, separator=", "), "."]
            tf.debugging.Assert(tf.reduce_all(named), [tf.strings.join(parts)])
            language = tf.argmax(known, 1, tf.int32) - 1
        return tokenize(texts), language, tf.cast(document, tf.int32)

    def _cut_pairs(self, lengths, first, second, a, b):
        """Put the lengths of pairs that fit, the longer ones being cut, among others.

        Args:
            lengths: int32 tensor of shape `(texts,)`.
            first, second: int32 tensors of shape `(pairs,)`, which texts are pairs.
            a, b: int32 tensors of that shape: their lengths.
        """
        budget = max(0, self._pair_budget())
        count_cut(a + b > budget, "pairs")
        sizes = tf.concat(truncated_lengths(a, b, budget), 0)
        places = tf.concat([first, second], 0)
        return tf.tensor_scatter_nd_update(lengths, places[:, None], sizes)

    def _sequences_of(self, tokens, lengths, sizes, text, language, second):
        """Put special tokens around pieces of texts, and join those of a pair.

        Args:
            tokens: ragged int32 tensor `(texts, None)`.
            lengths: int32 tensor `(texts,)`: how much of each is read.
            sizes: int32 tensor of shape `(pieces,)`: their lengths.
            text: int32 tensor of that shape: what each is a piece of.
            language: int32 tensor of shape `(texts,)`.
            second: int32 tensor of shape `(pairs,)`: which texts are translations.

        Returns:
            Dict of ragged int32 tensors `(sequences, None)`.
        """
        # Example: a pair of 1 and 2 tokens, with two separators, and a text of 1 are
        # token_ids     <s> 7 </s> </s> 8 9 </s> | <s> 7 </s>
        # position_ids    0 1    2    0 1 2    3 |   0 1    2
        before = tf.cumsum(sizes, exclusive=True)
        of_text = tf.gather(tf.cumsum(lengths, exclusive=True), text)
        starts = tf.gather(tf.cast(tokens.row_starts(), tf.int32), text)
        starts += before - of_text
        places = tf.ragged.range(starts, starts + sizes).flat_values
        inner = ragged.from_lengths(tf.gather(tokens.flat_values, places), sizes)
        count = tf.size(sizes)
        follows = tf.scatter_nd(
            second[:, None], tf.ones_like(second), tf.shape(lengths)
        )
        follows = tf.gather(follows, text) > 0

        def rows_of(token, kept):
            """Give the rows that are kept a token."""
            value = tf.fill([tf.reduce_sum(tf.cast(kept, tf.int32))], token)
            return ragged.from_lengths(value, tf.cast(kept, tf.int32))

        parts = [inner]
        if self.start_token_id is not None:
            parts = [rows_of(self.start_token_id, ~follows), *parts]
        if self.end_token_id is not None:
            opening = [rows_of(self.end_token_id, follows)] * (self.separators - 1)
            parts = [*opening, *parts, tf.fill([count, 1], self.end_token_id)]
        pieces = ragged.concat(parts)
        around = tf.cast(pieces.row_lengths(), tf.int32)
        sequence = tf.cumsum(tf.cast(~follows, tf.int32)) - 1
        totals = tf.math.segment_sum(around, sequence)

        def sequences(values):
            return ragged.from_lengths(values, totals)

        rows = {
            "token_ids": sequences(pieces.flat_values),
            "position_ids": sequences(tf.ragged.range(around).flat_values),
        }
        if self.languages is not None:
            own = tf.repeat(tf.gather(language, text), around)
            rows["language_ids"] = sequences(own)
        return rows


def _of_pairs(document):
    """Find the texts that are pairs, and refuse more of a document.

    Args:
        document: int32 tensor of shape `(texts,)`, ascending.

    Returns:
        Int32 tensors of shape `(pairs,)`: the first texts, and their translations.
    """
    second = tf.cast(tf.where(document[1:] == document[:-1])[:, 0] + 1, tf.int32)
    tf.debugging.Assert(
        tf.reduce_all(second[1:] - second[:-1] > 1),
        ["`documents` must be of one language or two. Received: one of more."],
    )
    return second - 1, second
