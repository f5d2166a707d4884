"""Kinds of training rows that text preprocessors make from documents."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.corpora.row_kinds import RowKind, Sharing
from keras_bertfam.layers.data.documents.reading import tokenize_sentences
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import (
    PARALLEL,
    check_at_least,
    checked_batch_size,
)
from keras_bertfam.layers.data.prepared.token_rows import TokenRows, blocks, texts_in
from keras_bertfam.layers.data.rows.batches import BatchByTokens
from keras_bertfam.layers.data.rows.sentence_packing import (
    PackSentences,
    cut,
    not_empty,
    whole_texts,
)
from keras_bertfam.layers.data.rows.sequence_packing import PackSequences
from keras_bertfam.layers.data.seeding import shuffle
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


@dataclasses.dataclass
class BatchOptions:
    """The arguments of a text preprocessor's `dataset`, checked."""

    batch_size: int | None = None
    training: bool = True
    shuffle_buffer: int = 10_000
    packing: str | None = None
    break_lines: bool = True
    duplicates: int | None = None
    tokens_per_batch: int | None = None
    shuffle_documents: int = 0
    drop_remainder: bool | None = None

    def __post_init__(self) -> None:
        if self.tokens_per_batch is None:
            self.batch_size = checked_batch_size(self.batch_size)
        elif self.batch_size is not None:
            raise ValueError(
                "One of `batch_size` and `tokens_per_batch` must be given. Received: "
                f"batch_size={self.batch_size}, "
                f"tokens_per_batch={self.tokens_per_batch}."
            )
        check_at_least(
            0,
            shuffle_buffer=self.shuffle_buffer,
            shuffle_documents=self.shuffle_documents,
        )
        check_at_least(1, duplicates=self.duplicates)

    @property
    def drops(self) -> bool:
        """bool: whether a pass skips a last batch that isn't full."""
        return self.training if self.drop_remainder is None else self.drop_remainder

    @property
    def rows(self) -> int:
        """int: the `batch_size`, for options without `tokens_per_batch`."""
        return checked_batch_size(self.batch_size)


class Rows:
    """Base of the kinds of rows: makes batches from documents, and rows from texts.

    A subclass does in `prepare` what can be done once for all passes, and makes in
    `of_pass` the rows of one pass.

    Args:
        tokenizer: a tokenizer layer with its vocabulary.
        sequence_length: int. Tokens in a row, special ones included.
        start_token_id: int or `None`. The id that begins each row.
        end_token_id: int or `None`. The id that ends each row.

    Attributes:
        packings: tuple of strings. The values of `packing`, the usual one first.
    """

    packings: ClassVar[tuple[str, ...]] = ()
    # The error's advice if the text fills no batch.
    advice: ClassVar[str] = "give more text, or a smaller `batch_size`"

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int | None = None,
        end_token_id: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.start_token_id = start_token_id
        self.end_token_id = end_token_id

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        """Do the part that draws nothing, and so is the same for all passes.

        Args:
            documents: `tf.data.Dataset` of scalar strings, or what this method gave.
            options: `BatchOptions`.

        Raises:
            ValueError: for an option that these rows don't have.
        """
        raise TypeError(f"{type(self).__name__} must define `prepare`.")

    def of_pass(
        self, prepared: TFDataset, options: BatchOptions, seed: TFTensor
    ) -> TFDataset:
        """Make the rows of a pass, a dataset of dicts.

        Args:
            prepared: what `prepare` gives.
            options: `BatchOptions`.
            seed: int64 tensor of shape `(2,)`, the seed of the pass.
        """
        return prepared

    def token_rows(self, options: BatchOptions) -> TokenRows:
        """Describe how rows are made from a prepared corpus.

        Args:
            options: `BatchOptions`.

        Raises:
            ValueError: for a packing that a prepared corpus can't have, and for
                kinds of rows that can't be made from one.
        """
        raise ValueError(
            "`documents` must be a `tf.data.Dataset` of texts for rows of the kind "
            f"{type(self).__name__}. Received: a prepared corpus."
        )

    def batches(
        self,
        prepared: TFDataset,
        options: BatchOptions,
        order_seed: TFTensor,
        rows_seed: TFTensor,
    ) -> TFDataset:
        """Make the batches of a pass; there is at least one.

        Args:
            prepared: what `prepare` gives.
            options: `BatchOptions`.
            order_seed: int64 tensor of shape `(2,)`, the seed of the rows' order.
            rows_seed: int64 tensor of shape `(2,)`, the seed of their contents.
        """
        rows = self.of_pass(prepared, options, rows_seed)
        if options.training and options.shuffle_buffer:
            rows = shuffle(rows, options.shuffle_buffer, order_seed)
        if options.tokens_per_batch is None:
            rows = rows.batch(options.batch_size, drop_remainder=options.drops)
        else:
            rows = rows.apply(BatchByTokens(options.tokens_per_batch, options.drops))
        return self.not_empty(rows, options)

    def not_empty(self, batches: TFDataset, options: BatchOptions) -> TFDataset:
        """Make a pass without any batch raise an error."""
        return not_empty(
            batches,
            f"`documents` must fill at least one batch: {self.advice}. Received: "
            f"batch_size={options.batch_size}, "
            f"tokens_per_batch={options.tokens_per_batch}, "
            f"sequence_length={self.sequence_length}.",
        )

    def complete(
        self, batch: dict[str, TFTensor], seed: TFTensor
    ) -> dict[str, TFTensor]:
        """Do the rest for a batch, with the batch's seed. Works in a graph."""
        return batch

    def lay_out(
        self, tokens: TFRagged, length: int | None = None
    ) -> dict[str, TFTensor]:
        """Lay out one text in each row, cut to `sequence_length`. Works in a graph.

        Args:
            tokens: ragged int32 tensor `(batch, None)`.
            length: int, or `None` for the length of the longest row.

        Returns:
            A dict of `token_ids`, int32 `(batch, length)`, and `padding_mask`, bool.
        """
        count_cut(tokens.row_lengths() > self._budget())
        ids = self._between_specials(tokens[:, : self._budget()])
        dense = ids.to_tensor(self.tokenizer.pad_token_id, shape=[None, length])
        dense = tf.ensure_shape(dense, [None, length])
        inside = tf.sequence_mask(ids.row_lengths(), tf.shape(dense)[1])
        return {"token_ids": dense, "padding_mask": tf.reshape(inside, tf.shape(dense))}

    def _budget(self):
        """Count the tokens that a row holds besides special tokens."""
        specials = (self.start_token_id, self.end_token_id)
        return self.sequence_length - sum(token is not None for token in specials)

    def _between_specials(self, tokens):
        """Put texts between start and end token, ragged `(batch, None)`."""
        start, end = (
            [] if token is None else [tf.fill([tokens.nrows(), 1], token)]
            for token in (self.start_token_id, self.end_token_id)
        )
        return ragged.concat([*start, tokens, *end])

    def check_packing(self, packing: str | None) -> str:
        """Check the name of a packing; `None` stands for the default.

        Raises:
            ValueError: for a name that isn't in `packings`.
        """
        packing = packing or self.packings[0]
        if packing not in self.packings:
            raise ValueError(
                f"`packing` must be one of {self.packings}. Received: {packing!r}."
            )
        return packing


class PackedRows(Rows):
    """Sentences packed into blocks, see `PackSentences`, or whole texts.

    With `packing="best_fit"` each document is a sequence, `[start] text [end]`, and
    rows hold as many sequences as fit: see `PackSequences`. A text that is longer than
    a row is cut into pieces, and each piece is a sequence. These rows always have
    `sequence_ids`.

    Args:
        tokenizer: see `Rows`.
        sequence_length: see `Rows`.
        start_token_id: see `Rows`.
        end_token_id: see `Rows`.
        packing: `"full"` (FULL-SENTENCES), `"doc"` (DOC-SENTENCES) or `"best_fit"`: the
            packing if the options name none. Defaults to `"full"`.
        sequence_ids: bool. Whether blocks number the documents of their tokens.
            Defaults to `False`.
    """

    packings: ClassVar[tuple[str, ...]] = ("full", "doc", "best_fit")

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int | None = None,
        end_token_id: int | None = None,
        packing: str = "full",
        sequence_ids: bool = False,
    ) -> None:
        super().__init__(tokenizer, sequence_length, start_token_id, end_token_id)
        self.packing = self.check_packing(packing)
        self.sequence_ids = sequence_ids

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        if is_prepared(documents):
            if options.packing is not None or not options.break_lines:
                raise ValueError(
                    "`packing` and `break_lines` must be given to `pack` if "
                    "`documents` are packed already. Received: packing="
                    f"{options.packing!r}, break_lines={options.break_lines}."
                )
            return documents
        packing = self.check_packing(options.packing or self.packing)
        if packing == "best_fit":
            # The argument is refused with a packing that was asked for.
            told = options.break_lines or options.packing is None
            texts = whole_texts(documents, told)
            return texts.map(self._sequences, **PARALLEL).apply(self._pack())
        return PackSentences(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.start_token_id,
            end_token_id=self.end_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            cross_documents=packing == "full",
            sequence_ids=self.sequence_ids,
            break_lines=options.break_lines,
        )(documents)

    def token_rows(self, options: BatchOptions) -> TokenRows:
        packing = self.check_packing(options.packing or self.packing)
        if packing == "best_fit":
            return self.shared_rows()
        separator = self.end_token_id if packing == "full" else None
        kind = RowKind(packing, self._budget(), separator)

        def lay_out(found, seed):
            pad = self.tokenizer.pad_token_id
            rows = blocks(found, self.start_token_id, self.end_token_id, pad)
            if not self.sequence_ids:
                del rows["sequence_ids"]
            return rows

        return TokenRows(kind, lay_out)

    def shared_rows(self) -> TokenRows:
        """Describe what `token_rows` describes, for texts that share rows."""
        budget = self._budget()
        around = self.sequence_length - budget
        costs = tuple(range(around, self.sequence_length + 1))
        kind = RowKind("pieces", budget, sharing=Sharing(self.sequence_length, costs))

        def lay_out(found, seed):
            sequences = {"token_ids": self._between_specials(texts_in(found))}
            return self._pack().lay_out(sequences, found["row"])

        return TokenRows(kind, lay_out)

    def _pack(self):
        return PackSequences(
            self.sequence_length, pad_token_id=self.tokenizer.pad_token_id
        )

    def _sequences(self, texts):
        """Put texts, or pieces of long texts, between special tokens."""
        lines, text = tokenize_sentences(self.tokenizer, texts, break_lines=False)
        lengths = tf.math.segment_sum(tf.cast(lines.row_lengths(), tf.int32), text)
        sizes, _ = cut(lengths, self._budget())
        pieces = tf.RaggedTensor.from_row_lengths(lines.flat_values, sizes)
        return {"token_ids": self._between_specials(pieces)}


class SummarizedRows(PackedRows):
    """Rows for one vector each: a row never holds several separate sequences."""

    packings: ClassVar[tuple[str, ...]] = ("doc", "full")


def is_prepared(documents: TFDataset) -> bool:
    """Tell whether a dataset is what `prepare` gives, dicts, rather than documents."""
    return isinstance(getattr(documents, "element_spec", None), dict)
