"""Marking the phrases and entities of a list in texts, in the graph."""

import os
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.documents.marked_spans import (
    MARKS,
    check_kind,
    without_marks,
)
from keras_bertfam.tokenizers.texts import LINE_SPACE, split_units, to_utf8
from keras_bertfam.types import Path, TFTensor

_AT_ONCE = 100_000  # entries that are read together
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, so that products lose no bit
_LONGEST = 32


class Lexicon:
    """Marks the entries of a list in texts: use it with `Dataset.map`.

    Texts are searched from left to right. If several entries begin at the same place,
    the longest is marked. Entries are matched word by word, so "York" isn't found in
    "Yorkshire"; in scripts without spaces, such as Chinese, character by character. All
    white space within a line counts as equal. Spans that are already marked with the
    same kind stay as they are.

    A million entries take some seconds to read, and 8 MB of memory. Texts are looked up
    by 63-bit fingerprints of their words. The probability of a wrong match in a text of
    a billion words is less than 1 in 1000.

    Args:
        entries: path of a text file with an entry per line, in UTF-8, or strings.
        kind: `"entity"` or `"phrase"`. It chooses the marks. Defaults to `"entity"`.
        ignore_case: bool. Whether "apple" is found where "Apple" is listed. Defaults
            to `False`.

    Call arguments:
        texts: string tensor of shape `(batch,)` or `()`, in UTF-8.

    Returns:
        The string tensor with marks, see `KnowledgeMasking`.

    Raises:
        ValueError: for another `kind`, an empty list, and for an entry that is empty,
            has marks, or has more than 32 words or characters.

    Example:

    ```python
    mark = keras_bertfam.layers.Lexicon(["New York", "New York City"])
    mark(["He left New York City, not York."])  # ["He left ⟦New York City⟧, not York."]
    ```

    Reference: [Sun et al., 2019](https://arxiv.org/abs/1904.09223), section 3.2.
    """

    def __init__(
        self,
        entries: Path | Iterable[str],
        kind: str = "entity",
        ignore_case: bool = False,
    ) -> None:
        self.kind = check_kind(kind)
        self.ignore_case = ignore_case
        if isinstance(entries, (str, os.PathLike)):
            lines = _lines(entries)
        else:
            lines = list(entries)
        if not lines:
            raise ValueError("`entries` must not be empty. Received: no entries.")
        with tf.device("CPU:0"):
            found = [
                self._read(lines[i : i + _AT_ONCE], i)
                for i in range(0, len(lines), _AT_ONCE)
            ]
        numbers, sizes = (np.concatenate(x) for x in zip(*found, strict=True))
        # A table for each length: texts are looked up once in each.
        self._tables = {
            int(size): np.unique(numbers[sizes == size]) for size in np.unique(sizes)
        }

    def _read(self, lines, offset):
        """Read the numbers of entries and their lengths, as arrays."""
        texts = tf.constant(lines)
        if tf.reduce_any(without_marks(texts) != texts):
            raise ValueError(
                "`entries` must not contain marks, which are put around the entries "
                f"found in texts. Received: an entry with one of "
                f"{sorted(MARKS.values())}."
            )
        units = split_units(to_utf8(texts))
        units = ragged.keep_in_rows(units, ~_is_space(units.flat_values))
        sizes = units.row_lengths().numpy()
        for wrong, expected in (
            (sizes == 0, "not be empty"),
            (sizes > _LONGEST, f"have at most {_LONGEST} words or characters"),
        ):
            if wrong.any():
                at = int(np.argmax(wrong))
                raise ValueError(
                    f"`entries` must {expected}. Received: {lines[at]!r} in line "
                    f"{offset + at + 1}."
                )
        numbers = np.zeros(len(lines), "int64")
        values, starts = self._numbers(units.flat_values).numpy(), units.row_starts()
        for k in range(int(sizes.max())):
            longer = sizes > k
            numbers[longer] = (
                numbers[longer] * _FACTOR + values[starts.numpy()[longer] + k]
            )
        return numbers, sizes

    def _numbers(self, units):
        """Look up a number for each word."""
        if self.ignore_case:
            units = tf.strings.lower(units, encoding="utf-8")
        return tf.strings.to_hash_bucket_fast(units, (1 << 63) - 1)

    @as_written
    def __call__(self, texts: TFTensor) -> TFTensor:
        with tf.device("CPU:0"):
            texts = tf.convert_to_tensor(texts)
            pieces = split_units(to_utf8(tf.reshape(texts, [-1])))
            opened, closed = self._found(pieces)
            opening, closing = MARKS[self.kind]
            marked = tf.where(opened, opening, "") + pieces.flat_values
            marked += tf.where(closed, closing, "")
            marked = tf.strings.reduce_join(pieces.with_flat_values(marked), axis=-1)
            return tf.reshape(marked, tf.shape(texts))

    def _found(self, pieces):
        """Tell which pieces entries begin with, and which they end with."""
        opening, closing = MARKS[self.kind]
        flat = pieces.flat_values
        others = "".join("".join(m) for k, m in MARKS.items() if k != self.kind)
        skipped = _is_space(flat) | tf.strings.regex_full_match(flat, f"[{others}]")
        place = tf.where(~skipped)[:, 0]
        words = tf.gather(flat, place)
        rows = tf.gather(ragged.row_ids(pieces), place)
        # Spans between marks of this kind stay as they are, and so do the marks.
        opens, closes = (tf.cast(words == m, tf.int32) for m in (opening, closing))
        depth = tf.cumsum(opens - closes, exclusive=True)
        first = tf.searchsorted(rows, rows)
        inside = depth > tf.gather(depth, first)
        sizes = tf.where(inside, 0, self._longest(words, rows))
        begins = _first_come(sizes)
        ends = ragged.keep(tf.range(tf.size(sizes)) + sizes - 1, begins)
        begins = tf.where(begins)[:, 0]

        def at(index):
            where = tf.gather(place, index)[:, None]
            count = tf.shape(flat, tf.int64)
            return tf.scatter_nd(where, tf.ones_like(where[:, 0], tf.bool), count)

        return at(begins), at(ends)

    def _longest(self, words, rows):
        """Measure the longest entry that begins at each word, or 0."""
        # Example: the entries `New York` and `York`, and the words `in New York City .`
        # give 0, 2, 1, 0, 0. Each turn adds a word: the number of `New York` is the
        # number of `New`, times a factor, plus the number of `York`.
        values = self._numbers(words)
        numbers = tf.zeros_like(values)
        found = tf.zeros_like(rows, tf.int32)
        for size in range(1, max(self._tables) + 1):
            numbers = numbers * _FACTOR + _shifted(values, size - 1, 0)
            if size in self._tables:
                table = tf.constant(self._tables[size])
                at = tf.minimum(tf.searchsorted(table, numbers), tf.size(table) - 1)
                hit = tf.gather(table, at) == numbers
                hit &= _shifted(rows, size - 1, -1) == rows
                found = tf.where(hit, size, found)
        return found


def _lines(path):
    with open(path, encoding="utf-8-sig") as file:
        return file.read().removesuffix("\n").split("\n")


def _is_space(units):
    return tf.strings.regex_full_match(units, f"[{LINE_SPACE}]+")


def _shifted(values, count, fill):
    """Shift values to the left by `count` places, and put `fill` at the end."""
    return tf.pad(values, [[0, count]], constant_values=fill)[count:]


def _first_come(sizes):
    """Take intervals from left to right without overlap; tell where they begin."""
    # Example: sizes 2, 3, 0, 2, 1. The interval at 0 is taken, and covers 1. No
    # interval begins at 2. The interval at 3 is taken, and covers 4.
    count = tf.size(sizes)
    following = tf.range(count) + tf.maximum(sizes, 1)
    following = tf.concat([tf.minimum(following, count), [count]], 0)
    visited = tf.concat([[1], tf.zeros([count], tf.int32)], 0)

    def turn(visited, following, reach):
        more = tf.math.unsorted_segment_max(visited, following, count + 1)
        visited = tf.maximum(visited, more)
        return visited, tf.gather(following, following), 2 * reach

    state = (visited, following, tf.constant(1))
    visited, _, _ = tf.while_loop(lambda *s: s[2] <= count, turn, state)
    return (visited[:-1] > 0) & (sizes > 0)
