"""Inputs and targets of text-to-text tasks, and prompts: conversion and layout."""

import dataclasses
from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.labels import finite_numbers, one_each
from keras_bertfam.layers.data.pairs.mixtures import TaskMixture
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.rows.sequence_packing import best_fit
from keras_bertfam.layers.data.user_inputs import as_rows, as_strings, as_tf_tensors
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


@dataclasses.dataclass(frozen=True)
class PairLayout:
    """The layout of an encoder's and a decoder's rows.

    The decoder's inputs are its targets, shifted to the right by one.

    Args:
        sequence_length: int. Tokens of the inputs, special ones included.
        target_length: int. Tokens of the targets, special ones included.
        start_token_id: int or `None`. The id that inputs and targets begin with.
        end_token_id: int or `None`. The id that inputs and targets end with.
        decoder_start_token_id: int. The first id of the decoder's inputs.
        pad_token_id: int.
    """

    sequence_length: int
    target_length: int
    start_token_id: int | None = None
    end_token_id: int | None = None
    decoder_start_token_id: int = 0
    pad_token_id: int = 0

    @property
    def specials(self) -> int:
        """int: the number of special tokens of a text."""
        return sum(x is not None for x in (self.start_token_id, self.end_token_id))

    def cut(self, inputs: TFRagged, targets: TFRagged) -> tuple[TFRagged, TFRagged]:
        """Cut texts so that they fit with their special tokens."""
        room = self.sequence_length - self.specials
        target_room = self.target_length - self.specials
        count_cut(inputs.row_lengths() > room, "inputs")
        count_cut(targets.row_lengths() > target_room, "targets", "target_length")
        return inputs[:, :room], targets[:, :target_room]

    def rows(
        self,
        inputs: TFRagged,
        targets: TFRagged,
        predicted: TFRagged | None = None,
        mask_token_id: int | None = None,
        sample_weight: TFTensor | None = None,
        padded: bool = True,
    ) -> dict[str, Any]:
        """Lay out pairs of texts for a model, one pair to a row. Works in a graph.

        Args:
            inputs: ragged int32 tensor `(batch, None)`, without special tokens.
            targets: ragged int32 tensor `(batch, None)`, without special tokens.
            predicted: ragged bool tensor of the shape of `targets`, true for targets
                that are predicted; `None` for all.
            mask_token_id: int. The id that the decoder gets in place of targets that
                aren't predicted.
            sample_weight: float32 tensor of shape `(batch,)`, or `None` for 1.
            padded: bool. If false, the tensors are ragged.

        Returns:
            A dict of `encoder_token_ids`, int32 `(batch, sequence_length)`;
            `decoder_token_ids` and `target_ids`, int32 `(batch, target_length)`; and
            `decoder_padding_mask`, bool, and `target_weights`, float32, of the latter
            shape. If `padded`, also `encoder_padding_mask`, bool.

        Raises:
            tf.errors.InvalidArgumentError: for texts that don't fit.
        """
        sizes = {
            "encoder": self._sizes(inputs, self.sequence_length, "inputs"),
            "decoder": self._sizes(targets, self.target_length, "targets"),
        }
        widths: dict[str, Any] = {
            "encoder": self.sequence_length,
            "decoder": self.target_length,
        }
        if not padded:
            widths = {side: _longest(x) for side, x in sizes.items()}
        inside = {side: tf.sequence_mask(x, widths[side]) for side, x in sizes.items()}
        special = (self.start_token_id, self.end_token_id)
        ids, target_ids = (
            _between(texts, inside[side], self.pad_token_id, *special)
            for side, texts in (("encoder", inputs), ("decoder", targets))
        )
        known, before = inside["decoder"], target_ids[:, :-1]
        if predicted is not None:
            # Special tokens are predicted if all tokens of the text are.
            whole = tf.reduce_all(predicted, 1)[:, None]
            edges = (None if token is None else whole for token in special)
            known = _between(predicted, known, False, *edges)
            before = tf.where(known[:, :-1], before, mask_token_id)
        first = tf.fill([targets.nrows(), 1], self.decoder_start_token_id)
        before = tf.concat([first, before], 1)
        weights = tf.cast(known, tf.float32)
        if sample_weight is not None:
            weights *= sample_weight[:, None]
        rows = {
            "encoder_token_ids": ids,
            "decoder_token_ids": tf.where(inside["decoder"], before, self.pad_token_id),
            "decoder_padding_mask": known,
            "target_ids": target_ids,
            "target_weights": weights,
        }
        if not padded:
            index = {
                side: tf.where(tf.reshape(x, [-1]))[:, 0] for side, x in inside.items()
            }
            return {
                name: ragged.from_lengths(
                    tf.gather(tf.reshape(x, [-1]), index[_side(name)]),
                    tf.cast(sizes[_side(name)], tf.int64),
                )
                for name, x in rows.items()
            }
        rows["encoder_padding_mask"] = inside["encoder"]
        return {
            name: tf.ensure_shape(x, [None, widths[_side(name)]])
            for name, x in rows.items()
        }

    def _sizes(self, texts, length, what):
        """Measure texts with their special tokens, and check that they fit."""
        sizes = tf.cast(texts.row_lengths(), tf.int32) + self.specials
        message = f"The {what} must fit into {length} tokens, special ones included."
        longest = _longest(sizes)
        tf.debugging.Assert(longest <= length, [f"{message} Received one of:", longest])
        return sizes

    def packed_rows(
        self, sequences: dict[str, TFRagged], row: TFTensor | None = None
    ) -> dict[str, TFTensor]:
        """Pack the ragged tensors of `rows`, several pairs to a row.

        See `pack_together`.

        Args:
            sequences: dict of ragged tensors.
            row: see `pack_together`.

        Returns:
            What `rows` gives, with as many rows as are needed; and
            `encoder_sequence_ids` and `decoder_sequence_ids`.
        """
        targets = dict(sequences)
        inputs = {"encoder_token_ids": targets.pop("encoder_token_ids")}
        lengths = {"encoder": self.sequence_length, "decoder": self.target_length}
        parts = {"encoder": inputs, "decoder": targets}
        rows = pack_together(parts, lengths, self.pad_token_id, row)
        return {**rows, "encoder_padding_mask": rows["encoder_sequence_ids"] > 0}


def as_example(
    rows: dict[str, TFTensor],
) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
    """Arrange rows of a `PairLayout` as `(x, y, sample_weight)`."""
    x = dict(rows)
    return x, x.pop("target_ids"), x.pop("target_weights")


def _side(name):
    return "encoder" if name.startswith("encoder_") else "decoder"


def _longest(sizes):
    return tf.reduce_max(tf.concat([sizes, [1]], 0))


def _between(texts, inside, fill, start, end):
    """Pad texts to rows, between two values unless they are `None`.

    Args:
        texts: ragged tensor `(batch, None)`.
        inside: bool tensor `(batch, width)`, true for the rows' tokens.
        fill: the padding.
        start: int, or tensor `(batch, 1)`.
        end: int, or tensor `(batch, 1)`.
    """
    count, width = tf.unstack(tf.shape(inside, tf.int64))
    begun = 0 if start is None else 1
    rows = texts.to_tensor(fill, shape=tf.stack([count, width - begun]))
    if begun:
        rows = tf.concat([tf.broadcast_to(start, [count, 1]), rows], 1)
    if end is not None:
        last = inside & ~tf.pad(inside, [[0, 0], [0, 1]])[:, 1:]
        rows = tf.where(last, end, rows)
    return rows


# The room of a row, in fixed point. A pair needs the greater of its shares of the
# inputs' and the targets' length.
_WHOLE = 1 << 16


def pack_together(
    sequences: dict[str, dict[str, TFRagged]],
    row_lengths: dict[str, int],
    pad_token_id: int = 0,
    row: TFTensor | None = None,
) -> dict[str, TFTensor]:
    """Pack the sequences of a batch with two sides into rows, best fit.

    The sides are an encoder's inputs and a decoder's targets, for example. Both sides
    of a sequence are in the same row; see `PackSequences`. Works in a graph.

    Args:
        sequences: dict from the names of sides, such as `"encoder"`, to dicts of
            ragged tensors `(batch, None)` of equal row lengths.
        row_lengths: dict from the names of sides to ints, the tokens of a row.
        pad_token_id: int. Padding of parts whose names end with `"_ids"`; other parts
            are padded with 0. Defaults to `0`.
        row: int32 tensor `(batch,)`, or `None`. The row of each sequence, if known; row
            numbers count from 0 without gaps. Defaults to `None`.

    Returns:
        A dict of tensors `(rows, row length)`: the parts of both sides, and for each
        side `..._sequence_ids`, int32: 1, 2, ... and 0 at padding.

    Raises:
        tf.errors.InvalidArgumentError: for a sequence that is longer than a row.
    """
    # Example: inputs [11 12] [13] [14 15], targets [21] [22 23] [24], rows of 4 and 3:
    # encoder ids       11 12 14 15 | 13  0  0  0
    # its sequence ids   1  1  2  2 |  1  0  0  0
    # decoder ids       21 24  0    | 22 23  0
    # its sequence ids   1  2  0    |  1  1  0
    lengths = {
        side: tf.cast(next(iter(parts.values())).row_lengths(), tf.int32)
        for side, parts in sequences.items()
    }
    if row is None:
        row = _best_rows(lengths, row_lengths)
    count = tf.reduce_max(tf.concat([row + 1, [0]], 0))
    order = tf.argsort(row, stable=True)
    row = tf.gather(row, order)
    begins = tf.searchsorted(row, tf.range(count))
    number = tf.range(1, tf.size(row) + 1) - tf.gather(begins, row)
    rows = {}
    for side, parts in sequences.items():
        sizes = tf.gather(lengths[side], order)
        totals = tf.math.unsorted_segment_sum(sizes, row, count)
        length = row_lengths[side]
        longest = tf.reduce_max(tf.concat([totals, [0]], 0))
        message = f"The {side}'s part of a row must have {length} tokens at most."
        tf.debugging.Assert(longest <= length, [message, "Received:", longest])
        numbers = tf.repeat(number, sizes)
        rows[f"{side}_sequence_ids"] = _laid_out(numbers, totals, length, 0)
        for name, x in parts.items():
            fill = pad_token_id if name.endswith("_ids") else 0
            values = tf.gather(x, order).flat_values
            rows[name] = _laid_out(values, totals, length, fill)
    return rows


def _best_rows(lengths, row_lengths):
    """Choose a row for each sequence, so that all of them fit."""
    shares = [
        -(-tf.cast(lengths[side], tf.int64) * _WHOLE // row_length)
        for side, row_length in row_lengths.items()
    ]
    cost = tf.cast(tf.maximum(tf.reduce_max(tf.stack(shares), 0), 1), tf.int32)
    tf.debugging.Assert(
        tf.reduce_all(cost <= _WHOLE),
        [
            f"Sequences must fit into rows of {row_lengths} tokens. Received one of:",
            tf.stack([tf.reduce_max(x) for x in lengths.values()]),
        ],
    )
    return best_fit(cost, _WHOLE)[0]


def _laid_out(values, totals, length, fill):
    """Lay out the tokens of rows as a tensor `(rows, length)`."""
    rows = ragged.from_lengths(values, totals)
    dense = rows.to_tensor(tf.cast(fill, values.dtype), shape=[None, length])
    return tf.ensure_shape(dense, [None, length])


def as_pairs(x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, TFTensor]:
    """Convert pairs of texts, in one of the forms that a call takes, to tensors.

    Args:
        x: see `TextToTextPreprocessor`.
        y: see `TextToTextPreprocessor`.
        sample_weight: numbers, one for each pair, or `None`.

    Returns:
        A dict of `encoder_text` and `decoder_text`, string tensors, and
        `sample_weight`, float32, if given.

    Raises:
        ValueError: for values that aren't pairs of strings.
    """
    if isinstance(x, dict) and y is None:
        unknown = {*x} - {"encoder_text", "decoder_text", "sample_weight"}
        if unknown:
            raise ValueError(
                "`x` must have `encoder_text`, `decoder_text` and `sample_weight` "
                f"only. Received: {sorted(map(str, unknown))}."
            )
        if sample_weight is None:
            sample_weight = x.get("sample_weight")
        y, x = x.get("decoder_text"), x.get("encoder_text")
    elif isinstance(x, tuple) and len(x) == 2 and y is None:
        x, y = x
    if x is None or y is None:
        raise ValueError(
            "`x` and `y` must be inputs and targets, or `x` a tuple of both or a dict "
            "of `encoder_text` and `decoder_text`. Received: "
            f"x={type(x).__name__}, y={type(y).__name__}."
        )
    texts = {"encoder_text": as_strings(x), "decoder_text": as_strings(y, name="y")}
    if sample_weight is not None:
        weight = finite_numbers(tf.convert_to_tensor(sample_weight), "sample_weight")
        if texts["encoder_text"].shape.rank == 1:
            weight = one_each(weight, "sample_weight")
        texts["sample_weight"] = weight
    shapes = [value.shape for value in texts.values()]
    if not all(shapes[0].is_compatible_with(shape) for shape in shapes):
        raise ValueError(
            "`x`, `y` and `sample_weight` must have equally many pairs. Received: "
            f"shapes {', '.join(map(str, shapes))}."
        )
    return texts


@as_written
def pairs_of(data: Any) -> TFDataset | TaskMixture:
    """Make an unbatched dataset of pairs, as `as_pairs` gives them.

    A `TaskMixture` is returned as it is.

    Args:
        data: see `TextToTextPreprocessor.dataset`.

    Raises:
        ValueError: for data that isn't pairs of texts, or has none.
    """
    if isinstance(data, TaskMixture):
        return data
    if not isinstance(data, tf.data.Dataset):
        if not isinstance(data, (tuple, dict)):
            raise ValueError(
                "`data` must be a `tf.data.Dataset`, or a tuple or dict of inputs "
                f"and targets. Received: {type(data).__name__}."
            )
        return as_rows(as_pairs(*data) if isinstance(data, tuple) else as_pairs(data))
    if data.cardinality() == 0:
        raise ValueError("`data` must have at least one pair. Received: none.")
    spec = data.element_spec
    if isinstance(spec, tuple) and isinstance(spec[0], (dict, tuple)):  # and weights
        pairs = data.map(lambda x, weight: as_pairs(x, None, weight))
    else:
        pairs = data.map(as_pairs)
    shape = pairs.element_spec["encoder_text"].shape
    if shape.rank != 0:
        raise ValueError(
            "`data` must be a dataset of single pairs, not of batches; `.unbatch()` "
            f"splits batches. Received: texts of shape {shape}."
        )
    return pairs


def lay_out_prompts(
    tokens: TFRagged, first: list[int], length: int, pad_token_id: int
) -> tuple[TFTensor, TFTensor, TFTensor]:
    """Lay out prompts after special tokens, with padding where a model will write.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        first: list of ints. The ids that each row begins with.
        length: int. Length of a row.
        pad_token_id: int.

    Returns:
        Ids, int32 `(batch, length)`; the padding mask, bool of that shape; and the
        number of tokens of the longest row, for `check_prompts`.
    """
    special = tf.tile(tf.constant([first], tf.int32), [tokens.nrows(), 1])
    tokens = tf.concat([special, tokens], 1)
    longest = tf.reduce_max(tf.concat([tokens.row_lengths(), [0]], 0))
    ids = tokens.to_tensor(pad_token_id, shape=[None, length])
    inside = tf.sequence_mask(tokens.row_lengths(), length)
    return tf.ensure_shape(ids, [None, length]), inside, longest


def check_prompts(
    rows: dict[str, TFTensor], longest: TFTensor, length: int
) -> dict[str, TFTensor]:
    """Return `rows` if all prompts leave room for a token. Works in a graph.

    Args:
        rows: dict of tensors.
        longest: what `lay_out_prompts` gives.
        length: int. The length of the rows.

    Raises:
        ValueError: if a prompt leaves none. In a graph the error is a
            `tf.errors.InvalidArgumentError`.
    """
    message = (
        f"`x` must have prompts of fewer than {length} tokens, the length of a row. "
        "Received one of"
    )
    if tf.executing_eagerly():
        if longest >= length:
            raise ValueError(f"{message} {int(longest)}.")
        return rows
    check = tf.debugging.Assert(longest < length, [message, longest])
    with tf.control_dependencies([check]):
        return {name: tf.identity(x) for name, x in rows.items()}


def to_text(tokenizer: Tokenizer, token_ids: Any, padding_mask: Any) -> Any:
    """Convert rows to text, without padding and special tokens. Works in a graph.

    Args:
        tokenizer: a tokenizer layer.
        token_ids: int tensor or array `(batch, length)` or `(length,)`.
        padding_mask: bool or int tensor or array of that shape.

    Returns:
        What the tokenizer's `detokenize` gives: a list of strings, or in a graph a
        string tensor `(batch,)`; for a single row, a string.
    """
    ids = tf.cast(as_tf_tensors(token_ids), tf.int32)
    kept = tf.cast(as_tf_tensors(padding_mask), tf.bool)
    for name in ("start", "end", "pad"):
        if getattr(tokenizer, f"{name}_token", None) is not None:
            kept &= ids != getattr(tokenizer, f"{name}_token_id")
    keep = ragged.keep if ids.shape.rank == 1 else ragged.keep_in_matrix
    return tokenizer.detokenize(keep(ids, kept))
