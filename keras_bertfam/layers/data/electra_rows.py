"""ELECTRA's rows of two segments, for text preprocessors."""

import tensorflow as tf

from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.pairing_electra import ElectraSegments
from keras_bertfam.layers.data.rows import BatchOptions, PackedRows, is_prepared
from keras_bertfam.layers.data.token_rows import TokenRows
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


class ElectraRows(PackedRows):
    """One or two segments of a document, see `ElectraSegments`, or `PackedRows`.

    Args:
        tokenizer: see `Rows`. Its start and end token begin and end segments.
        sequence_length: see `Rows`.
        sequence_ids: bool. Whether blocks tell their documents apart. Rows are blocks
            by default then, since segments can't. Defaults to `False`.
        separators: int. End tokens between two segments. Defaults to `1`.
    """

    packings = ("segments", "full", "doc", "best_fit")

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        sequence_ids: bool = False,
        separators: int = 1,
    ) -> None:
        super().__init__(
            tokenizer,
            sequence_length,
            tokenizer.start_token_id,
            tokenizer.end_token_id,
            packing="full" if sequence_ids else "segments",
            sequence_ids=sequence_ids,
        )
        self.separators = separators

    def _segments(self, break_lines: bool = True) -> ElectraSegments:
        return ElectraSegments(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            separators=self.separators,
            break_lines=break_lines,
        )

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        packing = self.check_packing(options.packing or self.packing)
        if is_prepared(documents) or packing != "segments":
            return super().prepare(documents, options)
        self._check_segments()
        return self._segments(options.break_lines).tokenize(documents)

    def _check_segments(self):
        if self.sequence_ids:
            raise ValueError(
                "A row of two segments holds one sequence. Expected "
                '`sequence_ids=False`, or `packing="full"`, "doc" or "best_fit". '
                "Received: sequence_ids=True."
            )

    def token_rows(self, options: BatchOptions) -> TokenRows:
        if self.check_packing(options.packing or self.packing) != "segments":
            return super().token_rows(options)
        self._check_segments()
        segments = self._segments()
        kind = RowKind(
            "segments",
            self.sequence_length,
            short_rate=segments.random_length_rate,
            shortest=5,
            short_rows=True,
        )
        return TokenRows(kind, segments.rows_of_tokens)

    def of_pass(
        self, prepared: TFDataset, options: BatchOptions, seed: TFTensor
    ) -> TFDataset:
        if "lengths" not in prepared.element_spec:
            return prepared  # blocks
        return self._segments().build(prepared, seed)

    def lay_out(
        self, tokens: TFRagged, length: int | None = None
    ) -> dict[str, TFTensor]:
        rows = super().lay_out(tokens, length)
        return {**rows, "segment_ids": tf.zeros_like(rows["token_ids"])}
