"""Rows of pairs of segments, for text preprocessors."""

import dataclasses

import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.corpora.row_kinds import RowKind, Sharing
from keras_bertfam.layers.data.pairs.segments import truncated_lengths
from keras_bertfam.layers.data.pairs.sentence_pairs import PairSegments
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.data.prepared.token_rows import TokenRows
from keras_bertfam.layers.data.rows.rows import BatchOptions, Rows, is_prepared
from keras_bertfam.layers.data.rows.sequence_packing import PackSequences
from keras_bertfam.types import Config, TFDataset, TFRagged, TFTensor, Tokenizer

# For each packing: the `pairing` of `PairSegments`, and whether pairs share rows.
_PACKINGS = {
    "segments": ("segments", False),
    "sentences": ("sentences", False),
    "best_fit": ("segments", True),
    "best_fit_sentences": ("sentences", True),
}


class PairedRows(Rows):
    """Rows of pairs of segments with a sentence label; see `PairSegments`.

    By default a row holds one pair. With `packing="best_fit"` or `"best_fit_sentences"`
    several pairs share a row, see `PackSequences`. Then `sentence_label` and
    `sentence_weight` have the shape `(max_pairs,)`, and `sequence_starts` says where
    each pair begins.

    Args:
        tokenizer: see `Rows`. Its start and end token begin and end segments.
        sequence_length: see `Rows`.
        objective: `"nsp"`, `"sop"` or `"structural"`.
        short_sequence_rate: float in [0, 1].
        single_sentence: `"unlabelled"` or `"random"`.
        separators: int.
        documents_at_once: int.
        max_pairs: int or `None`. The most pairs that share a row. Defaults to one pair
            for each 16 tokens.
    """

    packings = tuple(_PACKINGS)

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        objective: str = "nsp",
        short_sequence_rate: float = 0.1,
        single_sentence: str = "unlabelled",
        separators: int = 1,
        documents_at_once: int = 256,
        max_pairs: int | None = None,
    ) -> None:
        start, end = tokenizer.start_token_id, tokenizer.end_token_id
        super().__init__(tokenizer, sequence_length, start, end)
        self._settings: Config = {
            "objective": objective,
            "short_sequence_rate": short_sequence_rate,
            "single_sentence": single_sentence,
            "separators": separators,
            "documents_at_once": documents_at_once,
        }
        self.separators = separators
        check_at_least(1, max_pairs=max_pairs)
        self._max_pairs = max_pairs or max(1, sequence_length // 16)
        self._pairs = self._make_pairs(BatchOptions())  # checks the arguments

    def _make_pairs(self, options: BatchOptions) -> PairSegments:
        return PairSegments(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            pairing=_PACKINGS[self.check_packing(options.packing)][0],
            pad_token_id=self.tokenizer.pad_token_id,
            break_lines=options.break_lines,
            **self._settings,
        )

    def prepare(self, documents: TFDataset, options: BatchOptions) -> TFDataset:
        pairs = self._make_pairs(options)
        if not is_prepared(documents):
            return pairs.tokenize(documents)
        if not options.break_lines:
            raise ValueError(
                "`break_lines` must be given to `pack` if `documents` are packed "
                "already. Received: break_lines=False."
            )
        return documents

    @as_written
    def of_pass(
        self, prepared: TFDataset, options: BatchOptions, seed: TFTensor
    ) -> TFDataset:
        pairs = self._make_pairs(options)
        if not _PACKINGS[self.check_packing(options.packing)][1]:
            return pairs.build(prepared, seed)
        rows = pairs.build_batches(prepared, seed).map(_without_padding)
        return rows.apply(self._pack())

    def _pack(self):
        return PackSequences(
            self.sequence_length, self._max_pairs, self.tokenizer.pad_token_id
        )

    def token_rows(self, options: BatchOptions) -> TokenRows:
        pairing, shared = _PACKINGS[self.check_packing(options.packing)]
        pairs = self._make_pairs(options)
        short = pairs.short_sequence_rate if pairing == "segments" else 0.0
        kind = RowKind(pairing, pairs.budget, short_rate=short)
        if not shared:
            return TokenRows(kind, pairs.rows_of_tokens, pairs.draws_partners)
        kind = dataclasses.replace(kind, sharing=self._sharing(pairs))

        def lay_out(found, seed):
            rows = _without_padding(pairs.rows_of_tokens(found, seed))
            return self._pack().lay_out(rows, found["row"])

        return TokenRows(kind, lay_out, pairs.draws_partners)

    def _sharing(self, pairs):
        """Describe pairs that share rows; see `PairSegments.rows_of_tokens`."""
        tokens = range(pairs.budget + 1)
        around = 2 + self.separators
        single = [n + 2 for n in tokens]
        if pairs.draws_partners:
            single = [min(2 * n, pairs.budget) + around for n in tokens]
        costs = tuple(n + around for n in tokens)
        return Sharing(self.sequence_length, costs, tuple(single), self._max_pairs)

    def lay_out_pairs(self, first: TFRagged, second: TFRagged) -> dict[str, TFTensor]:
        """Lay out one pair in each row, and cut pairs that are too long.

        Works in a graph.

        Args:
            first: ragged int32 tensor `(batch, None)`.
            second: ragged int32 tensor `(batch, None)`.

        Returns:
            See `SegmentBuilder.lay_out`.
        """
        a, b = (tf.cast(x.row_lengths(), tf.int32) for x in (first, second))
        count_cut(a + b > self._pairs.budget, "pairs")
        sizes = truncated_lengths(a, b, self._pairs.budget)
        at = [tf.cast(x.row_starts(), tf.int32) for x in (first, second)]
        tokens = tf.concat([first.flat_values, second.flat_values], 0)
        behind = (at[1] + tf.size(first.flat_values), sizes[1])
        return self._pairs.lay_out(tokens, (at[0], sizes[0]), behind)


def _without_padding(rows):
    """Make the tokens of rows of one pair each ragged."""
    lengths = tf.reduce_sum(tf.cast(rows.pop("padding_mask"), tf.int32), 1)
    ragged = {
        name: tf.RaggedTensor.from_tensor(rows[name], lengths)
        for name in ("token_ids", "segment_ids")
    }
    return {**rows, **ragged}
