"""Rows that continue those of the batch before, for text preprocessors."""

import tensorflow as tf

from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.parallel_streams import ParallelStreams, join_segments
from keras_bertfam.layers.data.rows import BatchOptions, Rows
from keras_bertfam.layers.data.seeding import fold, shuffle
from keras_bertfam.layers.data.token_rows import TokenRows
from keras_bertfam.tokenizers.graph import document_end_id
from keras_bertfam.tokenizers.texts import check_documents
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


def check_continued_options(options: BatchOptions) -> None:
    """Raise a `ValueError` for options that continued rows can't have."""
    for name in ("packing", "tokens_per_batch"):
        if (value := getattr(options, name)) is not None:
            raise ValueError(
                f"`{name}` must be `None` for rows that are full, each continued "
                f"in the next batch. Received: {value!r}."
            )
    if options.drop_remainder is False:
        raise ValueError(
            "`drop_remainder` must be `None` for rows that go on in the next batch, of "
            "which each batch has as many. Received: False."
        )


def check_continued(documents: TFDataset, options: BatchOptions) -> TFDataset:
    """Check that documents can be laid out in continued rows, and return them.

    Raises:
        ValueError: for options that make no sense for these, or no documents.
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
            kind, lambda found, seed: found, both_directions=self.both_directions
        )

    def _check(self, options):
        check_continued_options(options)
        streams = options.rows // (2 if self.both_directions else 1)
        least = 1 if self.next_rate == 1 else 2
        if streams < least:
            raise ValueError(
                f"`batch_size` must give at least {least} streams a direction: with "
                f"next_rate={self.next_rate}, B may come from another one. "
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
        """Lay a text in each row out, `[padding, text, end, start]`.

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
