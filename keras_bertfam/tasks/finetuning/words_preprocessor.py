"""Make rows of words whose first pieces a task reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.user_inputs import as_strings
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    LabelledPreprocessor,
)
from keras_bertfam.tokenizers.pipeline_ops import stand_in_id, word_prefix
from keras_bertfam.types import TFDataset, TFRagged, TFTensor

BY_WORD = ("word_positions", "word_mask")


class WordsPreprocessor(LabelledPreprocessor):
    """Base class of the preprocessors of tasks that label words.

    Args:
        *args: arguments of `LabelledPreprocessor`.
        **kwargs: other arguments of `LabelledPreprocessor`.
    """

    single_rank = 1
    one_class_each = False

    def as_tensors(self, x: Any) -> Any:
        if isinstance(x, tf.RaggedTensor):
            x = x.to_tensor("")
        if not isinstance(x, (list, tuple)):
            return as_strings(x, rank=2)
        if all(isinstance(word, (str, bytes)) for word in x):
            return as_strings(checked_words(list(x), 0), rank=2)
        sentences = [checked_words(words, row) for row, words in enumerate(x)]
        return as_strings(filled_up(sentences, ""), rank=2)

    @property
    def _budget(self):
        return self.sequence_length - self._layout.specials(1)

    def features(self, x: Any) -> dict[str, TFTensor]:
        given = ragged.keep_in_matrix(x, x != "")
        words = self._most(given)
        prefix = word_prefix(self.tokenizer)
        pieces = _at_least_one(
            self.tokenize(prefix + words.flat_values), stand_in_id(self.tokenizer)
        )
        # Where each word's pieces begin, and where its row's pieces begin.
        offsets = tf.cast(pieces.row_splits, tf.int32)
        begins = tf.gather(
            offsets, tf.gather(words.row_starts(), ragged.row_ids(words))
        )
        places = offsets[:-1] - begins
        budget = self._budget
        tokens = ragged.merge_inner(words.with_values(pieces))
        row = self.lay_out([ragged.head(tokens, budget)])
        fits = places < budget
        inside = words.with_values(fits)
        self.count_cut(given, inside)
        places = tf.where(fits, places + self._layout.first, 0)
        return {**row, "word_positions": words.with_values(places), "word_mask": inside}

    def count_cut(self, given: TFRagged, inside: TFRagged) -> None:
        """Count sentences with words that begin beyond their rows."""
        seen = tf.reduce_sum(tf.cast(inside, tf.int64), 1)
        count_cut(seen < given.row_lengths(), "sentences")

    def target_weights(
        self, x: dict[str, TFTensor], sample_weight: TFTensor
    ) -> TFTensor:
        weights = tf.cast(sample_weight, tf.float32)
        mask = tf.cast(x["word_mask"], tf.float32)
        if weights.shape.rank == 1:
            weights = tf.gather(weights, ragged.row_ids(mask))
            return mask.with_values(mask.values * weights)
        return mask.with_values(mask.values * self._most(weights).values)

    def as_weights(self, sample_weight: Any) -> TFTensor:
        if isinstance(sample_weight, tf.RaggedTensor):
            sample_weight = sample_weight.to_list()
        if isinstance(sample_weight, (list, tuple)) and all(
            map(np.iterable, sample_weight)
        ):
            sample_weight = filled_up(sample_weight, 0.0)
        return tf.convert_to_tensor(sample_weight)

    def batch(self, rows: TFDataset, size: int) -> TFDataset:
        # Rows of unequal numbers of words are filled up with "" and 0.
        return rows.padded_batch(size)

    def _most(self, words):
        """Cut off the words (or their labels) that can't fit into any row."""
        return words[:, : self.sequence_length]

    @as_written
    def inputs(
        self,
        x: Any,
        batch_size: int = 32,
        steps: int | None = None,
        any_length: bool = False,
    ) -> tuple[TFDataset, np.ndarray]:
        # The width is that of the given words, so that batches of outputs can be
        # joined.
        x = self.as_tensors(x)
        width = x.shape[1]

        def widen(batch):
            words = {name: batch[name][:, :width] for name in BY_WORD}
            missing = [
                [0, 0],
                [0, width - tf.shape(words["word_mask"])[1]],
            ]
            padded = {name: tf.pad(value, missing) for name, value in words.items()}
            return {**batch, **padded}

        batches, places = super().inputs(x, batch_size, steps, any_length)
        return batches.map(widen), places


def checked_words(words: Any, row: int, name: str = "x") -> list[str]:
    """List the words of a row, or raise a `ValueError` for what isn't words."""
    given = words if isinstance(words, (list, tuple, np.ndarray)) else [None]
    if not all(isinstance(word, (str, bytes)) and word for word in given):
        raise ValueError(
            f"`{name}` must have words, strings that aren't empty. "
            f"Received in row {row}: {words!r}."
        )
    return list(words)


def filled_up(rows: Sequence[Sequence[Any]], blank: Any) -> np.ndarray:
    """Fill up rows of unequal length to an array of at least one column."""
    width = max([1, *map(len, rows)])
    dtype: Any = {str: object, int: "int32", float: "float32"}[type(blank)]
    filled = np.full((len(rows), width), blank, dtype)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled


def of_words(values: TFTensor, given: TFTensor, name: str) -> TFRagged:
    """Keep the values of words, and drop those that fill rows up. Works in a graph.

    Args:
        values: tensor `(batch, words)`, possibly with more axes.
        given: bool tensor `(batch, words)`: which words there are.
        name: str. The name of `values` in the error.

    Raises:
        tf.errors.InvalidArgumentError: for another shape.
    """
    check = tf.debugging.assert_equal(
        tf.shape(values)[:2],
        tf.shape(given),
        f"`{name}` must have one for each word of `x`. Received: another shape.",
    )
    with tf.control_dependencies([check] if check is not None else []):
        return ragged.keep_in_matrix(tf.identity(values), given)


def _at_least_one(pieces, stand_in):
    """Give words without pieces a piece that stands in."""
    empty = tf.equal(pieces.row_lengths(), 0)
    count = tf.reduce_sum(tf.cast(empty, tf.int32))
    return ragged.fill_rows(pieces, empty, tf.fill([count], stand_in))


def check_by_word(x: Sequence[Any], y: Sequence[Any]) -> None:
    """Raise a `ValueError` unless there is a label for each word of each row."""
    if len(x) != len(y):
        raise ValueError(
            "`y` must have a row of labels for each row of words. Received: "
            f"{len(y)} rows of labels and {len(x)} of words."
        )
    for row, (words, labels) in enumerate(zip(x, y, strict=True)):
        if not isinstance(labels, (list, tuple, np.ndarray)):
            raise ValueError(
                "`y` must be lists of labels, one for each word. Received in row "
                f"{row}: {labels!r}."
            )
        if len(words) != len(labels):
            raise ValueError(
                "`y` must have a label for each word. Received: "
                f"{len(labels)} labels for the {len(words)} words of row {row}."
            )
