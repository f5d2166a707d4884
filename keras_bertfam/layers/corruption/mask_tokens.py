"""The layer that masks token ids for masked language models."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_graph
from keras_bertfam.layers.corruption.replacement import (
    add_up,
    check_ids,
    check_rates,
    fill_slots,
    group_neighbours,
    make_draw,
    replace_tokens,
    whole_groups,
)
from keras_bertfam.layers.corruption.selection import (
    count_selections,
    is_any,
    most_selections,
)
from keras_bertfam.layers.corruption.shuffled_ngrams import shuffle_ngrams
from keras_bertfam.layers.corruption.similar_words import (
    SimilarTokens,
    SimilarWordTable,
)
from keras_bertfam.layers.corruption.strategies import MaskingStrategy, get_strategy
from keras_bertfam.layers.data.base import (
    PreprocessingLayer,
    as_ids_like,
    as_token_ids,
)
from keras_bertfam.layers.data.pipeline_warnings import MaskCounter
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.data.seeding import (
    content_seed,
    fold,
    random_uniform,
    split_seed,
)
from keras_bertfam.types import Config, TFTensor

# Arguments of the constructor that become attributes unchanged.
_ARGUMENTS = (
    "vocabulary_size mask_token_id pad_token_id unselectable_token_ids "
    "mask_selection_rate mask_selection_length mask_token_rate random_token_rate "
    "random_token_ids random_token_weights starts_word replacement_unit "
    "selections_per_row return_span_bounds shuffle_slots similar_tokens shuffle_rate "
    "shuffle_length unshuffled_token_ids seed"
).split()


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class MaskTokens(PreprocessingLayer):
    """Masks tokens in dense batches of ids, and gives the targets.

    Use it inside `Dataset.map`, after batching. The same ids and seed always give the
    same masks: the layer uses no global generator.

    The `strategy` says which positions are selected, and `selections_per_row` how
    many. Let `r` be the `mask_selection_rate`, `n` the tokens of a row without padding
    but with special tokens, and `m` its selectable tokens:

    - `"bert"`: `max(1, round(n * r))`, half rounding to even. So a rate of 0 still
      selects one token.
    - `"fairseq"`: `int(n * r + u)`, with `u` uniform in [0, 1).
    - `"spanbert"`: `ceil(m * r)`.

    A row never gets more selections than `mask_selection_length`, or than it has
    selectable tokens.

    Args:
        vocabulary_size: int. Number of token ids.
        mask_token_id: int. The id put in place of masked tokens.
        pad_token_id: int. The id of padding, never selected. Defaults to `0`.
        unselectable_token_ids: sequence of ints. Ids that are never selected:
            usually those of [CLS] and [SEP]. Defaults to none.
        mask_selection_rate: float in [0, 1]. Defaults to `0.15`.
        mask_selection_length: int or `None`. The number of slots in the outputs, which
            is the most selections of a row. Defaults to the selections of a full row;
            the length of rows must be static for that.
        mask_token_rate: float. Share of the selected tokens replaced by the
            mask token. Defaults to `0.8`.
        random_token_rate: float. Share of the selected tokens replaced by a
            random one; the rest are kept. Defaults to `0.1`.
        random_token_ids: sequence of ints or `None`. The ids that random
            replacements are drawn from, uniformly. Defaults to the whole
            vocabulary, as in BERT.
        random_token_weights: sequence of floats or `None`. How likely each of the ids
            above is drawn, for example their counts in the corpus; they need not sum
            to 1. Defaults to all equal.
        starts_word: sequence of `vocabulary_size` booleans, or `None`. Whether
            a token starts a word; without it every token does. A word never
            extends across a padding or unselectable token.
        strategy: a strategy such as `GeometricSpans()`, or the name of one with
            its defaults: `"tokens"` (`IndependentTokens`), `"smoothed_tokens"`
            (`SmoothedTokens`), `"words"` (`WholeWords`), `"ngrams"` (`NGrams`),
            `"ngram_windows"` (`NGramWindows`), `"spans"` (`GeometricSpans`) or
            `"given_spans"` (`GivenSpans`). Your own strategy has a name too, see
            `MaskingStrategy`. Defaults to `"words"` if `starts_word` is given, else to
            `"tokens"`.
        replacement_unit: the unit whose tokens are all masked, all replaced by random
            tokens, or all kept: `"token"`, `"word"` (for `GivenSpans` a given span), or
            `"span"` (a run of neighbouring selections). Each token of a unit gets its
            own random id. Defaults to `"token"`.
        selections_per_row: `"bert"`, `"fairseq"` or `"spanbert"`, see above. Defaults
            to `"bert"`.
        return_span_bounds: bool. Whether to add `span_bounds` to the outputs.
            Defaults to `False`.
        shuffle_slots: bool. Whether the selections of a row are in random order, for
            objectives that predict them one after another. Defaults to `False`.
        similar_tokens: list of pairs, or `None`. A pair is the ids of a word, and a
            list of similar words, each with equally many ids. A word that would become
            masks becomes one of its similar words instead. A word without any becomes
            random tokens other than `mask_token_id`. The `replacement_unit` must be
            `"word"` or `"span"`.
        shuffle_rate: float in [0, 1]. The share of n-grams of unselected neighbours
            that are put into random order. Their tokens become selections as well, in
            additional slots. Defaults to `0.0`; StructBERT has `0.05`.
        shuffle_length: int. Tokens of a shuffled n-gram. Defaults to `3`.
        unshuffled_token_ids: sequence of ints. Ids that stay where they are. Padding
            and unselectable tokens stay in any case. Defaults to none.
        seed: int. Used in calls without a seed. Defaults to `0`.

    Call arguments:
        token_ids: integer tensor of shape `(batch, length)` or `(length,)`.
        seed: integer tensor of shape `(2,)`, such as one of `seeded_passes`.
            Defaults to a hash of `token_ids` and the layer's own seed.
        span_ids: integer tensor of the shape of `token_ids`. Neighbouring tokens with
            the same number, except 0, are a span. Strategies of words take a span as a
            word. `GivenSpans` needs it.
        sequence_ids: integer tensor of that shape: 1, 2, ... for the sequences of a
            row, and 0 for padding. Words, n-grams and spans stay within a sequence.

    Returns:
        A dict of `tf.Tensor`s, without the batch axis if there was none:

        - `token_ids`, int32 `(batch, length)`: the masked ids;
        - `mask_positions`, int32 `(batch, mask_selection_length)`: the selections,
          ascending unless `shuffle_slots`;
        - `mask_ids`, int32 of that shape: the original ids;
        - `mask_weights`, float32 of that shape: 1 for a selection, and 0 for an empty
          slot, whose position and id are 0;
        - `span_bounds`, only with `return_span_bounds`, int32 `(batch,
          mask_selection_length, 2)`: the first and last position of the run of
          selections that each selection is in.

        With a `shuffle_rate` there are more slots, for the tokens of shuffled n-grams.

    Raises:
        ValueError: If an argument is out of its range, if `token_ids` isn't a
            dense integer tensor of rank 1 or 2, or if its length isn't static
            and `mask_selection_length` is `None`.

    Example:

    ```python
    masker = keras_bertfam.layers.MaskTokens(
        vocabulary_size=30522, mask_token_id=103, unselectable_token_ids=[101, 102]
    )
    masker([[101, 7592, 1010, 2026, 3899, 102, 0, 0]], seed=[0, 1])
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1;
        [Joshi et al., 2019](https://arxiv.org/abs/1907.10529), section 3.1;
        [Cui et al., 2020](https://arxiv.org/abs/2004.13922), section 3;
        [Wang et al., 2019](https://arxiv.org/abs/1908.04577), section 2.
    """

    # Features of a row that the call takes besides `token_ids`.
    row_arguments = ("span_ids", "sequence_ids")

    def __init__(
        self,
        vocabulary_size: int,
        mask_token_id: int,
        pad_token_id: int = 0,
        unselectable_token_ids: Sequence[int] = (),
        mask_selection_rate: float = 0.15,
        mask_selection_length: int | None = None,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
        random_token_ids: Sequence[int] | None = None,
        random_token_weights: Sequence[float] | None = None,
        starts_word: Sequence[bool] | None = None,
        strategy: MaskingStrategy | Config | str | None = None,
        replacement_unit: Literal["token", "word", "span"] = "token",
        selections_per_row: Literal["bert", "fairseq", "spanbert"] = "bert",
        return_span_bounds: bool = False,
        shuffle_slots: bool = False,
        similar_tokens: SimilarTokens | None = None,
        shuffle_rate: float = 0.0,
        shuffle_length: int = 3,
        unshuffled_token_ids: Sequence[int] = (),
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.mask_token_id = mask_token_id
        self.pad_token_id = pad_token_id
        self.unselectable_token_ids = [int(i) for i in unselectable_token_ids]
        self.mask_selection_rate = mask_selection_rate
        self.mask_selection_length = mask_selection_length
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self.random_token_ids = _optional_list(random_token_ids, int)
        self.random_token_weights = _optional_list(random_token_weights, float)
        self.starts_word = _optional_list(starts_word, bool)
        default = "tokens" if starts_word is None else "words"
        self.strategy = get_strategy(default if strategy is None else strategy)
        self.replacement_unit = replacement_unit
        self.selections_per_row = selections_per_row
        self.return_span_bounds = return_span_bounds
        self.shuffle_slots = shuffle_slots
        self.similar_tokens: Any = None
        if similar_tokens is not None:
            self.similar_tokens = [
                [[*map(int, ids)], [[*map(int, other)] for other in others]]
                for ids, others in similar_tokens
            ]
        self.shuffle_rate = shuffle_rate
        self.shuffle_length = shuffle_length
        self.unshuffled_token_ids = [int(i) for i in unshuffled_token_ids]
        self.seed = seed
        self._check_arguments()
        self.strategy.check(vocabulary_size, self.starts_word)
        self._starts_word_table = np.array(self.starts_word or [], bool)
        self._draw = make_draw(*self._drawn())
        self._similar = None
        if self.similar_tokens is not None:
            self._similar = SimilarWordTable(self.similar_tokens, vocabulary_size)
        name = self.strategy.name or type(self.strategy).__name__
        self._share = MaskCounter(f"strategy={name!r}")

    def _drawn(self):
        """Give the ids that random replacements are drawn from, and their weights."""
        ids, weights = self.random_token_ids, self.random_token_weights
        if self.similar_tokens is None:
            return ids or self.vocabulary_size, weights
        ids = [*range(self.vocabulary_size)] if ids is None else ids
        fits = weights is None or len(weights) == len(ids)
        kept = [k for k, i in enumerate(ids) if i != self.mask_token_id or not fits]
        if not kept:
            raise ValueError(
                "With `similar_tokens`, `random_token_ids` must contain an id other "
                f"than the mask token's. Received: {ids}."
            )
        weights = [weights[k] for k in kept] if weights and fits else weights
        return [ids[k] for k in kept], weights

    def _check_arguments(self):
        if self.similar_tokens is not None and self.replacement_unit == "token":
            raise ValueError(
                '`replacement_unit` must be "word" or "span" with `similar_tokens`. '
                "Received: 'token'."
            )
        check_rates(
            self.mask_selection_rate, self.mask_token_rate, self.random_token_rate
        )
        check_at_least(1, mask_selection_length=self.mask_selection_length)
        check_at_least(2, shuffle_length=self.shuffle_length)
        if self.shuffle_rate and self.return_span_bounds:
            raise ValueError(
                "`return_span_bounds` must be `False` with a `shuffle_rate`, because "
                "shuffled tokens are selections that form no span. Received: "
                f"shuffle_rate={self.shuffle_rate}."
            )
        names = (
            "mask_token_id",
            "unselectable_token_ids",
            "random_token_ids",
            "unshuffled_token_ids",
        )
        ids = {name: getattr(self, name) for name in names}
        check_ids(self.vocabulary_size, **ids)
        if self.random_token_ids == []:
            raise ValueError("`random_token_ids` must not be empty.")
        for name, known in (
            ("selections_per_row", ("bert", "fairseq", "spanbert")),
            ("replacement_unit", ("token", "word", "span")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"`{name}` must be one of {known}. "
                    f"Received: {getattr(self, name)!r}."
                )
        words = self.starts_word
        if words is not None and len(words) != self.vocabulary_size:
            raise ValueError(
                f"`starts_word` must have vocabulary_size={self.vocabulary_size} "
                f"elements. Received: {len(words)}."
            )

    def call(
        self,
        token_ids: TFTensor,
        seed: TFTensor | None = None,
        span_ids: TFTensor | None = None,
        sequence_ids: TFTensor | None = None,
    ) -> dict[str, TFTensor]:
        ids = as_token_ids(token_ids)
        if ids.shape.rank not in (1, 2):
            raise ValueError(
                "`token_ids` must have the shape `(batch, length)` or `(length,)`. "
                f"Received: shape={ids.shape}."
            )
        others = as_ids_like(ids, span_ids=span_ids, sequence_ids=sequence_ids)
        if seed is None:
            seed = content_seed(ids, self.seed)
        seed = tf.ensure_shape(tf.cast(seed, tf.int64), [2])
        if ids.shape.rank == 2:
            return self._mask(ids, seed, **others)
        others = {name: x[None] for name, x in others.items()}
        return {name: x[0] for name, x in self._mask(ids[None], seed, **others).items()}

    def _mask(self, ids, seed, span_ids=None, sequence_ids=None):
        slots = self._num_slots(ids.shape[1])
        seeds = split_seed(seed, 3)
        # Padding between the sequences of a row keeps words and spans apart.
        rows = ids
        if sequence_ids is not None:
            borders = count_borders(sequence_ids)
            rows = set_apart(ids, borders, self.pad_token_id)
            span_ids = None if span_ids is None else set_apart(span_ids, borders, 0)
        where, starts, begins = self._select(rows, span_ids, slots, seeds)
        groups, first, last = group_neighbours(where)
        words = groups
        if self.replacement_unit == "word" or self._similar is not None:
            # The units of some strategies are single tokens.
            words, _, _ = group_neighbours(where, tf.gather_nd(starts & begins, where))
        if self.replacement_unit == "word":
            groups = words
        if self._similar is not None:
            ends = tf.pad(begins[:, 1:], [[0, 0], [0, 1]], constant_values=True)
            whole = whole_groups(
                words, tf.gather_nd(begins, where), tf.gather_nd(ends, where)
            )
        if sequence_ids is not None:
            moved = tf.gather_nd(set_apart(borders, borders, 0), where)
            first, last = first - moved, last - moved
            where -= tf.pad(tf.cast(moved, tf.int64)[:, None], [[0, 0], [1, 0]])
        originals = tf.gather_nd(ids, where)
        masks = self.mask_token_id
        if self._similar is not None:
            others = self._draw(tf.shape(originals), fold(seed, 4))
            masks = self._similar.draw(originals, words, others, fold(seed, 5))
            masks = tf.where(whole, masks, others)  # a part of a word has no similar
        replaced = replace_tokens(
            originals,
            None if self.replacement_unit == "token" else groups,
            seeds[2],
            masks,
            self._draw,
            self.mask_token_rate,
            self.random_token_rate,
        )
        shape, count = tf.shape(ids), tf.shape(ids, tf.int64)[0]
        new_ids = ids + add_up(where, replaced - originals, shape)
        values = [tf.cast(where[:, 1], tf.int32), originals, first, last]
        if self.shuffle_rate:
            new_ids, where = self._shuffle(ids, new_ids, where, seed, sequence_ids)
            more = self.shuffle_length * self._most_shuffled(ids.shape[1])
            slots = max(slots, min(slots + more, ids.shape[1]))
            values = [tf.cast(where[:, 1], tf.int32), tf.gather_nd(ids, where)]
        weights, values = fill_slots(where, values, count, slots)
        if self.shuffle_slots:
            # Subtracting the weights (1 for a selection) keeps empty slots at the end.
            keys = random_uniform(tf.shape(weights), fold(seed, 3)) - weights
            order = tf.argsort(keys, axis=1)
            weights, *values = (
                tf.gather(x, order, axis=1, batch_dims=1) for x in (weights, *values)
            )
        positions, targets, *bounds = values
        outputs = {
            "token_ids": new_ids,
            "mask_positions": positions,
            "mask_ids": targets,
            "mask_weights": weights,
        }
        if self.return_span_bounds:
            outputs["span_bounds"] = tf.stack(bounds, 2)
        return outputs

    def _shuffle(self, ids, new_ids, where, seed, sequence_ids):
        """Shuffle n-grams without selections; give the ids and all selections."""
        selected = add_up(where, tf.ones_like(where[:, 0]), tf.shape(ids)) > 0
        fixed = (ids == self.pad_token_id) | selected
        fixed |= is_any(ids, self.unselectable_token_ids)
        fixed |= is_any(ids, self.unshuffled_token_ids)
        new_ids, moved = shuffle_ngrams(
            new_ids,
            ~fixed,
            self.shuffle_rate,
            self.shuffle_length,
            self._most_shuffled(ids.shape[1]),
            fold(seed, 6),
            sequence_ids,
        )
        return new_ids, tf.where(selected | moved)

    def _most_shuffled(self, length):
        if length is None:
            raise ValueError(
                "The length of `token_ids` must be static with a `shuffle_rate`. "
                "Received: None."
            )
        side_by_side = -(-length // self.shuffle_length)
        return min(math.ceil(length * self.shuffle_rate), side_by_side)

    def _select(self, ids, span_ids, slots, seeds):
        """Select tokens: their rows and positions, and where units and words start."""
        padding = ids == self.pad_token_id
        candidates = ~(padding | is_any(ids, self.unselectable_token_ids))
        starts = tf.ones_like(candidates)
        if self.starts_word is not None:
            starts = tf.gather(self._starts_word_table, ids)
        units = as_graph(self.strategy.units)
        all_candidates = candidates
        _, words = MaskingStrategy.units(
            self.strategy, ids, candidates, starts, span_ids
        )
        words |= ~candidates
        found = units(ids, candidates, starts, span_ids)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise ValueError(
                f"`units` of {type(self.strategy).__name__} must return two tensors, "
                f"`candidates` and `starts`. Received: {type(found).__name__}."
            )
        candidates, starts = found
        counts = asked = self._count(padding, candidates, slots, seeds[0])
        if candidates is not all_candidates:
            asked = self._count(padding, all_candidates, slots, seeds[0])
        selected = as_graph(self.strategy.select)(
            ids, candidates, starts, counts, slots, seeds[1]
        )
        where = tf.where(selected)
        asked = tf.reduce_sum(asked) if self.strategy.uses_rate else 0
        self._share.count(asked, tf.shape(where)[0])
        return where, starts, words

    def _count(self, padding, candidates, slots, seed):
        """Count how many tokens to select in each row."""
        lengths, selectable = (
            tf.reduce_sum(tf.cast(x, tf.int32), 1) for x in (~padding, candidates)
        )
        counts = count_selections(
            lengths, selectable, self.mask_selection_rate, self.selections_per_row, seed
        )
        return tf.minimum(counts, slots)

    def _num_slots(self, length):
        if self.mask_selection_length is not None:
            return self.mask_selection_length
        if length is None:
            raise ValueError(
                "`mask_selection_length` must be given if the length of `token_ids` "
                "isn't static. Received: mask_selection_length=None."
            )
        selections = most_selections(
            length, self.mask_selection_rate, self.selections_per_row
        )
        return self.strategy.mask_selection_length(selections)

    def get_config(self) -> Config:
        config = super().get_config()
        config.update({name: getattr(self, name) for name in _ARGUMENTS})
        config["strategy"] = keras.saving.serialize_keras_object(self.strategy)
        return config


def _optional_list(values, kind):
    return None if values is None else [kind(v) for v in values]


def count_borders(sequence_ids: TFTensor) -> TFTensor:
    """Count how many sequences of a row end before each token.

    Args:
        sequence_ids: int32 tensor of shape `(batch, length)`.

    Returns:
        An int32 tensor of that shape.
    """
    # Example: sequence ids 1 1 2 2 3 give 0 0 1 1 2.
    changes = sequence_ids[:, 1:] != sequence_ids[:, :-1]
    return tf.cumsum(tf.pad(tf.cast(changes, tf.int32), [[0, 0], [1, 0]]), axis=1)


def set_apart(values: TFTensor, borders: TFTensor, fill: int) -> TFTensor:
    """Put `fill` between the sequences of rows, and at the ends of rows.

    Args:
        values: int32 tensor of shape `(batch, length)`.
        borders: what `count_borders` gives: how far each token moves.
        fill: int.

    Returns:
        An int32 tensor of shape `(batch, length + most borders of a row)`.
    """
    # Example: values 5 6 7 8, borders 0 0 1 1 and a fill of 9 give 5 6 9 7 8.
    rows, length = tf.unstack(tf.shape(values))
    width = length + tf.maximum(tf.reduce_max(borders), 0)
    place = tf.range(rows)[:, None] * width + tf.range(length) + borders
    # Faster than a scatter.
    apart = tf.math.unsorted_segment_sum(
        tf.reshape(values - fill, [-1]), tf.reshape(place, [-1]), rows * width
    )
    return tf.reshape(apart, [rows, width]) + fill
