"""Batches of pairs of texts in an order that depends only on seed and pass."""

from collections.abc import Callable
from typing import Any

from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pairs.mixtures import TaskMixture
from keras_bertfam.layers.data.pairs.text_to_text import as_example, pairs_of
from keras_bertfam.layers.data.pipeline_warnings import enough_of
from keras_bertfam.layers.data.pipelines import (
    PARALLEL,
    check_at_least,
    checked_batch_size,
    ready_to_iterate,
    remember_count,
)
from keras_bertfam.layers.data.rows.batches import fill_up
from keras_bertfam.layers.data.seeding import batch_seed, seeded_passes, shuffle
from keras_bertfam.types import TFDataset, TFTensor


@as_written
def pair_batches(
    preprocessor: Any,
    data: Any,
    make_rows: Callable[[dict[str, TFTensor]], dict[str, TFTensor]],
    batch_size: int | None = None,
    training: bool = True,
    shuffle_buffer: int = 10_000,
    pack: Callable[[TFDataset, int, TFTensor], TFDataset] | None = None,
) -> TFDataset:
    """Make batches of rows of pairs, beginning at the preprocessor's `position`.

    Args:
        preprocessor: a preprocessor with `seed`, `position` and `tokenizer`.
        data: what `pairs_of` takes.
        make_rows: function of a batch of pairs, as `as_pairs` gives them, to the dict
            that `PairLayout.rows` gives.
        batch_size: int or `None`. Rows of a batch.
        training: bool. Whether to shuffle the pairs and fill up the last batch of a
            pass.
        shuffle_buffer: int. How many pairs are shuffled at a time. A `TaskMixture`
            needs no buffer.
        pack: function of the pairs of a pass, the number of rows of a batch and a seed,
            to batches of rows that hold several pairs; or `None`.

    Returns:
        A `tf.data.Dataset` of `(x, y, sample_weight)`.

    Raises:
        ValueError: for an argument out of its range, or data that isn't pairs of texts.
    """
    size = checked_batch_size(batch_size)
    check_at_least(0, shuffle_buffer=shuffle_buffer)
    pairs, seed = pairs_of(data), preprocessor.seed

    def batches(epoch):
        order = batch_seed(seed, epoch, -1)
        chosen = pairs
        if isinstance(pairs, TaskMixture):
            chosen = pairs.pairs(order)
        elif training and shuffle_buffer:
            chosen = shuffle(pairs, shuffle_buffer, order)
        if pack is not None:
            return pack(chosen, size, batch_seed(seed, epoch, -2))
        return chosen.batch(size).map(make_rows, **PARALLEL)

    def finish(_, rows):
        if training:
            rows = fill_up(rows, size, preprocessor.tokenizer.pad_token_id)
        return as_example(rows)

    position = preprocessor.position if training else None
    use = "training" if training else "evaluation"
    with preprocessor.counted(use, enough_of(pairs)):
        passes = seeded_passes(batches, seed, position)
    made = ready_to_iterate(passes.map(finish, **PARALLEL))
    known = int(pairs.cardinality())
    if known < 0 or pack is not None:
        return made
    return remember_count(made, -(-known // size))
