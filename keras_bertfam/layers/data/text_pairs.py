"""Inputs and targets of text to text: how they are laid out in rows."""

import dataclasses
from typing import Any

import tensorflow as tf

from keras_bertfam.layers.data.cut_texts import count_cut
from keras_bertfam.layers.data.pair_packing import pack_together
from keras_bertfam.types import TFRagged, TFTensor


@dataclasses.dataclass(frozen=True)
class PairLayout:
    """Rows of an encoder's inputs and of a decoder's, whose targets are the next ones.

    Args:
        sequence_length: int. Tokens of the inputs, special ones included.
        target_length: int. Tokens of the targets, special ones included.
        start_token_id: int or `None`. The id that both begin with.
        end_token_id: int or `None`. The id that both end with.
        decoder_start_token_id: int. What the decoder's inputs begin with.
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
        """int: the special tokens of a text."""
        return sum(x is not None for x in (self.start_token_id, self.end_token_id))

    def cut(self, inputs: TFRagged, targets: TFRagged) -> tuple[TFRagged, TFRagged]:
        """Cut off what doesn't fit beside the special tokens."""
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
        """Lay pairs of texts out as a model takes them, one to a row. Works in a graph.

        Args:
            inputs: ragged int32 tensor `(batch, None)`, without special tokens.
            targets: ragged int32 tensor `(batch, None)`, without special tokens.
            predicted: ragged bool tensor of the shape of `targets`, which of them are
                predicted, or `None` for all.
            mask_token_id: int. What the decoder gets for those that aren't.
            sample_weight: float32 tensor of shape `(batch,)`, or `None` for 1.
            padded: bool. Without it the tensors are ragged.

        Returns:
            A dict of `encoder_token_ids`, int32 `(batch, sequence_length)`, and of
            `decoder_token_ids` and `target_ids`, int32 `(batch, target_length)`,
            `decoder_padding_mask`, bool, and `target_weights`, float32, of that shape;
            if padded, `encoder_padding_mask`, bool, as well.

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
            # Special ones are where all others of a text are.
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
                name: tf.RaggedTensor.from_row_lengths(
                    tf.gather(tf.reshape(x, [-1]), index[_side(name)]),
                    tf.cast(sizes[_side(name)], tf.int64),
                    validate=False,
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
        """Pack what `rows` gives if not padded, several to a row; see `pack_together`.

        Args:
            sequences: dict of ragged tensors.
            row: see `pack_together`.

        Returns:
            What `rows` gives, of as many rows as are needed, and
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
        inside: bool tensor `(batch, width)`: where the rows' tokens are.
        fill: what rows are padded with.
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
