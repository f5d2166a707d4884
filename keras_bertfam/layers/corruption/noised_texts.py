"""From noise to inputs and targets: pure seeded functions over ragged ids."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.layers.corruption.noise_masks import random_places
from keras_bertfam.layers.corruption.replacement import replace_tokens
from keras_bertfam.layers.corruption.selection import (
    distinct_scores,
    is_any,
)
from keras_bertfam.layers.data.pairs.segments import uniform_below
from keras_bertfam.layers.data.seeding import random_uniform
from keras_bertfam.types import TFRagged, TFTensor


def text_lengths(tokens: TFRagged) -> TFTensor:
    """Count the tokens of each text, int32 `(batch,)`."""
    return tf.cast(tokens.row_lengths(), tf.int32)


def keep(tokens: TFRagged, kept: TFTensor) -> TFRagged:
    """Keep some tokens of texts and delete the others.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        kept: bool tensor, one for each flat value of `tokens`.

    Returns:
        A ragged int32 tensor `(batch, None)`.
    """
    # Example: 11, 14 and 15 of [[11, 12], [13, 14, 15]] are kept. Their indices 0, 3, 4
    # are split at 0, 1, 3: [[11], [14, 15]].
    index = tf.where(kept)[:, 0]
    return tf.RaggedTensor.from_row_splits(
        tf.gather(tokens.flat_values, index),
        tf.searchsorted(index, tokens.row_splits, out_type=tf.int64),
        validate=False,
    )


def drop_noise(tokens: TFRagged, noise: TFRagged) -> TFRagged:
    """Remove the noise from texts."""
    return keep(tokens, ~noise.flat_values)


def mask_each(tokens: TFRagged, noise: TFRagged, mask_token_id: int) -> TFRagged:
    """Replace each token of noise by a mask token."""
    return tokens.with_flat_values(
        tf.where(noise.flat_values, mask_token_id, tokens.flat_values)
    )


def replace_each(
    tokens: TFRagged,
    noise: TFRagged,
    mask_token_id: int,
    draw: Callable[[TFTensor, TFTensor], TFTensor],
    mask_rate: float,
    random_rate: float,
    seed: TFTensor,
) -> TFRagged:
    """Mask each token of noise, replace it by a random one, or keep it.

    The arguments are those of `replace_tokens`.
    """
    values = tokens.flat_values
    replaced = replace_tokens(
        values, None, seed, mask_token_id, draw, mask_rate, random_rate
    )
    return tokens.with_flat_values(tf.where(noise.flat_values, replaced, values))


def run_starts(noise: TFRagged) -> TFTensor:
    """Find where runs of noise begin: a bool tensor of the flat values' shape."""
    # Example: noise 0 1 1 0 1 (1 is true) has starts 0 1 0 0 1.
    values = noise.flat_values
    starts = values & ~tf.pad(values, [[1, 0]])[: tf.size(values)]
    # Noise at the start of a text begins a run, even if the text before ends with it.
    first = _first_tokens(noise)
    at_first = tf.gather(values, first)
    return tf.tensor_scatter_nd_update(starts, first[:, None], at_first)


def _first_tokens(tokens):
    """Find where texts begin in the flat values, int64, without empty texts."""
    begins = tokens.row_starts()
    return ragged.keep(begins, tokens.row_lengths() > 0)


def count_up(tokens: TFRagged, steps: TFTensor) -> TFTensor:
    """Compute the cumulative sums of `steps` within each text.

    Args:
        tokens: ragged tensor `(batch, None)`.
        steps: int32 tensor, one for each flat value of `tokens`.
    """
    # Example: steps 0, 1, 1 | 0, 1 of two texts give 0, 1, 2 | 0, 1.
    sums = tf.cumsum(tf.pad(steps, [[1, 0]]))
    before = tf.gather(sums, tokens.row_starts())
    return sums[1:] - tf.gather(before, tokens.value_rowids())


def limit_runs(noise: TFRagged, most: int) -> TFRagged:
    """Keep only the first `most` runs of noise of each text."""
    # Example: noise 1 0 1 1 0 1 (1 is true) and `most` 2 give 1 0 1 1 0 0.
    number = count_up(noise, tf.cast(run_starts(noise), tf.int32))
    return noise.with_flat_values(noise.flat_values & (number <= most))


def limit_cost(noise: TFRagged, most: int | TFTensor, run_cost: int) -> TFRagged:
    """Remove the noise for which targets of `most` tokens have no room.

    Args:
        noise: ragged bool tensor `(batch, None)`.
        most: int, or int32 tensor `(batch,)`.
        run_cost: int. Tokens that the targets need for each run besides the noise.
    """
    # Example: noise 1 1 0 1 1 (1 is true), `most` 5 and a run cost of 1. The noise
    # costs 2, 3, 3, 5, 6 tokens up to each place: 1 1 0 1 0 stays.
    steps = tf.cast(noise.flat_values, tf.int32)
    steps += run_cost * tf.cast(run_starts(noise), tf.int32)
    if not isinstance(most, int):
        most = tf.repeat(most, noise.row_lengths())
    return noise.with_flat_values(noise.flat_values & (count_up(noise, steps) <= most))


def sentinel_per_span(
    tokens: TFRagged, noise: TFRagged, sentinel_ids: Sequence[int]
) -> TFRagged:
    """Replace each run of noise by a sentinel: the first run by the first, and so on.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        noise: ragged bool tensor of that shape. Runs beyond the last sentinel are
            deleted.
        sentinel_ids: sequence of ints, in the order in which they are used.

    Returns:
        A ragged int32 tensor `(batch, None)`.
    """
    # Example: tokens 11 12 13 14 15, noise 0 1 1 0 1 (1 is true) and sentinels 91, 92
    # give 11 91 14 92.
    starts = tf.where(run_starts(noise))[:, 0]
    bounds = tf.searchsorted(starts, tokens.row_splits, out_type=tf.int64)
    before = tf.repeat(bounds[:-1], bounds[1:] - bounds[:-1])
    number = tf.range(tf.size(starts, tf.int64)) - before
    table = tf.constant([*sentinel_ids, 0], tf.int32)
    sentinels = tf.gather(table, tf.minimum(number, len(sentinel_ids)))
    values = tf.tensor_scatter_nd_update(tokens.flat_values, starts[:, None], sentinels)
    kept = tf.tensor_scatter_nd_update(
        ~noise.flat_values, starts[:, None], number < len(sentinel_ids)
    )
    return keep(tokens.with_flat_values(values), kept)


def sentinels_of_spans(
    tokens: TFRagged, spans: tuple[TFTensor, TFTensor], sentinel_ids: Sequence[int]
) -> tuple[TFRagged, TFRagged]:
    """Make inputs and targets with sentinels from spans of noise.

    They are what `sentinel_per_span` gives for the noise and for its inverse.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        spans: what `random_spans` gives: no span is empty or at the start of a text.
        sentinel_ids: sequence of ints, enough for all spans.

    Returns:
        Two ragged int32 tensors `(batch, None)`: inputs and targets.
    """
    # Example: tokens 11 12 13 14 15, spans that begin at 1, 4 and end at 3, 5. The
    # borders cut the text into 11 | 12 13 | 14 | 15. Taken in turns with sentinels,
    # they give the inputs 11 91 14 92 and the targets 91 12 13 92 15.
    length = tf.expand_dims(text_lengths(tokens), 1)
    # One more border, at the end, for the tokens after the last span.
    begin, end = (tf.concat([x, length], 1) for x in spans)
    since = tf.concat([tf.zeros_like(length), end[:, :-1]], 1)
    pieces = _Pieces(tokens, tf.stack([begin, end], 2), [*sentinel_ids, 0])
    sentinel = tf.range(tf.shape(begin)[1])
    shown, hidden = pieces.of_texts[:, :, 0], pieces.of_texts[:, :, 1]
    inputs = pieces.joined(shown, pieces.of_id(sentinel, begin < length))
    return inputs, pieces.joined(pieces.of_id(sentinel, since < length), hidden)


class _Pieces:
    """Numbered pieces of texts, and single ids, from which other texts are joined.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        ends: int32 tensor `(batch, pieces, kinds)`: where each piece of a text ends,
            in ascending order; the last is the text's length.
        ids: sequence of ints, each of which becomes a piece of one token.
    """

    def __init__(self, tokens: TFRagged, ends: TFTensor, ids: Sequence[int]) -> None:
        total = tokens.row_splits[-1:]
        ends = tf.cast(ends, tf.int64) + tokens.row_starts()[:, None, None]
        single = total + tf.range(1, len(ids) + 1, dtype=tf.int64)
        # The last piece is empty.
        splits = tf.concat([total * 0, tf.reshape(ends, [-1]), single, single[-1:]], 0)
        values = tf.concat([tokens.flat_values, tf.constant(ids, tf.int32)], 0)
        self._table = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        self._count = tf.size(ends)
        self._empty = self._count + len(ids)
        # The numbers of the texts' pieces.
        self.of_texts = tf.reshape(tf.range(self._count), tf.shape(ends))

    def of_id(self, index: TFTensor, used: TFTensor) -> TFTensor:
        """Give the numbers of single ids; the empty piece's if `used` is false."""
        return tf.where(used, self._count + index, self._empty)

    def joined(self, *numbers: TFTensor) -> TFRagged:
        """Join pieces to texts by their numbers, each `(batch, n)`, taken in turns."""
        parts = tf.gather(self._table, tf.reshape(tf.stack(numbers, 2), [-1]))
        each = len(numbers) * tf.shape(numbers[0])[1]
        return tf.RaggedTensor.from_row_splits(
            parts.flat_values, parts.row_splits[::each], validate=False
        )


def mask_per_span(
    tokens: TFRagged, noise: TFRagged, starts: TFRagged, mask_token_id: int
) -> TFRagged:
    """Replace each span of noise by a mask token.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        noise: ragged bool tensor of that shape.
        starts: ragged bool tensor of that shape: where spans begin. Spans may touch.
        mask_token_id: int.

    Returns:
        A ragged int32 tensor `(batch, None)`.
    """
    # Example: tokens 11 12 13 14 15, noise 0 1 1 0 1 and starts 0 1 0 0 1 (1 is true)
    # give 11 M 14 M.
    kept = ~noise.flat_values | starts.flat_values
    return keep(mask_each(tokens, noise, mask_token_id), kept)


def insert_masks(
    tokens: TFRagged, counts: TFTensor, mask_token_id: int, seed: TFTensor
) -> TFRagged:
    """Insert mask tokens into texts, all places equally likely.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        counts: int32 tensor of shape `(batch,)`: how many masks.
        mask_token_id: int.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A ragged int32 tensor `(batch, None)`.
    """
    length = text_lengths(tokens)[:, None]
    places = random_places(length[:, 0] + counts, counts, seed)
    number = tf.range(tf.shape(places)[1] + 1)
    inserted = number < counts[:, None]
    # Example: a text of three tokens and two masks, at the places 1 and 2 of the
    # result: 1 and 1 tokens of the text are before them, so it is `x M M x x`.
    before = tf.where(inserted[:, :-1], places - number[:-1], length)
    before = tf.concat([before, length], 1)
    pieces = _Pieces(tokens, before[:, :, None], [mask_token_id])
    return pieces.joined(pieces.of_texts[:, :, 0], pieces.of_id(0, inserted))


def shuffle_tokens(tokens: TFRagged, seed: TFTensor) -> TFRagged:
    """Put the tokens of texts in random order."""
    lengths = text_lengths(tokens)
    width = tf.maximum(tf.reduce_max(tf.concat([lengths, [0]], 0)), 1)
    inside = tf.range(width)[None] < lengths[:, None]
    scores = distinct_scores(tf.shape(inside), seed)
    order = tf.argsort(tf.where(inside, scores, tf.int32.max), axis=1)
    order += tf.cumsum(lengths, exclusive=True)[:, None]
    return tokens.with_flat_values(
        tf.gather(tokens.flat_values, ragged.keep(order, inside))
    )


def shuffle_sentences(
    tokens: TFRagged, end_ids: Sequence[int], seed: TFTensor
) -> TFRagged:
    """Put the sentences of texts in random order.

    Args:
        tokens: ragged int32 tensor `(batch, None)`.
        end_ids: sequence of ints: ids of tokens that end a sentence. In a run of them
            the last one ends it. A text's end always ends a sentence.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A ragged int32 tensor `(batch, None)`.
    """
    # Example: tokens 1 9 9 2 3 9 4, where 9 is a full stop. The sentences 1 9 9 | 2 3 9
    # | 4 begin at 0, 3 and 6; one result is 4 1 9 9 2 3 9.
    values = tokens.flat_values
    size = tf.size(values)
    ends = is_any(values, end_ids)
    starts = tf.pad(ends, [[1, 0]])[:size] & ~ends
    begins = _first_tokens(tokens)[:, None]
    starts = tf.tensor_scatter_nd_update(
        starts, begins, tf.ones_like(begins[:, 0], tf.bool)
    )
    first = tf.where(starts)[:, 0]
    row = tf.gather(tokens.value_rowids(), first)
    splits = tf.concat([first, [tf.cast(size, tf.int64)]], 0)
    draws = random_uniform(tf.shape(row), seed, 0, tf.int32.max, tf.int32)
    order = tf.argsort(tf.cast(row, tf.int64) * 2**31 + tf.cast(draws, tf.int64))
    sentences = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
    return tokens.with_flat_values(tf.gather(sentences, order).flat_values)


def rotate(tokens: TFRagged, seed: TFTensor) -> TFRagged:
    """Rotate texts: each begins at a random token, and its start moves to the end."""
    # Example: the text 11 12 13 14 and an offset of 3 give 14 11 12 13.
    lengths = text_lengths(tokens)
    offsets = uniform_below(lengths, seed)
    row = tokens.value_rowids()
    begin = tf.gather(tf.cumsum(lengths, exclusive=True), row)
    place = tf.range(tf.size(row)) - begin + tf.gather(offsets, row)
    place = tf.math.floormod(place, tf.gather(lengths, row))
    return tokens.with_flat_values(tf.gather(tokens.flat_values, begin + place))
