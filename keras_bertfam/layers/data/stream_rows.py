"""Rows of a stream of documents, and of texts that are corrupted before packing."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import tensorflow as tf

from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.corpora.row_sharing import Sharing
from keras_bertfam.layers.data.packing import whole_texts
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.rows import (
    BatchOptions,
    PackedRows,
    is_prepared,
)
from keras_bertfam.layers.data.seeding import fold
from keras_bertfam.layers.data.text_pairs import PairLayout
from keras_bertfam.layers.data.token_rows import TokenRows, blocks, texts_in
from keras_bertfam.layers.data.token_stream import PackStream
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


class StreamRows(PackedRows):
    """Documents as one stream, cut into full rows, or packed as `PackedRows` does it.

    Args:
        tokenizer: see `PackedRows`.
        sequence_length: int. Tokens in a row.
        start_token_id: int or `None`. The id that begins each row that isn't cut out of
            the stream.
        end_token_id: int or `None`. The id that ends each of these, and each document
            of the stream.
        sequence_ids: see `PackedRows`.
    """

    packings: ClassVar[tuple[str, ...]] = ("stream", *PackedRows.packings)

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int | None = None,
        end_token_id: int | None = None,
        sequence_ids: bool = False,
    ) -> None:
        super().__init__(
            tokenizer,
            sequence_length,
            start_token_id,
            end_token_id,
            packing="stream",
            sequence_ids=sequence_ids,
        )

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        packing = self.check_packing(options.packing or self.packing)
        if is_prepared(documents) or packing != "stream":
            return super().prepare(documents, options)
        pack = PackStream(
            self.tokenizer,
            self.sequence_length,
            self.end_token_id,
            self.tokenizer.pad_token_id,
        )
        rows = documents.apply(pack)
        return rows if self.sequence_ids else rows.map(_without_sequences)

    def token_rows(self, options: BatchOptions) -> TokenRows:
        if self.check_packing(options.packing or self.packing) != "stream":
            return super().token_rows(options)
        kind = RowKind("stream", self.sequence_length, self.end_token_id)

        def lay_out(found, seed):
            rows = blocks(found, None, None, self.tokenizer.pad_token_id)
            return rows if self.sequence_ids else _without_sequences(rows)

        return TokenRows(kind, lay_out)


def _without_sequences(row):
    return {name: x for name, x in row.items() if name != "sequence_ids"}


class CorruptedRows(StreamRows):
    """Rows of text for a corruption that makes inputs and targets of it.

    With `packing="best_fit"` each element of the documents, or piece of one, is
    corrupted by itself, anew in each pass, and rows hold as many inputs and targets as
    fit.

    Args:
        tokenizer: see `PackedRows`.
        sequence_length: int. Tokens of text.
        layout: `PairLayout` of what becomes of it.
        corrupt: callable from ragged ids `(batch, None)` and a seed to what
            `PairLayout.rows` gives if not padded. With `tight=True`, each is no longer
            than `rooms` says.
        rooms: int array `(sequence_length + 1, 2)`: the most tokens of inputs and of
            targets of a text, by its own from none on.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        layout: PairLayout,
        corrupt: Callable[..., dict[str, TFRagged]],
        rooms: np.ndarray,
    ) -> None:
        super().__init__(tokenizer, sequence_length)
        self.layout = layout
        self.corrupt = corrupt
        self.rooms = rooms

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        packing = self.check_packing(options.packing or self.packing)
        if not is_prepared(documents) and packing == "best_fit":
            documents = whole_texts(documents, options.break_lines)
            documents = documents.map(self._sequences, **PARALLEL)
        else:
            documents = super().prepare(documents, options)
        if _is_ragged(documents) and options.tokens_per_batch is not None:
            raise ValueError(
                '`tokens_per_batch` must be `None` with packing="best_fit", whose rows '
                f"are full. Received: {options.tokens_per_batch}."
            )
        return documents

    def shared_rows(self) -> TokenRows:
        lengths = [self.layout.sequence_length, self.layout.target_length]
        room = max(lengths)
        costs = np.max(-(-self.rooms.astype(np.int64) * room // lengths), 1)
        sharing = Sharing(room, tuple(costs.tolist()))
        kind = RowKind("pieces", self.sequence_length, sharing=sharing)

        def lay_out(found, seed):
            sequences = self.corrupt(texts_in(found), seed, tight=True)
            return self.layout.packed_rows(sequences, found["row"])

        return TokenRows(kind, lay_out)

    def of_pass(
        self, prepared: TFDataset, options: BatchOptions, seed: TFTensor
    ) -> TFDataset:
        if not _is_ragged(prepared):
            return prepared

        def packed(number, texts):
            sequences = self.corrupt(texts["token_ids"], fold(seed, number))
            return self.layout.packed_rows(sequences)

        return prepared.enumerate().map(packed, **PARALLEL).unbatch()


def _is_ragged(dataset):
    """Tell whether a dataset is of batches of texts that are to be corrupted."""
    return isinstance(dataset.element_spec["token_ids"], tf.RaggedTensorSpec)
