"""The layer that draws factorisation orders and targets, for XLNet."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.layers.corruption.replacement import check_ids, fill_slots
from keras_bertfam.layers.corruption.selection import is_any, select_tokens
from keras_bertfam.layers.data.base import PreprocessingLayer, as_token_ids
from keras_bertfam.layers.data.pipeline_warnings import MaskCounter
from keras_bertfam.layers.data.seeding import (
    content_seed,
    fold,
    random_uniform,
    split_seed,
)
from keras_bertfam.types import Config, TFTensor


def sample_spans(
    starts: TFTensor,
    inside: TFTensor,
    goals: TFTensor,
    max_count: int,
    seed: TFTensor,
    max_words: int = 5,
    alpha: int = 6,
    beta: int = 1,
) -> tuple[TFTensor, TFTensor]:
    """Select spans of whole words, each with its own context around it.

    Walk through each row from left to right. Draw `n` words with `p(n)` proportional to
    `1 / n`, and a context of `n * alpha // beta` tokens. Skip a uniform part of the
    context; the span begins at the next word, and the rest of the context follows it.
    The walk stops at the row's end, or when `goals` is reached. A span is shortened to
    the words that fit what is left of the goal.

    Args:
        starts: bool tensor `(batch, length)`: which tokens start a word.
        inside: bool tensor `(batch, length)`: the contiguous part of each row in which
            tokens may be selected.
        goals: int32 tensor `(batch,)`. The most tokens to select.
        max_count: int. An upper bound of `goals`.
        seed: integer tensor of shape `(2,)`.
        max_words: int.
        alpha: int.
        beta: int.

    Returns:
        Two int32 tensors `(batch, max_count)`: where spans begin and where they end
        (exclusive). Both are 0 in empty slots.
    """
    # Example: a row of 12 tokens, all words, and a goal of 3. First n = 1 is drawn
    # (context 6), and a place of .5. Three tokens are skipped, the span is token 3, and
    # the next context begins at 4 + 6 - 3 = 7. Then n = 2 is drawn (context 12), and a
    # place of .1. One token is skipped, and the span is 8, 9. The begins are 3, 8, 0
    # and the ends 4, 10, 0.
    shape = tf.shape(starts)
    index = tf.range(shape[1])
    starts &= inside
    reached = tf.cast(inside, tf.int32) * (index + 1)
    end = tf.reduce_max(reached, 1)
    first = tf.where(end > 0, tf.argmax(inside, 1, tf.int32), 0)
    words = tf.cast(starts, tf.int32)
    num_words = tf.reduce_sum(words, 1)
    # `word_at`: the first word that begins at or after a position. `begin_of`: where
    # each word begins.
    word_at = tf.concat([tf.cumsum(words, 1, exclusive=True), num_words[:, None]], 1)
    begin_of = tf.sort(tf.where(starts, index, end[:, None]), axis=1)
    begin_of = tf.concat([begin_of, tf.repeat(end[:, None], max_words + 1, 1)], 1)
    seeds = split_seed(seed, 2)
    draws = (max_count, shape[0])
    # Draw n by the inverse of its cumulative distribution.
    shares = np.cumsum(1 / np.arange(1, max_words + 1))
    levels = tf.constant(shares[:-1] / shares[-1], tf.float32)
    sizes = random_uniform(draws, seeds[0])
    sizes = tf.searchsorted(levels, tf.reshape(sizes, [-1]), side="right") + 1
    places = random_uniform(draws, seeds[1])

    def walk(state, draw):
        at, left, _, _ = state
        words, place = draw
        words = tf.minimum(words, left)
        context = words * alpha // beta
        before = tf.cast(place * tf.cast(context, tf.float32), tf.int32)
        word = tf.gather(
            word_at, tf.minimum(at + before, shape[1]), axis=1, batch_dims=1
        )
        following = word[:, None] + tf.range(max_words + 1)
        bounds = tf.gather(
            begin_of,
            tf.minimum(following, tf.shape(begin_of)[1] - 1),
            axis=1,
            batch_dims=1,
        )
        begin = bounds[:, 0]
        fits = (tf.range(1, max_words + 1) <= words[:, None]) & (
            bounds[:, 1:] - begin[:, None] <= left[:, None]
        )
        count = tf.reduce_sum(tf.cast(fits, tf.int32), 1)
        stop = (word + words > num_words) | (count == 0)
        begin = tf.where(stop, 0, begin)
        last = tf.gather(bounds, count, axis=1, batch_dims=1)
        last = tf.where(stop, 0, last)
        left = tf.where(stop, 0, left - (last - begin))
        return last + context - before, left, begin, last

    nothing = tf.zeros_like(first)
    _, _, begins, ends = tf.scan(
        walk, (tf.reshape(sizes, draws), places), (first, goals, nothing, nothing)
    )
    return tf.transpose(begins), tf.transpose(ends)


def draw_order(
    shape: TFTensor, seed: TFTensor, perm_size: int | None = None
) -> TFTensor:
    """Draw each row's factorisation order.

    Args:
        shape: int tensor of shape `(2,)`, batch and length.
        seed: integer tensor of shape `(2,)`.
        perm_size: int or `None`. Blocks of this many tokens are permuted separately,
            and stay one after the other. `None` permutes the whole row.

    Returns:
        int32 tensor of that shape: the place of each token in the order.
    """
    # Example: five keys .9 .4 .7 .1 .2 give the places 4, 2, 3, 0, 1: the fourth token
    # comes first. In blocks of three tokens the places are 2, 0, 1 | 3, 4.
    keys = random_uniform(shape, seed, dtype=tf.float64)
    if perm_size is not None:
        keys += tf.cast(tf.range(shape[1]) // perm_size, tf.float64)
    return tf.argsort(tf.argsort(keys, axis=1), axis=1)


def order_ranks(order: TFTensor, selected: TFTensor, special: TFTensor) -> TFTensor:
    """Rank tokens by their places in an order; tokens that all others see get -1.

    Args:
        order: int tensor `(batch, length)`, see `draw_order`.
        selected: bool tensor `(batch, length)`, the tokens to predict.
        special: bool tensor `(batch, length)`, special tokens such as separators,
            which take part in the order but aren't predicted.

    Returns:
        int32 tensor `(batch, length)`, the `perm_ranks` of `XLNetBackbone`.
    """
    # Example: order 4 2 3 0 1, selected 0 1 0 0 0 and special 0 0 0 0 1 (1 is true)
    # give -1 2 -1 -1 1.
    return tf.where(selected | special, tf.cast(order, tf.int32), -1)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class PermuteTokens(PreprocessingLayer):
    """Draws factorisation orders, and the tokens to predict, as XLNet does.

    Use it inside `Dataset.map`, after batching. The token ids stay as they are; the
    order alone says which tokens see which. A row has two parts: its first
    `reuse_length` tokens, which the memory repeats for the next row, and the rest. Each
    part has its own order. The second part sees all of the first, and the first nothing
    of the second.

    A row's targets are first spans of whole words, see `sample_spans`, then single
    tokens. A full row has `mask_selection_length` of them, which its parts share in
    proportion to their lengths. A padded row has the same share of its tokens, as far
    as it has candidates. Special tokens are never targets.

    The released code differs in two points: it makes special tokens targets with weight
    0, and, by an error, its spans consist of pieces, not of words.

    Args:
        vocabulary_size: int. Number of token ids.
        special_token_ids: sequence of ints. Ids of separators and the like. They are
            never predicted, and only tokens later in the order see them.
        pad_token_id: int or `None`. The id of padding. Defaults to `0`.
        mask_selection_length: int or `None`. The number of slots in the outputs. `None`
            means `length * beta // alpha`, which needs a static length.
        reuse_length: int. Length of a row's first part. Defaults to `0`: the row is
            one part.
        perm_size: int or `None`. See `draw_order`. Defaults to `None`.
        max_words: int. The most words of a span. Defaults to `5`.
        alpha, beta: ints. A span of n words has a context of `n * alpha // beta`
            tokens. Default to `6` and `1`.
        starts_word: sequence of `vocabulary_size` booleans: whether a token starts a
            word. `None`: every token does.
        seed: int. Used in calls without a seed. Defaults to `0`.

    Call arguments:
        token_ids: integer tensor `(batch, length)` or `(length,)`.
        seed: integer tensor of shape `(2,)`, such as one of `seeded_passes`.
            Defaults to a hash of `token_ids` and the layer's own seed.
        reversed_rows: bool tensor `(batch,)`, true for rows whose text runs backwards:
            there a word begins with its last piece.

    Returns:
        A dict of `tf.Tensor`s: `perm_ranks`, int32 `(batch, length)`, see
        `XLNetBackbone`; `mask_positions`, int32 `(batch, mask_selection_length)`,
        ascending; `mask_ids`, int32 of that shape, the ids there;
        `mask_weights`, float32, 1 for a target and 0 for an empty slot, whose
        position and id are 0.

    Raises:
        ValueError: If an argument is out of its range.

    Example:

    ```python
    layer = keras_bertfam.layers.PermuteTokens(
        vocabulary_size=32000, special_token_ids=[3, 4], pad_token_id=5)
    layer([[17, 23, 9, 31, 4, 3]], seed=[0, 1])["perm_ranks"]
    ```

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237), sections
    2.3 and 3.1.
    """

    # Features of a row that the call takes besides `token_ids`.
    row_arguments = ("reversed_rows",)

    def __init__(
        self,
        vocabulary_size: int,
        special_token_ids: Sequence[int],
        pad_token_id: int | None = 0,
        mask_selection_length: int | None = None,
        reuse_length: int = 0,
        perm_size: int | None = None,
        max_words: int = 5,
        alpha: int = 6,
        beta: int = 1,
        starts_word: Sequence[bool] | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.special_token_ids = [int(i) for i in special_token_ids]
        self.pad_token_id = pad_token_id
        self.mask_selection_length = mask_selection_length
        self.reuse_length = reuse_length
        self.perm_size = perm_size
        self.max_words = max_words
        self.alpha = alpha
        self.beta = beta
        self.starts_word = None if starts_word is None else [*map(bool, starts_word)]
        self.seed = seed
        self._share = MaskCounter(type(self).__name__)
        for name, least in (
            ("mask_selection_length", 1),
            ("reuse_length", 0),
            ("perm_size", 1),
            ("max_words", 1),
            ("beta", 1),
            ("alpha", beta),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(
                    f"`{name}` must be at least {least}. Received: {value}."
                )
        check_ids(vocabulary_size, special_token_ids=self.special_token_ids)
        if self.starts_word is not None and len(self.starts_word) != vocabulary_size:
            raise ValueError(
                f"`starts_word` must have vocabulary_size={vocabulary_size} "
                f"elements. Received: {len(self.starts_word)}."
            )

    def call(
        self,
        token_ids: TFTensor,
        seed: TFTensor | None = None,
        reversed_rows: TFTensor | None = None,
    ) -> dict[str, TFTensor]:
        ids = as_token_ids(token_ids)
        if ids.shape.rank not in (1, 2):
            raise ValueError(
                "`token_ids` must have the shape `(batch, length)` or `(length,)`. "
                f"Received: shape={ids.shape}."
            )
        if seed is None:
            seed = content_seed(ids, self.seed)
        seed = tf.ensure_shape(tf.cast(seed, tf.int64), [2])
        if ids.shape.rank == 2:
            return self._permute(ids, seed, reversed_rows)
        outputs = self._permute(ids[None], seed, reversed_rows)
        return {name: x[0] for name, x in outputs.items()}

    def _permute(self, ids, seed, reversed_rows):
        length = ids.shape[1]
        if length is None and (self.mask_selection_length is None or self.reuse_length):
            raise ValueError(
                "`mask_selection_length` must be given, and `reuse_length` must be 0, "
                "if the length of `token_ids` isn't static. Received: shape="
                f"{ids.shape}."
            )
        slots = self.mask_selection_length
        if slots is None:
            slots = max(1, length * self.beta // self.alpha)
        starts = self._starts(ids, reversed_rows)
        cut = self.reuse_length
        bounds = [(0, length, slots)]
        if cut:
            if not cut < length:
                raise ValueError(
                    f"`reuse_length` must be less than the {length} tokens of a row. "
                    f"Received: {cut}."
                )
            second = slots * (length - cut) // length
            bounds = [(0, cut, slots - second), (cut, length, second)]
        parts, asked = [], []
        for number, (begin, end, goal) in enumerate(bounds):
            part, begins = ids[:, begin:end], starts[:, begin:end]
            goals = self._goals(part, goal)
            asked.append(tf.reduce_sum(goals))
            ranks, selected = self._part(part, begins, goals, goal, fold(seed, number))
            # All ranks of the second part are above those of the first.
            parts.append((ranks + (begin + 1 if begin else 0), selected))
        ranks, selected = (tf.concat(pair, 1) for pair in zip(*parts, strict=True))
        where = tf.where(selected)
        self._share.count(sum(asked), tf.shape(where)[0])
        values = [tf.cast(where[:, 1], tf.int32), tf.gather_nd(ids, where)]
        rows = tf.shape(ids, tf.int64)[0]
        weights, (positions, targets) = fill_slots(where, values, rows, slots)
        return {
            "perm_ranks": ranks,
            "mask_positions": positions,
            "mask_ids": targets,
            "mask_weights": weights,
        }

    def _starts(self, ids, reversed_rows):
        """Tell which tokens start a word, in reading order."""
        if self.starts_word is None:
            return tf.ones_like(ids, tf.bool)
        starts = tf.gather(tf.constant(self.starts_word), ids)
        if reversed_rows is None:
            return starts
        # In a reversed row a word ends with its first piece, and the next token starts
        # a word.
        backwards = tf.pad(starts, [[0, 0], [1, 0]], constant_values=True)[:, :-1]
        backwards |= is_any(ids, self.special_token_ids)
        return tf.where(tf.cast(reversed_rows, tf.bool)[:, None], backwards, starts)

    def _goals(self, ids, goal):
        """Compute how many tokens of each row to predict: `goal` for a full row."""
        inside = tf.cast(self._inside(ids), tf.float64)
        return tf.cast(tf.round(tf.reduce_mean(inside, 1) * goal), tf.int32)

    def _inside(self, ids):
        if self.pad_token_id is None:
            return tf.ones_like(ids, tf.bool)
        return ids != self.pad_token_id

    def _part(self, ids, starts, goals, goal, seed):
        """Rank the tokens of one part of the rows, and choose the targets."""
        if goal == 0:
            return tf.fill(tf.shape(ids), -1), tf.zeros_like(ids, tf.bool)
        seeds = split_seed(seed, 3)
        special = is_any(ids, self.special_token_ids)
        inside = self._inside(ids)
        shape = tf.shape(ids)
        begins, ends = sample_spans(
            starts,
            inside,
            goals,
            goal,
            seeds[0],
            max_words=self.max_words,
            alpha=self.alpha,
            beta=self.beta,
        )
        index = tf.range(shape[1])
        spanned = (index >= begins[..., None]) & (index < ends[..., None])
        candidates = inside & ~special
        selected = tf.reduce_any(spanned, 1) & candidates
        left = goals - tf.reduce_sum(tf.cast(selected, tf.int32), 1)
        selected |= select_tokens(candidates & ~selected, left, goal, seeds[1])
        order = draw_order(shape, seeds[2], self.perm_size)
        return order_ranks(order, selected, special), selected

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "special_token_ids": self.special_token_ids,
            "pad_token_id": self.pad_token_id,
            "mask_selection_length": self.mask_selection_length,
            "reuse_length": self.reuse_length,
            "perm_size": self.perm_size,
            "max_words": self.max_words,
            "alpha": self.alpha,
            "beta": self.beta,
            "starts_word": self.starts_word,
            "seed": self.seed,
        }
