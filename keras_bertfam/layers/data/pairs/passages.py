"""Passages with titles, and pairs of a query and a passage from documents."""

import dataclasses
import itertools
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.documents.reading import continues, sentences_of
from keras_bertfam.layers.data.limited_parts import follow_pointers
from keras_bertfam.layers.data.pairs.segments import (
    SegmentBuilder,
    Sentences,
    coin,
    special_ids,
    uniform_below,
    window_seeds,
)
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.prepared.token_rows import TokenRows, sentences_in
from keras_bertfam.layers.data.rows.rows import BatchOptions, Rows, is_prepared
from keras_bertfam.layers.data.seeding import fold, random_uniform
from keras_bertfam.presets.families.parts.record import Layout
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer

# Ranges of tokens: where they begin, and their lengths.
Ranges: TypeAlias = tuple[TFTensor, TFTensor]


@dataclasses.dataclass(frozen=True)
class TitledRows:
    """A layout of texts: `[start] title [end] text [end]` or `[start] text [end]`.

    A title is cut to half a row, and a text to the rest of the row.

    Args:
        tokenizer: a tokenizer layer.
        layout: a `Layout`.
        sequence_length: int. Tokens of a row, special ones included.
        marker: int or `None`. The id of a token that follows the start token in all
            rows. If rows end with their start token, it precedes it.
    """

    tokenizer: Tokenizer
    layout: Layout
    sequence_length: int
    marker: int | None = None

    @property
    def title_length(self) -> int:
        """int: the most tokens of a title."""
        return (self._unmarked - self.layout.specials(2)) // 2

    @property
    def text_length(self) -> int:
        """int: the most tokens of a text without a title."""
        return self._unmarked - self.layout.specials(1)

    @property
    def _unmarked(self):
        return self.sequence_length - (self.marker is not None)

    def room(self, title_lengths: TFTensor) -> TFTensor:
        """Count the tokens that titles leave for texts, int32 `(rows,)`."""
        titled = title_lengths + self.layout.separators
        return self.text_length - tf.where(title_lengths > 0, titled, 0)

    def __call__(
        self,
        texts: TFRagged,
        titles: TFRagged | None = None,
        buckets: list[int] | None = None,
    ) -> dict[str, TFTensor]:
        """Make rows of texts. Works in a graph.

        Args:
            texts: ragged int32 tensor `(rows, None)`.
            titles: ragged int32 tensor `(rows, None)`, empty where there is none; or
                `None` for texts without titles.
            buckets: see `lay_out`.

        Returns:
            See `lay_out`.
        """
        tokens, text = texts.flat_values, _ranges(texts)
        if titles is None:
            return self.lay_out(tokens, [text], None, buckets)
        at, sizes = _ranges(titles)
        title = (at + tf.size(tokens), sizes)
        tokens = tf.concat([tokens, titles.flat_values], 0)
        return self.lay_out(tokens, [text], title, buckets)

    def lay_out(
        self,
        tokens: TFTensor,
        texts: list[Ranges],
        title: Ranges | None = None,
        buckets: list[int] | None = None,
    ) -> dict[str, TFTensor]:
        """Make rows of ranges of tokens. Works in a graph.

        Args:
            tokens: int32 tensor of rank 1.
            texts: list of pairs of int32 tensors `(rows,)`: where in `tokens` a part of
                each row's text begins, and its length. The parts follow each other.
            title: such a pair, of length 0 for rows without a title; or `None`.
            buckets: list of lengths, see `length_buckets`. Rows are padded to the least
                length in which they fit; to `sequence_length` by default.

        Returns:
            A dict of `token_ids` and `segment_ids`, int32 `(rows, length)`, and
            `padding_mask`, bool of that shape. A text after a title is segment 1.
        """
        at, sizes, titled = self._pieces(tf.size(tokens), texts, title)
        ends = tf.cumsum(sizes, axis=1)
        total = ends[:, -1:]
        width: Any = self.sequence_length
        if buckets is not None:
            longest = tf.reduce_max(tf.pad(total, [[1, 0], [0, 0]]))
            width = tf.gather(buckets, tf.searchsorted(buckets, longest[None])[0])
        place = tf.broadcast_to(tf.range(width), [tf.shape(total)[0], width])
        piece = tf.searchsorted(ends, place, side="right")
        inside = place < total
        known = tf.where(inside, piece, 0)
        index = tf.gather(at - ends + sizes, known, batch_dims=1) + place
        ids = tf.gather(
            tf.concat([tokens, self._specials()], 0), tf.where(inside, index, 0)
        )
        last = self.layout.start_last
        begun = inside & (piece >= (2 if last else 3)) & titled[:, None]
        segments = tf.cast(begun, tf.int32)
        if last:
            segments = tf.where(inside & (place == total - 1), 2, segments)
        rows = {
            "token_ids": tf.where(inside, ids, self.tokenizer.pad_token_id),
            "segment_ids": segments,
            "padding_mask": inside,
        }
        static = [None, self.sequence_length if buckets is None else None]
        return {name: tf.ensure_shape(x, static) for name, x in rows.items()}

    def _specials(self):
        start, between, end = special_ids(self.tokenizer, self.layout)
        marker = [] if self.marker is None else [self.marker]
        last = self.layout.start_last
        start = [*marker, *start] if last else [*start, *marker]
        return [*start, *between, *end]

    def _pieces(self, count, texts, title):
        """Find the pieces of rows: where they begin, and their sizes, `(rows, pieces)`.

        Special tokens come after the `count` tokens. Also tell which rows have a title.
        """
        none = tf.zeros_like(texts[0][1])
        title_at, title_size = (none, none) if title is None else title
        title_size = tf.minimum(title_size, self.title_length)
        titled, left = title_size > 0, self.room(title_size)
        separators = self.layout.separators
        between = tf.where(titled, separators, 0)
        begin = int(bool(self.layout.start_token)) + (self.marker is not None)
        pieces = [(title_at, title_size), (count + begin + none, between)]
        for at, size in texts:
            kept = tf.minimum(size, left)
            left -= kept
            pieces.append((at, kept))
        ends = int(self.layout.ends)
        pieces.append((count + begin + separators + none, ends + none))
        start = len(pieces) if self.layout.start_last else 0
        pieces.insert(start, (count + none, begin + none))
        at, sizes = (tf.stack(part, 1) for part in zip(*pieces, strict=True))
        return at, sizes, titled


def _ranges(rows):
    """Find where each row begins in the flat values, and its length, int32."""
    bounds = tf.cast(rows.row_splits, tf.int32)
    return bounds[:-1], bounds[1:] - bounds[:-1]


def refuse_too_long(over: np.ndarray, sequence_length: int) -> None:
    """Raise a `ValueError` for the first text that doesn't fit in its row.

    Args:
        over: int array: by how many tokens each text exceeds its room.
        sequence_length: int. Tokens of a row.
    """
    if (over > 0).any():
        row = int(np.argmax(over > 0))
        raise ValueError(
            f"`texts` must fit into rows of {sequence_length} tokens, special tokens "
            f"included. Received: a text of {sequence_length + int(over[row])} tokens, "
            f"in row {row}."
        )


# Ways to make a query and a passage from a block, and their settings.
PAIRS: dict[str, dict[str, Any]] = {
    "inverse_cloze": {"mask_rate": 0.9},
    "crops": {"crop_rates": (0.1, 0.5), "deletion_rate": 0.1},
    "neighbours": {},
    "titles": {},
}


class DocumentPairs(SegmentBuilder):
    """Makes a query and a passage from each block of documents.

    A block takes sentences of a document while they fit. `pairs` says what query and
    passage are:

    - `"inverse_cloze"`: the query is one sentence, drawn uniformly; the passage is the
      block. A share `mask_rate` of the passages is without the sentence. The others
      quote it, and teach that equal words matter;
    - `"crops"`: two runs of the block's tokens, drawn independently. Each run's share
      of the tokens is uniform in `crop_rates`. A share `deletion_rate` of its tokens is
      deleted;
    - `"neighbours"`: the sentences before and after a place that is drawn uniformly;
    - `"titles"`: the document's title and the block.

    A block that can't give such a pair is dropped, for example a single sentence with
    `"neighbours"`.

    Args:
        query_rows: `TitledRows`. The rows of queries.
        block_rows: `TitledRows`. The rows of passages.
        pairs: str, one of `PAIRS`.
        settings: dict. All settings of `pairs`.
        titles: bool. Whether a document's first line is its title. Each of its passages
            then begins with the title. With `pairs="titles"` it is the query instead.
        **kwargs: other arguments of `SegmentBuilder`.

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `query_token_ids` and `query_segment_ids`, int32 `(query_length,)`,
        `query_padding_mask`, bool of that shape, the same of `passage`,
        `(sequence_length,)`, and `weight`, a float32 scalar.

    References: [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4; crops:
    [Izacard et al., 2021](https://arxiv.org/abs/2112.09118), section 3.1; neighbours:
    [Neelakantan et al., 2022](https://arxiv.org/abs/2201.10005), section 2.1.
    """

    def __init__(
        self,
        query_rows: TitledRows,
        block_rows: TitledRows,
        pairs: str,
        settings: dict[str, Any],
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
        self.pairs = pairs
        self.settings = settings
        self.titles = titles or pairs == "titles"
        # The most tokens of a title, in passages or as the query.
        asked = pairs == "titles"
        self.title_length = query_rows.text_length if asked else block_rows.title_length

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
            names = names[:, : self.title_length]
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
        beside = tf.zeros_like(document) if self.pairs == "titles" else title_size
        goal = sentences.bounds[:-1] + self.block_rows.room(beside)
        fitting = tf.searchsorted(sentences.bounds, goal, side="right") - 1
        following = tf.minimum(tf.maximum(fitting, first + 1), sentences.document_end)
        begin = follow_pointers(following, 0)
        end = tf.gather(following, begin)
        usable = self._usable(sentences, begin, end, tf.gather(title_size, begin))
        begin, end = (ragged.keep(x, usable) for x in (begin, end))
        title = None
        if self.titles:
            title = tf.gather(title_at, begin), tf.gather(title_size, begin)
        rows = self._examples(tokens, sentences, begin, end, title, seeds)
        return {**rows, "weight": tf.ones_like(begin, tf.float32)}

    def rows_of_tokens(
        self, found: dict[str, TFTensor], seed: TFTensor
    ) -> dict[str, TFTensor]:
        """Make the rows of a prepared corpus. Works in a graph.

        A block takes sentences until they reach a row's length, and is cut to it. A
        block that gives no pair has weight 0, since it can't be dropped from a batch.

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
        usable = self._usable(sentences, begin, end, tf.zeros_like(begin))
        return {**examples, "weight": tf.cast(usable, tf.float32)}

    def _usable(self, sentences, begin, end, title_size):
        """Tell which blocks can give a pair."""
        if self.pairs == "titles":
            return title_size > 0
        if self.pairs == "crops":
            bounds = sentences.bounds
            return tf.gather(bounds, end) - tf.gather(bounds, begin) > 1
        return end - begin > 1

    def _examples(self, tokens, sentences, begin, end, title, seeds):
        """Make a query and a passage from each range of sentences."""
        make = {
            "inverse_cloze": self._inverse_cloze,
            "crops": self._crops,
            "neighbours": self._neighbours,
            "titles": self._title_and_block,
        }[self.pairs]
        tokens, query, block, title = make(tokens, sentences, begin, end, title, seeds)
        parts = {
            "query": self.query_rows.lay_out(tokens, [query]),
            "passage": self.block_rows.lay_out(tokens, block, title),
        }
        return {
            f"{side}_{name}": x
            for side, rows in parts.items()
            for name, x in rows.items()
        }

    # Each of these methods returns tokens, and ranges of them: the queries, the parts
    # of passages, and the passages' titles.

    def _inverse_cloze(self, tokens, sentences, begin, end, title, seeds):
        query = begin + uniform_below(end - begin, seeds[0])
        removed = coin(self.settings["mask_rate"], tf.size(begin), seeds[1])
        at = [tf.gather(sentences.bounds, x) for x in (begin, query, query + 1, end)]
        behind = tf.where(removed, at[2], at[1])
        block = [(at[0], at[1] - at[0]), (behind, at[3] - behind)]
        return tokens, (at[1], at[2] - at[1]), block, title

    def _neighbours(self, tokens, sentences, begin, end, title, seeds):
        middle = begin + 1 + uniform_below(end - begin - 1, seeds[0])
        at = [tf.gather(sentences.bounds, x) for x in (begin, middle, end)]
        query, block = ((x, y - x) for x, y in itertools.pairwise(at))
        return tokens, query, [block], title

    def _title_and_block(self, tokens, sentences, begin, end, title, seeds):
        at = [tf.gather(sentences.bounds, x) for x in (begin, end)]
        return tokens, title, [(at[0], at[1] - at[0])], None

    def _crops(self, tokens, sentences, begin, end, title, seeds):
        bounds = [tf.gather(sentences.bounds, x) for x in (begin, end)]
        crops = []
        for seed in seeds:
            cropped = self._cropped(tokens, *bounds, seed)
            at, sizes = _ranges(cropped)
            crops.append((at + tf.size(tokens), sizes))
            tokens = tf.concat([tokens, cropped.values], 0)
        query, block = crops
        return tokens, query, [block], title

    def _cropped(self, tokens, begin, end, seed):
        """Take a run of each block's tokens, and leave some of them out."""
        seeds = [fold(seed, k) for k in range(3)]
        least, most = self.settings["crop_rates"]
        rate = random_uniform(tf.shape(begin), seeds[0], least, most)
        size = end - begin
        length = tf.cast(rate * tf.cast(size, tf.float32), tf.int32)
        length = tf.minimum(tf.maximum(length, 1), size)
        first = begin + uniform_below(size - length + 1, seeds[1])
        places = tf.ragged.range(first, first + length)
        gone = coin(self.settings["deletion_rate"], tf.size(places.values), seeds[2])
        left = ragged.keep_in_rows(places, ~gone)
        # A crop whose tokens are all deleted keeps its first token.
        empty = (left.row_lengths() == 0) & (size > 0)
        left = ragged.fill_rows(left, empty, ragged.keep(first, empty))
        return left.with_values(tf.gather(tokens, left.values))


def _take_titles(documents):
    """Split titles, which may be empty, from the texts after them."""
    goes_on = continues(documents)  # their title is in the document's first piece
    titles = tf.strings.regex_replace(documents, r"(?s)\n.*", "")
    texts = tf.strings.regex_replace(documents, r"^[^\n]*\n?", "")
    return tf.where(goes_on, "", titles), tf.where(goes_on, documents, texts)


class DocumentPairRows(Rows):
    """Queries and passages, see `DocumentPairs`.

    Args:
        query_rows: `TitledRows`.
        block_rows: `TitledRows`.
        pairs: str.
        settings: dict.
        titles: bool.
        documents_at_once: int.
    """

    packings = ("blocks",)
    advice = (
        "give more text, in documents of more than one sentence, with titles if titles "
        "are the queries, or a smaller `batch_size`"
    )

    def __init__(
        self,
        query_rows: TitledRows,
        block_rows: TitledRows,
        pairs: str,
        settings: dict[str, Any],
        titles: bool,
        documents_at_once: int,
    ) -> None:
        super().__init__(block_rows.tokenizer, block_rows.sequence_length)
        self._arguments = (query_rows, block_rows, pairs, settings, titles)
        self._documents_at_once = documents_at_once
        self._builder()  # checks the arguments

    def _builder(self, break_lines=True):
        return DocumentPairs(
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
        builder = self._builder()
        if builder.titles:
            raise ValueError(
                '`titles` must be `False`, and `pairs` not "titles", with a prepared '
                "corpus, which doesn't know the first lines of documents. Received: "
                f"titles={self._arguments[-1]}, pairs={builder.pairs!r}."
            )
        room = builder.block_rows.text_length
        return TokenRows(RowKind("segments", room), builder.rows_of_tokens)
