"""Packing of sequences of different lengths into full rows."""

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.types import TFDataset, TFRagged, TFTensor


@checked
class PackSequences:
    """Packs whole sequences into rows, best fit: use it with `Dataset.apply`.

    A row takes the longest sequences that still fit. Sequences that don't fill a row
    wait in a buffer for later ones. Rows packed from sentences have less than 1 %
    padding. The order of sequences changes, but the output depends on nothing except
    the input.

    Args:
        row_length: int. Tokens of a row, and the most tokens of a sequence.
        max_sequences: int or `None`. The most sequences in a row. `None` means as many
            as fit; then rows can't have parts with one value for each sequence.
        pad_token_id: int. Padding of `token_ids`; other parts are padded with 0.
            Defaults to `0`.
        buffer_size: int. The most sequences that wait in the buffer. Defaults to
            `1024`.

    Returns:
        Called on a `tf.data.Dataset` of batches of sequences, a dataset of rows. A
        batch is a dict of ragged tensors `(batch, None)` with equal row lengths, and of
        dense tensors with a batch axis. Batches of a thousand or more sequences work
        best. A row is a dict with

        - each ragged part, `(row_length,)`;
        - `sequence_ids`, int32 `(row_length,)`: 1, 2, ... and 0 at padding;
        - `padding_mask`, bool `(row_length,)`;
        - with `max_sequences`, each dense part, `(max_sequences, ...)`;
          `sequence_starts`, int32 `(max_sequences,)`, where each sequence begins; and
          `sequence_mask`, bool `(max_sequences,)`.

    Raises:
        ValueError: for an argument out of its range, or data without ragged tensors.
        tf.errors.InvalidArgumentError: while iterating, for a sequence that is empty or
            longer than a row.

    Example:

    ```python
    from keras_bertfam.layers.data.rows.sequence_packing import PackSequences
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    sentences = tf.data.Dataset.from_tensor_slices(["A cat .", "Two dogs !"])
    batches = sentences.batch(1024).map(lambda x: {"token_ids": tokenizer(x)})
    rows = batches.apply(PackSequences(128))
    ```

    Reference: [Krell et al., 2021](https://arxiv.org/abs/2107.02027), section 3.
    """

    def __init__(
        self,
        row_length: int,
        max_sequences: int | None = None,
        pad_token_id: int = 0,
        buffer_size: int = 1024,
    ) -> None:
        check_at_least(
            1,
            row_length=row_length,
            max_sequences=max_sequences,
            buffer_size=buffer_size,
        )
        self.row_length = row_length
        self.max_sequences = max_sequences
        self.pad_token_id = pad_token_id
        self.buffer_size = buffer_size

    @as_written
    def __call__(self, batches: TFDataset) -> TFDataset:
        spec = batches.element_spec
        token_wise = _ragged_names(spec)
        if not token_wise:
            raise ValueError(
                "`batches` must be a dataset of dicts with ragged tensors. "
                f"Received: element_spec={spec}."
            )
        chunks = batches.map(lambda batch: (_flat(batch, token_wise), False))
        nothing = {
            name: tf.zeros(
                [0, *(() if name in token_wise else part.shape[1:])], part.dtype
            )
            for name, part in spec.items()
        }
        nothing["lengths"] = tf.zeros([0], tf.int32)
        end = tf.data.Dataset.from_tensors((nothing, True))

        def step(waiting, chunk):
            return self._step(waiting, chunk, token_wise)

        return chunks.concatenate(end).scan(nothing, step).unbatch()

    def _step(self, waiting, chunk, token_wise):
        new, last = chunk
        parts = {name: tf.concat([waiting[name], x], 0) for name, x in new.items()}
        lengths = parts["lengths"]
        wrong = ragged.keep(lengths, (lengths < 1) | (lengths > self.row_length))
        tf.debugging.Assert(
            tf.size(wrong) == 0,
            [
                f"Sequences must have 1 to {self.row_length} tokens, the length of a "
                "row. Received one of length:",
                wrong[:1],
            ],
        )
        room_to_wait = tf.where(last, 0, self.buffer_size)
        row, room, counts = best_fit(
            lengths, self.row_length, room_to_wait, self.max_sequences
        )
        # The fullest rows leave until few enough sequences wait.
        surplus = tf.size(lengths) - room_to_wait
        leaving = tf.searchsorted(tf.cumsum(counts), surplus[None])[0] + 1
        full = tf.reduce_sum(tf.cast(room == 0, tf.int32))
        leaving = tf.maximum(tf.where(surplus > 0, leaving, 0), full)
        order = tf.argsort(row, stable=True)
        row = tf.gather(row, order)
        split = tf.searchsorted(row, leaving[None])[0]
        leaves = _choose(parts, token_wise, order[:split])
        rest = _choose(parts, token_wise, tf.sort(order[split:]))
        return rest, self._rows(leaves, row[:split], leaving, token_wise)

    def lay_out(
        self, sequences: dict[str, TFTensor | TFRagged], row: TFTensor
    ) -> dict[str, TFTensor]:
        """Lay out sequences in given rows, into which they must fit.

        Args:
            sequences: dict of tensors, as in a batch of the call.
            row: int32 tensor of shape `(sequences,)`: the row of each sequence. Rows
                ascend from 0 without gaps.

        Returns:
            See the call, with an axis of rows.
        """
        token_wise = [n for n, x in sequences.items() if isinstance(x, tf.RaggedTensor)]
        return self._rows(_flat(sequences, token_wise), row, row[-1] + 1, token_wise)

    def _rows(self, parts, row, count, token_wise):
        """Lay out sequences in rows.

        Args:
            parts: dict of the sequences' parts, in the order of the rows.
            row: int32 tensor of shape `(sequences,)`: each sequence's row, ascending.
            count: int32 scalar: the number of rows.
            token_wise: list of the names of token-wise parts.
        """
        # Example: sequences [11 12] [13 14] [15], row = [0, 0, 1] and rows of 5 give
        # token_ids        11 12 13 14  0 | 15  0  0  0  0
        # sequence_ids      1  1  2  2  0 |  1  0  0  0  0
        # and, for two sequences in a row, sequence_starts 0 2 | 0 0.
        lengths = parts["lengths"]
        first = tf.searchsorted(row, tf.range(count))
        number = tf.range(tf.size(row)) - tf.gather(first, row)
        totals = tf.math.unsorted_segment_sum(lengths, row, count)

        def laid_out(values, fill):
            rows = ragged.from_lengths(values, totals)
            blank = tf.cast(fill, values.dtype)
            dense = rows.to_tensor(blank, shape=[None, self.row_length])
            return tf.ensure_shape(dense, [None, self.row_length])

        ids = laid_out(tf.repeat(number + 1, lengths), 0)
        rows = {"sequence_ids": ids, "padding_mask": ids > 0}
        for name in token_wise:
            fill = self.pad_token_id if name == "token_ids" else 0
            rows[name] = laid_out(parts[name], fill)
        if self.max_sequences is None:
            return rows
        values = {name: x for name, x in parts.items() if name not in token_wise}
        del values["lengths"]
        start = tf.cumsum(lengths, exclusive=True)
        values["sequence_starts"] = start - tf.gather(start, tf.gather(first, row))
        values["sequence_mask"] = tf.ones_like(row, tf.bool)
        slot = tf.stack([row, number], 1)
        for name, x in values.items():
            shape = [count, self.max_sequences, *tf.unstack(tf.shape(x)[1:])]
            filled = tf.tensor_scatter_nd_update(tf.zeros(shape, x.dtype), slot, x)
            static = [None, self.max_sequences, *x.shape[1:]]
            rows[name] = tf.ensure_shape(filled, static)
        return rows


def best_fit(
    lengths: TFTensor,
    row_length: int,
    spare: int | TFTensor = 0,
    max_sequences: int | None = None,
) -> tuple[TFTensor, TFTensor, TFTensor]:
    """Assign sequences to rows, the longest first.

    In each turn every row takes one sequence: the longest one left that fits, and that
    no row with more room has taken. At first as many rows are open as the tokens could
    fill. If nothing fits any more, new rows are opened, unless only `spare` sequences
    are left.

    Args:
        lengths: int32 tensor of shape `(n,)`, each in [1, `row_length`].
        row_length: int.
        spare: int. How many sequences may be left without a row.
        max_sequences: int or `None`. The most sequences in a row.

    Returns:
        Three int32 tensors. Of shape `(n,)`: each sequence's row; sequences without a
        row have the number of rows. Of shape `(rows,)`, the fullest row first: the room
        that is left in each row, and its number of sequences.
    """
    # Example: lengths 5, 4, 3, 2, 1 and rows of 8 give rows 0, 1, 0, 1, 1.
    # There are 15 tokens, so one row is opened. It takes 5 and then 3. Nothing else
    # fits: a second row is opened, and takes 4, 2 and 1.
    limit = max_sequences or row_length
    lengths, order = tf.math.top_k(lengths, tf.size(lengths))

    def rows_for(left):
        """Count the rows that the sequences left could fill, at least one."""
        tokens = tf.reduce_sum(tf.gather(lengths, left))
        filled = tf.maximum(tokens // row_length, tf.size(left) // limit)
        return tf.maximum(filled, tf.sign(tf.size(left)))

    def turn(left, _, row, rows, room, counts):
        # Sort rows by their room. A row with the most sequences has no room.
        free, by_room = tf.math.top_k(tf.where(counts < limit, room, 0), tf.size(room))
        rows, room, counts = (tf.gather(x, by_room) for x in (rows, room, counts))
        fitting = tf.searchsorted(-tf.gather(lengths, left), -free)
        # Several rows can want the same sequence. Then each takes the one after that of
        # the row before it.
        index = tf.range(tf.size(rows))
        wanted = _running_maximum(fitting - index) + index
        taking = tf.searchsorted(wanted, tf.shape(left))[0]
        taken = tf.gather(left, wanted[:taking])
        row = tf.tensor_scatter_nd_update(row, taken[:, None], rows[:taking])
        sizes = tf.pad(tf.gather(lengths, taken), [[0, tf.size(rows) - taking]])
        left = ragged.keep(left, tf.gather(row, left) < 0)
        stuck = taking == 0
        opened = tf.where(stuck & (tf.size(left) > spare), rows_for(left), 0)
        return (
            left,
            (tf.size(left) > 0) & (~stuck | (opened > 0)),
            row,
            tf.concat([rows, tf.size(rows) + tf.range(opened)], 0),
            tf.concat([room - sizes, tf.fill([opened], row_length)], 0),
            tf.pad(counts + tf.sign(sizes), [[0, opened]]),
        )

    everything = tf.range(tf.size(lengths))
    first = tf.range(rows_for(everything))
    state = (
        everything,
        tf.size(lengths) > 0,
        tf.fill(tf.shape(lengths), -1),
        first,
        tf.fill(tf.shape(first), row_length),
        tf.zeros_like(first),
    )
    vector = tf.TensorShape([None])
    shapes = (vector, tf.TensorShape([]), vector, vector, vector, vector)
    state = tf.while_loop(lambda _, going, *rest: going, turn, state, shapes)
    _, _, row, rows, room, counts = state
    by_room = tf.argsort(room, stable=True)
    rows, room, counts = (tf.gather(x, by_room) for x in (rows, room, counts))
    # A sequence without a row has the number of rows in its place, also after sorting.
    row = tf.where(row < 0, tf.size(rows), row)
    rank = tf.concat([tf.math.invert_permutation(rows), tf.shape(rows)], 0)
    row = tf.gather(rank, row)
    return tf.gather(row, tf.math.invert_permutation(order)), room, counts


def _running_maximum(x):
    """Compute the maximum up to each element: within blocks, then across blocks."""
    # Example: 3, 1, 4, 1, 5 give 3, 3, 4, 4, 5.
    size, block = tf.size(x), 32
    lowest = x.dtype.min
    blocks = tf.pad(x, [[0, -size % block]], constant_values=lowest)
    blocks = tf.reshape(blocks, [-1, 1, block])
    up_to = tf.range(block)[:, None] >= tf.range(block)
    within = tf.reduce_max(tf.where(up_to, blocks, lowest), 2)
    number = tf.range(tf.shape(within)[0])
    earlier = number[:, None] > number
    before = tf.reduce_max(tf.where(earlier, within[:, -1], lowest), 1)
    return tf.reshape(tf.maximum(within, before[:, None]), [-1])[:size]


def _choose(parts, token_wise, index):
    """Select the sequences of an index from all parts."""
    chosen = {}
    for name, x in parts.items():
        if name in token_wise:
            x = ragged.from_lengths(x, parts["lengths"])
            chosen[name] = tf.gather(x, index).flat_values
        else:
            chosen[name] = tf.gather(x, index)
    return chosen


def _ragged_names(spec):
    parts = spec.items() if isinstance(spec, dict) else ()
    return [name for name, x in parts if isinstance(x, tf.RaggedTensorSpec)]


def _flat(sequences, token_wise):
    """Flatten ragged parts to the values of all sequences, and add `lengths`."""
    lengths = tf.cast(sequences[token_wise[0]].row_lengths(), tf.int32)
    flat = {
        name: x.flat_values if name in token_wise else x
        for name, x in sequences.items()
    }
    return {**flat, "lengths": lengths}
