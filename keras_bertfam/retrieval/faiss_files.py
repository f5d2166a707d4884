"""Checks of what a file of FAISS declares, before FAISS reads it.

FAISS trusts a file: lists may be of another file, which it then maps and writes to, and
numbers in it are addresses. So the five kinds of files that an index here has are read
with NumPy first, and whatever differs from what FAISS writes for them is refused.
"""

import os
import struct
from collections.abc import Callable

import numpy as np

from keras_bertfam.types import Path

# Of numbers that FAISS adds up; a NaN isn't less, either.
_MAX_NUMBER = 1e38
_MAX_LEVELS = 64  # of a graph; FAISS makes some 16
_FLAT, _LISTS = b"IxFI", b"ilar"
_HEADER = "<iqqq?i"  # width, count, two that nothing reads, learnt, metric


class _Cursor:
    """A place in a file whose vectors are given as arrays that lie in it."""

    def __init__(self, path: Path) -> None:
        self.size = os.path.getsize(path)
        self.at = 0
        self._bytes = np.memmap(path, np.uint8, "r") if self.size else b""

    def array(self, dtype: str | np.dtype, count: int) -> np.ndarray:
        stored = count * np.dtype(dtype).itemsize
        if stored > self.size - self.at:
            raise ValueError(
                f"It declares {stored} bytes at byte {self.at}, of which "
                f"{self.size - self.at} are there."
            )
        self.at += stored
        return np.frombuffer(self._bytes, dtype, count, self.at - stored)

    def vector(self, dtype: str) -> np.ndarray:
        return self.array(dtype, self.numbers("<Q")[0])

    def numbers(self, form: str) -> tuple:
        return struct.unpack(form, self.array("u1", struct.calcsize(form)).tobytes())

    def mark(self, *expected: bytes) -> bytes:
        found = self.array("u1", 4).tobytes()
        if found not in expected:
            raise ValueError(
                f"It must have {' or '.join(map(repr, expected))} at byte "
                f"{self.at - 4}, and nothing of another file. Received: {found!r}."
            )
        return found


def _expect(fits, what):
    if not fits:
        raise ValueError(f"It must have {what}.")


def _header(cursor):
    width, count, _, _, learnt, _ = cursor.numbers(_HEADER)
    _expect(width > 0 and count >= 0, "a width, and a number of vectors")
    _expect(learnt, "learnt all that it has to")
    return width, count


def _flat(cursor, width=None, count=None, largest=np.inf):
    cursor.mark(_FLAT)
    found = _header(cursor)
    width, count = width or found[0], found[1] if count is None else count
    _expect(found == (width, count), f"{count} vectors of the width {width}")
    stored = cursor.vector("<f4")
    _expect(len(stored) == width * count, f"as many numbers as {count} vectors do")
    _expect((np.abs(stored) < largest).all(), "finite vectors")


# FAISS's numbers of roundings, by the bits of a number, and how NumPy reads those.
_ROUNDINGS = {16: 4, 8: 0, 4: 1}
_DTYPES = {32: "<f4", 16: "<f2"}


def _size(bits, width):
    """Count the bytes of a vector."""
    return (bits * width + 7) // 8


def _stored(cursor, bits, width, count):
    dtype = np.dtype(_DTYPES.get(bits, "u1"))
    found = cursor.array(dtype, count * _size(bits, width) // dtype.itemsize)
    _expect(np.isfinite(found).all(), "finite vectors")


def _rounding(cursor, bits, width):
    kind, _, _, *sizes = cursor.numbers("<iifQQ")
    expected = (_ROUNDINGS[bits], width, _size(bits, width))
    _expect((kind, *sizes) == expected, f"{bits} bits for each of {width} numbers")
    learnt = cursor.vector("<f4")
    _expect(len(learnt) == (2 * width if bits < 16 else 0), "a range of each number")
    _expect((np.abs(learnt) < _MAX_NUMBER).all(), "finite ranges")


def _rounded(cursor, bits):
    cursor.mark(b"IxSQ")
    width, count = _header(cursor)
    _rounding(cursor, bits, width)
    stored = cursor.numbers("<Q")[0]
    _expect(stored == count * _size(bits, width), f"the bytes of {count} vectors")
    _stored(cursor, bits, width, count)


def _cells(cursor, bits=32):
    cursor.mark(b"IwFl" if bits == 32 else b"IwSq")
    width, count = _header(cursor)
    cells, _ = cursor.numbers("<QQ")
    _flat(cursor, width, cells, np.inf if bits == 32 else _MAX_NUMBER)
    (kind,) = cursor.numbers("<B")  # a table from ids to places, that is made anew
    _expect(kind < 2, "no table of pairs")
    cursor.vector("<i8")
    size = _size(bits, width)
    if bits < 32:
        _rounding(cursor, bits, width)
        _expect(cursor.numbers("<Q?") == (size, True), "differences from the cells")
    cursor.mark(_LISTS)
    _expect(cursor.numbers("<QQ") == (cells, size), "a list for each cell")
    if cursor.mark(b"full", b"sprs") == b"full":
        sizes = cursor.vector("<u8")
        _expect(len(sizes) == cells, "a size for each list")
    else:
        pairs = cursor.vector("<u8").reshape(-1, 2)
        _expect((np.diff(pairs[:, 0].astype("i8")) > 0).all(), "a list once")
        _expect((pairs[:, 0] < cells).all(), "sizes of its own lists")
        sizes = pairs[:, 1]
    _expect((sizes <= count).all() and sizes.sum() == count, f"{count} ids in lists")
    ids = [np.zeros(0, "<i8")]
    for listed in map(int, sizes):
        _stored(cursor, bits, width, listed)
        ids.append(cursor.array("<i8", listed))
    every = np.sort(np.concatenate(ids))
    _expect(np.array_equal(every, np.arange(count)), f"each id below {count} once")


def _graph(cursor):
    cursor.mark(b"IHNf")
    width, count = _header(cursor)
    chances, ends = cursor.vector("<f8"), cursor.vector("<i4").astype("i8")
    levels, offsets = cursor.vector("<i4"), cursor.vector("<u8")
    links = cursor.vector("<i4")
    entry, top, *_ = cursor.numbers("<5i")
    _expect(
        len(ends) == len(chances) + 1 <= _MAX_LEVELS
        and ends[0] == 0
        and (np.diff(ends) >= 0).all(),
        "a number of links for each level",
    )
    _expect(
        len(levels) == count and ((levels > 0) & (levels < len(ends))).all(),
        "levels of each vector",
    )
    expected = np.concatenate([[0], np.cumsum(ends[levels])])
    _expect(
        np.array_equal(offsets.astype("i8"), expected) and len(links) == expected[-1],
        "the links that its levels say",
    )
    _expect(((links >= -1) & (links < count)).all(), f"links to ids below {count}")
    if count:
        _expect(0 <= entry < count and 0 <= top == levels[entry] - 1, "a first vector")
        _expect(levels.max() - 1 == top, "a first vector of the highest level")
    for level in range(1, top + 1):  # a link goes to a vector that has its level
        starts = expected[:-1][levels > level]
        for k in range(ends[level], ends[level + 1]):
            to = links[starts + k]
            _expect((levels[to[to >= 0]] > level).all(), "links within a level")
    _flat(cursor, width, count)


def _checks(walk: Callable[..., None]) -> Callable[..., None]:
    def check(path: Path, **kwargs: int) -> None:
        cursor = _Cursor(path)
        walk(cursor, **kwargs)
        _expect(cursor.at == cursor.size, f"{cursor.at} bytes, not {cursor.size}")

    return check


check_flat, check_rounded = _checks(_flat), _checks(_rounded)
check_cells, check_graph = _checks(_cells), _checks(_graph)
