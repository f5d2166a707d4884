"""Packing of sequences of uneven length into rows that they fill."""

from typing import Any

import tensorflow as tf

from keras_bertfam.types import TFDataset, TFTensor


class PackSequences:
    """Packs whole sequences into rows, best fit: use it with `Dataset.apply`.

    A row takes the longest sequences that still fit. Rows that are left with room wait
    in a buffer for what comes, so that about 99 % of the tokens are no padding. What
    comes out depends on what comes in alone.

    Args:
        row_length: int. Tokens in a row. No sequence may be longer.
        max_sequences: int or `None`. The most sequences in a row. `None` means as many
            as fit; then the rows have no parts of one value for each sequence.
        pad_token_id: int. What fills `token_ids`; all else is filled with 0. Defaults
            to `0`.
        buffer_size: int. How many sequences wait at most for what comes to fill up
            their rows. Defaults to `1024`.

    Returns:
        Called on a `tf.data.Dataset` of batches of sequences, best of some hundred, each
        a dict of ragged tensors `(batch, None)`, of the same row lengths, and of dense
        ones with a batch axis, a dataset of rows. A row is a dict with

        - each ragged part, `(row_length,)`;
        - `sequence_ids`, int32 `(row_length,)`: 1, 2, ... and 0 at padding;
        - `padding_mask`, bool `(row_length,)`;
        - with `max_sequences`, each dense part, `(max_sequences, ...)`, `sequence_mask`,
          bool `(max_sequences,)`, and `sequence_starts`, int32 `(max_sequences,)`: where
          each sequence's first token is.

    Raises:
        ValueError: for an argument out of its range, or data that isn't ragged.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    sentences = tf.data.Dataset.from_tensor_slices(["A cat .", "Two dogs !"])
    batches = sentences.batch(1024).map(lambda x: {"token_ids": tokenizer(x)})
    rows = batches.apply(keras_bertfam.layers.PackSequences(128))
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
        for name, value in (
            ("row_length", row_length),
            ("max_sequences", max_sequences),
            ("buffer_size", buffer_size),
        ):
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
        self.row_length = row_length
        self.max_sequences = max_sequences
        self.pad_token_id = pad_token_id
        self.buffer_size = buffer_size

    def __call__(self, batches: TFDataset) -> TFDataset:
        spec = batches.element_spec
        ragged = _ragged_names(spec)
        if not ragged:
            raise ValueError(
                "The data must be dicts with ragged tensors. "
                f"Received: element_spec={spec}."
            )
        chunks = batches.map(lambda batch: (_flat(batch, ragged), False))
        nothing = {
            name: tf.zeros([0, *(() if name in ragged else part.shape[1:])], part.dtype)
            for name, part in spec.items()
        }
        nothing["lengths"] = tf.zeros([0], tf.int32)
        end = tf.data.Dataset.from_tensors((nothing, True))

        def step(waiting, chunk):
            return self._step(waiting, chunk, ragged)

        return chunks.concatenate(end).scan(nothing, step).unbatch()

    def _step(self, waiting, chunk, ragged):
        new, last = chunk
        parts = {name: tf.concat([waiting[name], x], 0) for name, x in new.items()}
        lengths = parts["lengths"]
        tf.debugging.assert_less_equal(
            lengths,
            self.row_length,
            f"Sequences must be of at most row_length={self.row_length} tokens.",
        )
        row, place, number, free = best_fit(
            lengths, self.row_length, last, self.max_sequences
        )
        # The fullest rows leave, until no more sequences wait than the buffer has.
        order = tf.argsort(free, stable=True)
        rank = tf.math.invert_permutation(order)
        placed = row >= 0
        counts = tf.math.bincount(row[placed], minlength=tf.size(free), dtype=tf.int32)
        surplus = tf.size(lengths) - tf.where(last, 0, self.buffer_size)
        leaving = tf.searchsorted(tf.cumsum(tf.gather(counts, order)), [surplus])[0] + 1
        leaving = tf.where(surplus > 0, leaving, 0)
        full = tf.reduce_sum(tf.cast(free == 0, tf.int32))
        leaving = tf.minimum(tf.maximum(leaving, full), tf.size(free))
        rank = tf.where(placed, tf.gather(rank, tf.maximum(row, 0)), leaving)
        leaves = rank < leaving
        rows = self._rows(parts, ragged, leaves, rank, place, number, leaving)
        stays = tf.repeat(~leaves, lengths)
        rest = {
            name: tf.boolean_mask(x, stays if name in ragged else ~leaves)
            for name, x in parts.items()
        }
        return rest, rows

    def _rows(self, parts, ragged, leaves, row, place, number, count):
        """Lays the sequences that leave out in `count` rows."""
        size = self.row_length
        row, place, number, lengths = (
            tf.boolean_mask(x, leaves) for x in (row, place, number, parts["lengths"])
        )
        starts = tf.repeat(row * size + place, lengths)
        at = starts + tf.ragged.range(lengths).flat_values

        def laid_out(values, fill):
            blank = tf.fill([count * size], tf.cast(fill, values.dtype))
            filled = tf.tensor_scatter_nd_update(blank, at[:, None], values)
            return tf.ensure_shape(tf.reshape(filled, [count, size]), [None, size])

        inside = tf.repeat(leaves, parts["lengths"])
        ids = laid_out(tf.repeat(number + 1, lengths), 0)
        rows = {"sequence_ids": ids, "padding_mask": ids > 0}
        for name in ragged:
            fill = self.pad_token_id if name == "token_ids" else 0
            rows[name] = laid_out(tf.boolean_mask(parts[name], inside), fill)
        if self.max_sequences is None:
            return rows
        slot = tf.stack([row, number], 1)
        values = {name: x for name, x in parts.items() if name not in ragged}
        del values["lengths"]
        values = {name: tf.boolean_mask(x, leaves) for name, x in values.items()}
        values["sequence_starts"] = place
        values["sequence_mask"] = tf.ones_like(place, tf.bool)
        for name, x in values.items():
            static = [self.max_sequences, *x.shape[1:]]
            shape = tf.concat([[count, self.max_sequences], tf.shape(x)[1:]], 0)
            blank = tf.zeros(shape, x.dtype)
            filled = tf.tensor_scatter_nd_update(blank, slot, x)
            rows[name] = tf.ensure_shape(filled, [None, *static])
        return rows


def best_fit(
    lengths: TFTensor,
    row_length: int,
    place_all: bool | TFTensor = True,
    max_sequences: int | None = None,
) -> tuple[TFTensor, TFTensor, TFTensor, TFTensor]:
    """Assigns sequences to rows, the longest first, each row at a time one.

    At each turn, every row takes the longest sequence left that fits and that no row
    with more room has taken.

    Args:
        lengths: int32 tensor of shape `(n,)`, each in [1, `row_length`].
        row_length: int.
        place_all: bool. Whether to open rows until all are placed. Else there are as
            many as could be full, and what doesn't fit is left.
        max_sequences: int or `None`. The most sequences in a row.

    Returns:
        Int32 tensors: the row of each sequence, -1 for what is left, where in the row
        it begins, which of the row's sequences it is, from 0, all of shape `(n,)`, and
        the room left in each row.
    """
    order = tf.argsort(-lengths, stable=True)
    lengths = tf.gather(lengths, order)
    limit = row_length if max_sequences is None else max_sequences

    def rows_for(left):
        """As many as these sequences could fill."""
        return tf.maximum(tf.reduce_sum(tf.gather(lengths, left)) // row_length, 1)

    def more(left, going, *_):
        return going & (tf.size(left) > 0)

    def turn(left, going, row, place, number, free, counts):
        room = tf.where(counts < limit, free, 0)
        by_room = tf.argsort(-room, stable=True)
        fitting = tf.searchsorted(-tf.gather(lengths, left), -tf.gather(room, by_room))
        index = tf.range(tf.size(by_room))
        # Of rows that want the same one, each takes the one after the row before.
        taken = _running_maximum(fitting - index) + index
        takes = taken < tf.size(left)
        rows = tf.boolean_mask(by_room, takes)
        items = tf.gather(left, tf.boolean_mask(taken, takes))
        at = items[:, None]
        row = tf.tensor_scatter_nd_update(row, at, rows)
        used = row_length - tf.gather(free, rows)
        place = tf.tensor_scatter_nd_update(place, at, used)
        number = tf.tensor_scatter_nd_update(number, at, tf.gather(counts, rows))
        sizes = tf.gather(lengths, items)
        free = tf.tensor_scatter_nd_sub(free, rows[:, None], sizes)
        counts = tf.tensor_scatter_nd_add(counts, rows[:, None], tf.ones_like(sizes))
        left = tf.boolean_mask(left, tf.gather(row, left) < 0)
        stuck = tf.size(rows) == 0
        opened = tf.where(stuck & place_all & (tf.size(left) > 0), rows_for(left), 0)
        free = tf.concat([free, tf.fill([opened], row_length)], 0)
        counts = tf.concat([counts, tf.zeros([opened], tf.int32)], 0)
        return left, ~stuck | (opened > 0), row, place, number, free, counts

    everything = tf.range(tf.size(lengths))
    rows = rows_for(everything)
    nowhere = tf.fill(tf.shape(lengths), -1)
    state: Any = (
        everything,
        tf.constant(True),
        nowhere,
        tf.zeros_like(lengths),
        tf.zeros_like(lengths),
        tf.fill([rows], row_length),
        tf.zeros([rows], tf.int32),
    )
    vector = tf.TensorShape([None])
    shapes = tuple(tf.TensorShape([]) if x.shape.rank == 0 else vector for x in state)
    _, _, row, place, number, free, _ = tf.while_loop(more, turn, state, shapes)
    back = tf.math.invert_permutation(order)
    row, place, number = (tf.gather(x, back) for x in (row, place, number))
    return row, place, number, free


def _running_maximum(x):
    """The greatest of the elements up to each, by doubling the reach."""

    def reach_further(x, reach):
        return tf.concat([x[:reach], tf.maximum(x[reach:], x[:-reach])], 0), 2 * reach

    size = tf.size(x)
    shapes = (tf.TensorShape([None]), tf.TensorShape([]))
    return tf.while_loop(
        lambda _, reach: reach < size, reach_further, (x, tf.constant(1)), shapes
    )[0]


def _ragged_names(spec):
    parts = spec.items() if isinstance(spec, dict) else ()
    return [name for name, x in parts if isinstance(x, tf.RaggedTensorSpec)]


def _flat(sequences, ragged):
    """Ragged parts as the values of all sequences, with their `lengths`."""
    lengths = tf.cast(sequences[ragged[0]].row_lengths(), tf.int32)
    flat = {name: x.flat_values if name in ragged else x for name, x in sequences.items()}
    return {**flat, "lengths": lengths}
