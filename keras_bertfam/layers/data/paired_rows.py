"""Rows of two segments, for text preprocessors."""

import tensorflow as tf

from keras_bertfam.layers.data.pairing import PairSegments
from keras_bertfam.layers.data.rows import BatchOptions, Rows, is_prepared
from keras_bertfam.layers.data.segments import truncated_lengths
from keras_bertfam.types import Config, TFDataset, TFRagged, TFTensor, Tokenizer


class PairedRows(Rows):
    """Pairs of segments with a sentence label; see `PairSegments`.

    Args:
        tokenizer: see `Rows`. Its start and end token begin and end segments.
        sequence_length: see `Rows`.
        objective: `"nsp"` or `"sop"`.
        short_sequence_rate: float in [0, 1].
        single_sentence: `"unlabelled"` or `"random"`.
        separators: int.
        documents_at_once: int.
    """

    packings = ("segments", "sentences")

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        objective: str = "nsp",
        short_sequence_rate: float = 0.1,
        single_sentence: str = "unlabelled",
        separators: int = 1,
        documents_at_once: int = 256,
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
        self._pairs = self._make_pairs(BatchOptions())  # checks the arguments

    def _make_pairs(self, options: BatchOptions) -> PairSegments:
        return PairSegments(
            self.tokenizer,
            self.sequence_length,
            start_token_id=self.tokenizer.start_token_id,
            end_token_id=self.tokenizer.end_token_id,
            pairing=self.check_packing(options.packing),
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
                "`break_lines` is an argument of `pack` where `documents` are packed "
                "already. Received: break_lines=False."
            )
        return documents

    def of_pass(
        self, prepared: TFDataset, options: BatchOptions, seed: TFTensor
    ) -> TFDataset:
        return self._make_pairs(options).build(prepared, seed)

    def lay_out_pairs(self, first: TFRagged, second: TFRagged) -> dict[str, TFTensor]:
        """Lays a pair in each row out, and cuts what is too long. Works in a graph.

        Args:
            first: ragged int32 tensor `(batch, None)`.
            second: ragged int32 tensor `(batch, None)`.

        Returns:
            See `SegmentBuilder.lay_out`.
        """
        a, b = (tf.cast(x.row_lengths(), tf.int32) for x in (first, second))
        budget = self.sequence_length - 2 - self.separators
        sizes = truncated_lengths(a, b, budget)
        at = [tf.cast(x.row_starts(), tf.int32) for x in (first, second)]
        tokens = tf.concat([first.flat_values, second.flat_values], 0)
        behind = (at[1] + tf.size(first.flat_values), sizes[1])
        return self._pairs.lay_out(tokens, (at[0], sizes[0]), behind)
