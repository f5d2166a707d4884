"""Parallel streams of text, each continued from batch to batch, for memory."""

import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.documents.reading import tokenize_sentences
from keras_bertfam.layers.data.limited_parts import batches_of_texts
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.prepared.token_rows import TokenRows
from keras_bertfam.layers.data.rows.rows import BatchOptions, Rows
from keras_bertfam.layers.data.seeding import fold, random_uniform, shuffle, split_seed
from keras_bertfam.tokenizers.pipeline_ops import document_end_id
from keras_bertfam.tokenizers.texts import check_documents
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


@checked
class ParallelStreams:
    """Lays documents out in parallel streams: use it with `Dataset.apply`.

    Row `k` of a batch goes on where row `k` of the batch before stopped, so that a
    model's memory of one batch is useful in the next. A document goes to the shortest
    stream. Only the text by which streams differ in length is held in memory. Text at
    the end that doesn't fill a batch is dropped.

    Args:
        tokenizer: a tokenizer layer. Called on a batch of strings in a graph,
            it gives a ragged tensor of ids.
        batch_size: int. The number of rows.
        window: int. Tokens of a row.
        advance: int. How many tokens further the next batch begins.
        end_token_id: int. The id that ends each document.
        both_directions: bool. Whether the second half of the rows has the documents of
            the first half backwards, with the end token first.
        break_lines: bool. See `split_sentences`. Defaults to `True`.
        documents_at_once: int. The most documents that are tokenised together. Defaults
            to `256`.

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `token_ids`, int32 `(batch_size, window)`; `starts_sentence`, bool of
        that shape; `continues`, bool `(batch_size,)`, false in the first batch
        only; and `reversed_rows`, bool `(batch_size,)`.

    Example:

    ```python
    from keras_bertfam.layers.data.streams.parallel_streams import ParallelStreams
    tokenizer = keras_bertfam.tokenizers.XLNetTokenizer("spiece.model")
    streams = ParallelStreams(
        tokenizer, batch_size=8, window=512, advance=256, end_token_id=4)
    batches = keras_bertfam.layers.read_documents("corpus/*.txt").apply(streams)
    ```
    """

    dtype = tf.int32  # of the units

    def __init__(
        self,
        tokenizer: Tokenizer,
        batch_size: int,
        window: int,
        advance: int,
        end_token_id: int,
        both_directions: bool = False,
        break_lines: bool = True,
        documents_at_once: int = 256,
    ) -> None:
        if both_directions and batch_size % 2:
            raise ValueError(
                "`batch_size` must be even for both directions. "
                f"Received: batch_size={batch_size}."
            )
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.window = window
        self.advance = advance
        self.end_token_id = end_token_id
        self.both_directions = both_directions
        self.break_lines = break_lines
        self.documents_at_once = documents_at_once

    @as_written
    def __call__(self, documents: TFDataset) -> TFDataset:
        chunks = batches_of_texts(documents, self.documents_at_once)
        chunks = chunks.map(self._tokenize, **PARALLEL)
        nothing = tf.zeros([0], self.dtype)
        lengths = tf.zeros([self.batch_size], tf.int32)
        state = (nothing, lengths, tf.constant(False))
        return chunks.scan(state, self._step).unbatch()

    def _tokenize(self, documents):
        """Turn documents into units; give these and their number for each document.

        A unit is `4 * id`, plus 1 if a sentence starts with it in reading order, plus 2
        if a sentence starts with it when read backwards.
        """
        sentences, document = tokenize_sentences(
            self.tokenizer, documents, self.break_lines
        )
        lengths = tf.cast(sentences.row_lengths(), tf.int32)
        within = tf.ragged.range(lengths).flat_values
        last = tf.repeat(lengths, lengths) - 1
        units = 4 * sentences.flat_values + tf.cast(within == 0, tf.int32)
        units += 2 * tf.cast(within == last, tf.int32)
        owner = tf.repeat(tf.cast(document, tf.int32), lengths)
        rows = tf.RaggedTensor.from_value_rowids(units, owner)
        end = tf.fill([rows.nrows(), 1], 4 * self.end_token_id)
        rows = tf.concat([rows, end], 1)
        return rows.flat_values, tf.cast(rows.row_lengths(), tf.int32)

    def _step(self, state, chunk):
        units, lengths, started = state
        open_rows = tf.RaggedTensor.from_row_lengths(units, lengths)
        documents = tf.RaggedTensor.from_row_lengths(*chunk)
        streams = self.batch_size // (2 if self.both_directions else 1)
        rows = _shortest_first(lengths[:streams], chunk[1])
        if self.both_directions:
            documents = tf.concat([documents, _reverse(documents)], 0)
            rows = tf.concat([rows, rows + streams], 0)
        # First the open text of each row, then its new documents in order.
        rows = tf.concat([tf.range(self.batch_size), rows], 0)
        pieces = tf.concat([open_rows, documents], 0)
        pieces = tf.gather(pieces, tf.argsort(rows, stable=True))
        sizes = tf.concat([lengths, tf.cast(documents.row_lengths(), tf.int32)], 0)
        lengths = tf.math.unsorted_segment_sum(sizes, rows, self.batch_size)
        units = pieces.flat_values
        ready = (tf.reduce_min(lengths) - self.window) // self.advance + 1
        ready = tf.maximum(ready, 0)
        begins = tf.cumsum(lengths, exclusive=True)
        at = begins + tf.range(ready)[:, None] * self.advance
        windows = tf.gather(units, at[..., None] + tf.range(self.window))
        continues = started | (tf.range(ready) > 0)
        done = ready * self.advance
        kept = tf.ragged.range(begins + done, begins + lengths).flat_values
        state = (tf.gather(units, kept), lengths - done, started | (ready > 0))
        return state, self._batches(windows, continues, streams)

    def _batches(self, windows, continues, streams):
        shape = [None, self.batch_size, self.window]
        windows = tf.ensure_shape(windows, shape)
        count = tf.shape(windows)[0]
        backwards = tf.range(self.batch_size) >= streams
        flag = tf.where(backwards[:, None], 2, 1)
        return {
            "token_ids": windows // 4,
            "starts_sentence": tf.bitwise.bitwise_and(windows, flag) > 0,
            "continues": tf.repeat(continues[:, None], self.batch_size, 1),
            "reversed_rows": tf.repeat(backwards[None], count, 0),
        }


def _shortest_first(lengths, sizes):
    """Give each item in turn to the shortest row, and return the rows."""
    # Example: rows of 3 and 0 get items of 2, 2, 4, 1, 1: rows 1, 1, 0, 1, 1.

    def give(state, size):
        lengths, _ = state
        row = tf.argmin(lengths, output_type=tf.int32)
        return lengths + size * tf.one_hot(row, tf.size(lengths), dtype=tf.int32), row

    return tf.scan(give, sizes, (lengths, tf.constant(0)))[1]


def _reverse(rows):
    """Reverse each row of a ragged tensor."""
    # Example: [[1, 2, 3], [4, 5]] gives [[3, 2, 1], [5, 4]].
    index = tf.range(tf.size(rows.flat_values, rows.row_splits.dtype))
    begins = tf.gather(rows.row_starts(), rows.value_rowids())
    ends = tf.gather(rows.row_limits(), rows.value_rowids())
    return rows.with_values(tf.gather(rows.flat_values, begins + ends - 1 - index))


def join_segments(
    batch: dict[str, TFTensor],
    reuse_length: int,
    start_token_id: int,
    end_token_id: int,
    next_rate: float,
    seed: TFTensor,
) -> dict[str, TFTensor]:
    """Cut the windows of parallel streams into XLNet's rows of two segments.

    A row is `[reused tokens, A, end, B, end, start]`, with the segments 0, 0, 0, 1, 1
    and 2. A ends where a sentence ends, or anywhere if no sentence ends in the window.
    B is the text after A, or begins with a sentence of another row of the same
    direction. B fills the rest of the row.

    Args:
        batch: dict that `ParallelStreams` gives, with windows of
            `sequence_length - 3` tokens.
        reuse_length: int.
        start_token_id: int.
        end_token_id: int.
        next_rate: float. The probability that B follows A.
        seed: integer tensor of shape `(2,)`.

    Returns:
        Dict of `token_ids` and `segment_ids`, int32 `(batch, window + 3)`.
    """
    # Example: rows 11 12 13 14 15 and 21 22 23 24 25, `reuse_length` 1, sentences that
    # start at 14 and 24, end 2 and start 1. If B comes from the second row, the first
    # becomes:
    # token_ids     11 12 13  2 24 25  2  1
    # segment_ids    0  0  0  0  1  1  1  2
    # place         -3 -2 -1  0  1  2  3  4
    seeds = split_seed(seed, 4)
    body, starts = (
        batch[name][:, reuse_length:] for name in ("token_ids", "starts_sentence")
    )
    rows, length = body.shape
    index = tf.range(length)

    def choose(allowed, otherwise, seed):
        """Draw an allowed index for each row, uniformly; `otherwise` if none is."""
        scores = random_uniform([rows, length], seed)
        chosen = tf.argmax(tf.where(allowed, scores, -1.0), 1, tf.int32)
        return tf.where(tf.reduce_any(allowed, 1), chosen, otherwise)

    anywhere = random_uniform([rows], seeds[0], 1, length, tf.int32)
    cut = choose(starts & (index > 0), anywhere, seeds[1])[:, None]
    draws = random_uniform([rows, 2], seeds[2])
    half = tf.reduce_sum(tf.cast(batch["reversed_rows"], tf.int32))
    half = tf.where(half > 0, half, rows)
    number = tf.range(rows)
    shift = 1 + tf.cast(draws[:, 0] * tf.cast(half - 1, tf.float32), tf.int32)
    other = number // half * half + (number + shift) % half
    follows = draws[:, 1] < next_rate
    begin = choose(tf.gather(starts, other) & (index <= cut), 0, seeds[3])
    begin = tf.where(follows, cut[:, 0], begin)
    source = tf.where(follows, number, other)
    place = tf.range(-reuse_length, length + 3)[None] - cut  # 0 just after A
    at = tf.clip_by_value(begin[:, None] + place - 1, 0, length - 1)
    second = tf.gather(tf.gather(body, source), at, batch_dims=1)
    ids = tf.pad(batch["token_ids"], [[0, 0], [0, 3]])
    ids = tf.where(place > 0, second, ids)
    ids = tf.where((place == 0) | (place == length - cut + 1), end_token_id, ids)
    last = place == length - cut + 2
    segments = tf.cast(place > 0, tf.int32) + tf.cast(last, tf.int32)
    return {"token_ids": tf.where(last, start_token_id, ids), "segment_ids": segments}


def check_continued_options(options: BatchOptions) -> None:
    """Raise a `ValueError` for options that continued rows can't have."""
    for name in ("packing", "tokens_per_batch"):
        if (value := getattr(options, name)) is not None:
            raise ValueError(
                f"`{name}` must be `None` for full rows that go on in the next batch. "
                f"Received: {value!r}."
            )
    if options.drop_remainder is False:
        raise ValueError(
            "`drop_remainder` must be `None` for rows that go on in the next batch: "
            "all batches have the same number of rows. Received: False."
        )


def check_continued(documents: TFDataset, options: BatchOptions) -> TFDataset:
    """Check that documents can be laid out in continued rows, and return them.

    Raises:
        ValueError: for options that continued rows can't have, or no documents.
    """
    check_continued_options(options)
    return check_documents(documents)


class ParallelRows(Rows):
    """XLNet's rows of parallel streams; see `ParallelStreams` and `join_segments`.

    Args:
        tokenizer: see `Rows`. A row ends with its end token and its start token.
        sequence_length: see `Rows`.
        reuse_length: int. How many tokens a row repeats of the one before.
        both_directions: bool. Whether half of the rows are text read backwards.
        next_rate: float in [0, 1]. The probability that B follows A.
    """

    advice = (
        "give at least one document for each row, and more text, or a smaller "
        "`batch_size`"
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        reuse_length: int,
        both_directions: bool = False,
        next_rate: float = 0.5,
    ) -> None:
        start, end = tokenizer.start_token_id, tokenizer.end_token_id
        super().__init__(tokenizer, sequence_length, start, end)
        self.reuse_length = reuse_length
        self.both_directions = both_directions
        self.next_rate = next_rate

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        self._check(options)
        return check_documents(documents)

    def token_rows(self, options: BatchOptions) -> TokenRows:
        self._check(options)
        window = self.sequence_length - 3
        kind = RowKind(
            "windows",
            window,
            document_end_id(self.tokenizer),
            advance=self.reuse_length or window,
        )
        return TokenRows(
            kind,
            lambda found, seed: found,
            both_directions=self.both_directions,
            least_streams=self._least_streams(),
        )

    def _least_streams(self):
        return 1 if self.next_rate == 1 else 2

    def _check(self, options):
        check_continued_options(options)
        streams = options.rows // (2 if self.both_directions else 1)
        least = self._least_streams()
        if streams < least:
            raise ValueError(
                f"`batch_size` must give at least {least} streams per direction: with "
                f"next_rate={self.next_rate}, B can come from another stream. "
                f"Received: batch_size={options.rows}."
            )

    def batches(
        self,
        prepared: TFDataset,
        options: BatchOptions,
        order_seed: TFTensor,
        rows_seed: TFTensor,
    ) -> TFDataset:
        documents = prepared
        if options.training and options.shuffle_buffer:
            documents = shuffle(documents, options.shuffle_buffer, order_seed)
        window = self.sequence_length - 3
        lay_out = ParallelStreams(
            self.tokenizer,
            options.rows,
            window,
            self.reuse_length or window,
            document_end_id(self.tokenizer),
            both_directions=self.both_directions,
            break_lines=options.break_lines,
        )
        return self.not_empty(documents.apply(lay_out), options)

    def complete(
        self, batch: dict[str, TFTensor], seed: TFTensor
    ) -> dict[str, TFTensor]:
        rows = join_segments(
            batch,
            self.reuse_length,
            self.tokenizer.start_token_id,
            self.tokenizer.end_token_id,
            self.next_rate,
            fold(seed, 1),
        )
        rows["padding_mask"] = tf.ones_like(rows["token_ids"], tf.bool)
        rows["continues"] = batch["continues"]
        if self.both_directions:
            rows["reversed_rows"] = batch["reversed_rows"]
        return rows

    def lay_out(
        self, tokens: TFRagged, length: int | None = None
    ) -> dict[str, TFTensor]:
        """Lay out one text in each row: `[padding, text, end, start]`.

        Args:
            tokens: see `Rows.lay_out`.
            length: see `Rows.lay_out`.

        Returns:
            What `Rows.lay_out` gives, and `segment_ids`.
        """
        rows = super().lay_out(tokens, length)
        ids, inside = rows["token_ids"], rows["padding_mask"]
        # From `[start, text, end, padding]`.
        shape = tf.shape(ids)
        lengths = tf.reduce_sum(tf.cast(inside, tf.int32), 1, keepdims=True)
        index = tf.range(shape[1]) - (shape[1] - lengths) + 1
        inside = index >= 1
        index = tf.where(index == lengths, 0, tf.maximum(index, 0))
        moved = tf.gather(ids, index, axis=1, batch_dims=1)
        moved = tf.where(inside, moved, self.tokenizer.pad_token_id)
        last = tf.range(shape[1]) == shape[1] - 1
        segments = tf.where(last, 2, tf.zeros_like(ids))
        return {
            "token_ids": tf.ensure_shape(moved, ids.shape),
            "padding_mask": tf.ensure_shape(inside, ids.shape),
            "segment_ids": tf.ensure_shape(segments, ids.shape),
        }
