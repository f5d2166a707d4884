"""Sentences taken out of their blocks: the inverse cloze task."""

from typing import Any

import tensorflow as tf

from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.documents import continues, sentences_of
from keras_bertfam.layers.data.packing import follow_pointers
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.rows import BatchOptions, Rows, is_prepared
from keras_bertfam.layers.data.segments import (
    SegmentBuilder,
    Sentences,
    coin,
    uniform_below,
    window_seeds,
)
from keras_bertfam.layers.data.titled_rows import TitledRows
from keras_bertfam.layers.data.token_rows import TokenRows, sentences_in
from keras_bertfam.tokenizers.graph import tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import TFDataset, TFTensor


class InverseCloze(SegmentBuilder):
    """Takes a sentence out of each block of documents, a query for the block.

    A block takes sentences of a document while they fit. A uniform one of them is the
    query; it is left out of the block for a share `mask_rate` of the blocks, so that
    the others teach that equal words tell something. Blocks of one sentence, of which
    nothing would be left, are dropped.

    Args:
        query_rows: `TitledRows`. The rows of queries.
        block_rows: `TitledRows`. The rows of blocks.
        mask_rate: float in [0, 1].
        titles: bool. Whether a document's first line is its title, which each of its
            blocks begins with, and no query is.
        **kwargs: other arguments of `SegmentBuilder`.

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `query_token_ids` and `query_segment_ids`, int32 `(query_length,)`,
        `query_padding_mask`, bool of that shape, the same of `passage`,
        `(sequence_length,)`, and `weight`, a float32 scalar.

    Reference: [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4.
    """

    def __init__(
        self,
        query_rows: TitledRows,
        block_rows: TitledRows,
        mask_rate: float = 0.9,
        titles: bool = False,
        **kwargs: Any,
    ) -> None:
        tokenizer, layout = block_rows.tokenizer, block_rows.layout
        super().__init__(
            tokenizer,
            block_rows.sequence_length,
            tokenizer.start_token_id,
            tokenizer.end_token_id,
            tokenizer.pad_token_id,
            layout.separators,
            **kwargs,
        )
        self.query_rows = query_rows
        self.block_rows = block_rows
        self.mask_rate = mask_rate
        self.titles = titles

    def _window(self, documents):
        titles, texts = None, documents
        if self.titles:
            titles, texts = _take_titles(documents)
        tokens, index = sentences_of(self.tokenizer, texts, self.break_lines)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        kept, document = tf.unique(index)
        self._warn_if_short(lengths, document)
        window = {
            "tokens": tokens.flat_values,
            "lengths": lengths,
            "document": document,
        }
        if titles is not None:
            names = tokenize(self.tokenizer, to_utf8(tf.gather(titles, kept)))
            names = names[:, : self.block_rows.title_length]
            window["title_tokens"] = names.flat_values
            window["title_lengths"] = tf.cast(names.row_lengths(), tf.int32)
        return window

    def build(self, windows: TFDataset, seed: int | TFTensor) -> TFDataset:
        examples = windows.enumerate().map(
            lambda number, window: self._rows(window, window_seeds(seed, number, 2)),
            **PARALLEL,
        )
        return examples.unbatch()

    def _rows(self, window, seeds):
        sentences = Sentences(window["lengths"], window["document"])
        first, document = tf.range(sentences.count), window["document"]
        tokens, title_size = window["tokens"], tf.zeros_like(document)
        if self.titles:
            sizes = window["title_lengths"]
            title_at = tf.gather(tf.cumsum(sizes, exclusive=True), document)
            title_at += tf.size(tokens)
            title_size = tf.gather(sizes, document)
            tokens = tf.concat([tokens, window["title_tokens"]], 0)
        goal = sentences.bounds[:-1] + self.block_rows.room(title_size)
        fitting = tf.searchsorted(sentences.bounds, goal, side="right") - 1
        following = tf.minimum(tf.maximum(fitting, first + 1), sentences.document_end)
        begin = follow_pointers(following, 0)
        end = tf.gather(following, begin)
        several = end - begin > 1
        begin, end = (tf.boolean_mask(x, several) for x in (begin, end))
        title = None
        if self.titles:
            title = tf.gather(title_at, begin), tf.gather(title_size, begin)
        rows = self._examples(tokens, sentences, begin, end, title, seeds)
        return {**rows, "weight": tf.ones_like(begin, tf.float32)}

    def rows_of_tokens(
        self, found: dict[str, TFTensor], seed: TFTensor
    ) -> dict[str, TFTensor]:
        """Make the rows of a prepared corpus. Works in a graph.

        A block is what reaches a row's length, and is cut to it. One of a single
        sentence, which can't be dropped from a batch, has weight 0.

        Args:
            found: what `BatchSource.read` gives.
            seed: int64 tensor of shape `(2,)`.
        """
        tokens, _, sentences = sentences_in(found)
        rows = tf.range(tf.size(found["targets"]))
        begin = tf.searchsorted(sentences.document, rows)
        end = tf.gather(sentences.document_end, begin)
        seeds = window_seeds(seed, 0, 2)
        examples = self._examples(tokens, sentences, begin, end, None, seeds)
        return {**examples, "weight": tf.cast(end - begin > 1, tf.float32)}

    def _examples(self, tokens, sentences, begin, end, title, seeds):
        """Make a query and a block of each range of sentences."""
        query = begin + uniform_below(end - begin, seeds[0])
        removed = coin(self.mask_rate, tf.size(begin), seeds[1])
        at = [tf.gather(sentences.bounds, x) for x in (begin, query, query + 1, end)]
        behind = tf.where(removed, at[2], at[1])
        block = [(at[0], at[1] - at[0]), (behind, at[3] - behind)]
        parts = {
            "query": self.query_rows.lay_out(tokens, [(at[1], at[2] - at[1])]),
            "passage": self.block_rows.lay_out(tokens, block, title),
        }
        return {
            f"{side}_{name}": x
            for side, rows in parts.items()
            for name, x in rows.items()
        }


def _take_titles(documents):
    """Split titles, empty where there are none, from the texts behind them."""
    goes_on = continues(documents)  # whose title went with the piece before
    titles = tf.strings.regex_replace(documents, r"(?s)\n.*", "")
    texts = tf.strings.regex_replace(documents, r"^[^\n]*\n?", "")
    return tf.where(goes_on, "", titles), tf.where(goes_on, documents, texts)


class InverseClozeRows(Rows):
    """Queries and blocks, see `InverseCloze`.

    Args:
        query_rows: `TitledRows`.
        block_rows: `TitledRows`.
        mask_rate: float.
        titles: bool.
        documents_at_once: int.
    """

    packings = ("blocks",)
    advice = (
        "give more text, in documents of more than one sentence, or a smaller "
        "`batch_size`"
    )

    def __init__(
        self,
        query_rows: TitledRows,
        block_rows: TitledRows,
        mask_rate: float,
        titles: bool,
        documents_at_once: int,
    ) -> None:
        super().__init__(block_rows.tokenizer, block_rows.sequence_length)
        self._arguments = (query_rows, block_rows, mask_rate, titles)
        self._documents_at_once = documents_at_once
        self._builder()  # checks the arguments

    def _builder(self, break_lines=True):
        return InverseCloze(
            *self._arguments,
            break_lines=break_lines,
            documents_at_once=self._documents_at_once,
        )

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        self.check_packing(options.packing)
        if is_prepared(documents):
            return documents
        return self._builder(options.break_lines).tokenize(documents)

    def of_pass(
        self, prepared: TFDataset, options: BatchOptions, seed: TFTensor
    ) -> TFDataset:
        return self._builder().build(prepared, seed)

    def token_rows(self, options: BatchOptions) -> TokenRows:
        self.check_packing(options.packing)
        if self._arguments[-1]:
            raise ValueError(
                "`titles` must be `False` with a prepared corpus, which doesn't tell "
                "its first lines apart. Received: titles=True."
            )
        room = self.sequence_length - self._arguments[1].layout.specials(1)
        return TokenRows(RowKind("segments", room), self._builder().rows_of_tokens)
