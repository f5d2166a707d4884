"""ELECTRA's rows of one or two segments."""

from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.corpora.row_kinds import RowKind
from keras_bertfam.layers.data.limited_parts import follow_pointers
from keras_bertfam.layers.data.pairs.segments import (
    SegmentBuilder,
    Sentences,
    coin,
    uniform_below,
    window_seeds,
)
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.prepared.token_rows import TokenRows, sentences_in
from keras_bertfam.layers.data.rows.rows import BatchOptions, PackedRows, is_prepared
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


@checked
class ElectraSegments(SegmentBuilder):
    """Builds ELECTRA's two-segment rows of documents, for `Dataset.apply`.

    A row is `[start] A [end] B [end]` or `[start] A [end]`, padded, and has no
    sentence label. It takes sentences of a document until they reach its target
    length. That is a full row or, for a share `random_length_rate` of the rows,
    uniform in `[5, full]`.

    A sentence goes to A in three cases: if A is empty; if A stays below half of the
    row's room with it; or, once a row, by the toss of a coin. Else it goes to B. So a
    short sentence after a long one may still go to A. A share `single_segment_rate` of
    the rows puts all sentences in A. Segments that are too long are cut at their end.

    The released code draws a row's target when the row before is done, and the first
    row of each file is always full. Here each row draws its own target.

    Args:
        tokenizer: a tokenizer layer. Called on a batch of strings in a graph,
            it gives a ragged tensor of ids.
        sequence_length: int. The length of a row, special tokens included.
        start_token_id: int. The id that begins each row.
        end_token_id: int. The id that ends each segment.
        single_segment_rate: float in [0, 1]. Defaults to `0.1`.
        random_length_rate: float in [0, 1]. Defaults to `0.05`.
        **kwargs: `pad_token_id` (int, 0), `separators` (int, 1), `break_lines`
            (bool, `True`; see `split_sentences`), `documents_at_once` (int, 256)
            and `seed` (int, or int64 tensor of shape `(2,)`; 0).

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `token_ids` and `segment_ids`, int32 `(sequence_length,)`, and
        `padding_mask`, bool of that shape. The same for the same seed, at any
        parallelism.

    Raises:
        ValueError: If an argument is out of its range.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    build = keras_bertfam.layers.ElectraSegments(
        tokenizer, 128, start_token_id=101, end_token_id=102)
    rows = keras_bertfam.layers.read_documents("corpus/*.txt").apply(build)
    ```

    Reference: [Clark et al., 2020](https://arxiv.org/abs/2003.10555), and the
    released `build_pretraining_dataset.py`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int,
        end_token_id: int,
        single_segment_rate: float = 0.1,
        random_length_rate: float = 0.05,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tokenizer, sequence_length, start_token_id, end_token_id, **kwargs
        )
        for name, rate in (
            ("single_segment_rate", single_segment_rate),
            ("random_length_rate", random_length_rate),
        ):
            if not 0 <= rate <= 1:
                raise ValueError(f"`{name}` must be in [0, 1]. Received: {rate}.")
        self.single_segment_rate = single_segment_rate
        self.random_length_rate = random_length_rate

    def build(self, windows: TFDataset, seed: int | TFTensor) -> TFDataset:
        rows = windows.enumerate().map(
            lambda number, window: self._rows(window, window_seeds(seed, number, 4)),
            **PARALLEL,
        )
        return rows.unbatch()

    def _rows(self, window, seeds):
        sentences = Sentences(window["lengths"], window["document"])
        full, count = self.sequence_length, sentences.count
        drawn = 5 + uniform_below(tf.fill([count], full - 4), seeds[1])
        random_length = coin(self.random_length_rate, count, seeds[0])
        target = tf.where(random_length, drawn, full)
        begin = follow_pointers(sentences.reach(tf.range(count), target), 0)
        return self._rows_from(
            window["tokens"], sentences, begin, tf.gather(target, begin), seeds[2:]
        )

    def rows_of_tokens(
        self, found: dict[str, TFTensor], seed: TFTensor
    ) -> dict[str, TFTensor]:
        """Make the rows of a prepared corpus. Works in a graph.

        Args:
            found: what `BatchSource.read` gives.
            seed: int64 tensor of shape `(2,)`.
        """
        tokens, _, sentences = sentences_in(found)
        targets = found["targets"]
        begin = tf.searchsorted(sentences.document, tf.range(tf.size(targets)))
        seeds = window_seeds(seed, 0, 2)
        return self._rows_from(tokens, sentences, begin, targets, seeds)

    def _rows_from(self, tokens, sentences, begin, target, seeds):
        """Make rows that begin with sentences, each with a target length."""
        full = self.sequence_length
        special = 2 + self.separators
        count, rows = sentences.count, tf.size(begin)
        lengths = sentences.bounds[1:] - sentences.bounds[:-1]
        limit = (target - special) // 2
        alone = coin(self.single_segment_rate, rows, seeds[0])
        limit = tf.where(alone, tf.int32.max // 2, limit)
        # Each sentence's row, and whether it goes to the row's first segment.
        row = tf.searchsorted(begin, tf.range(count), side="right") - 1
        ends = tf.concat([begin[1:], [count]], 0)[:rows]
        extra = coin(0.5, rows, seeds[1])
        first = _in_first(lengths, begin, ends, limit, extra)
        order = tf.argsort(2 * row + tf.cast(~first, tf.int32), stable=True)
        sentence_tokens = ragged.from_lengths(tokens, lengths)
        tokens = tf.gather(sentence_tokens, order).flat_values
        sizes = [
            tf.math.unsorted_segment_sum(tf.where(x, lengths, 0), row, rows)
            for x in (first, ~first)
        ]
        at = tf.gather(sentences.bounds, begin)
        a = tf.minimum(sizes[0], full - 2)
        b = tf.minimum(sizes[1], tf.maximum(full - special - a, 0))
        return self.lay_out(tokens, (at, a), (at + sizes[0], b))


def _in_first(lengths, begin, ends, limit, extra):
    """Tell which sentences go to the first segment of their rows.

    The loop places one sentence of every row at a time.

    Args:
        lengths: int32 tensor of shape `(sentences,)`.
        begin: int32 tensor of shape `(rows,)`: each row's first sentence.
        ends: int32 tensor of that shape: the sentence after the row's last.
        limit: int32 tensor of that shape: the first segment stays below it.
        extra: bool tensor of that shape: whether one sentence may exceed the limit.

    Returns:
        A bool tensor of shape `(sentences,)`.
    """
    # Example: sentences of 3, 2, 4 | 1, 2 tokens in two rows, limits 6 and 2, and an
    # extra sentence in the second row. In the first row 3 and 2 stay below 6, and 4
    # goes to the second segment. In the second row 1 stays below 2, and 2 goes to the
    # first segment too, as the extra sentence.

    def place(step, first_size, second_is_empty, placed):
        sentence = begin + step
        valid = sentence < ends
        size = tf.gather(lengths, tf.where(valid, sentence, begin))
        fits = (first_size == 0) | (first_size + size < limit)
        to_first = fits | (second_is_empty & (first_size < limit) & extra)
        index = ragged.keep(sentence, valid)[:, None]
        values = ragged.keep(to_first, valid)
        return (
            step + 1,
            first_size + tf.where(valid & to_first, size, 0),
            second_is_empty & (to_first | ~valid),
            tf.tensor_scatter_nd_update(placed, index, values),
        )

    steps = tf.reduce_max(tf.pad(ends - begin, [[1, 0]]))
    state = (
        0,
        tf.zeros_like(begin),
        tf.ones_like(begin, tf.bool),
        tf.zeros_like(lengths, tf.bool),
    )
    return tf.while_loop(lambda step, *_: step < steps, place, state)[-1]


class ElectraRows(PackedRows):
    """Rows of one or two segments, see `ElectraSegments`, or blocks, see `PackedRows`.

    Args:
        tokenizer: see `Rows`. Its start and end token begin and end segments.
        sequence_length: see `Rows`.
        sequence_ids: bool. Whether rows tell their documents apart. Only blocks can,
            so with `True` rows are blocks by default. Defaults to `False`.
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
                "`sequence_ids` must be `False` for rows of two segments, which hold "
                'one sequence; or `packing` must be "full", "doc" or "best_fit". '
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
