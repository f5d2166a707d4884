"""Which sequences share a row, by their lengths alone."""

import bisect
import dataclasses
import zlib
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Sharing:
    """The room that a row has, and that sequences take of it.

    Args:
        room: int. What a row has, such as its tokens.
        costs: tuple of ints. What a sequence takes by its tokens, from none on; a
            longer one takes the last. Each in [1, `room`].
        single_costs: the same of those of one sentence, or `None` for `costs`.
        most: int or `None`. The most sequences in a row. Defaults to `None`.
    """

    room: int
    costs: tuple[int, ...]
    single_costs: tuple[int, ...] | None = None
    most: int | None = None

    @property
    def name(self) -> str:
        """What names the files of an index."""
        digest = zlib.crc32(repr((self.costs, self.single_costs)).encode())
        return f"shared-{self.room}-{self.most or 0}-{digest:08x}"

    def costs_of(self, lengths: np.ndarray, single: np.ndarray) -> np.ndarray:
        """Compute the room that sequences take.

        Args:
            lengths: int array `(sequences,)`. Their tokens.
            single: bool array of that shape: which are of one sentence.
        """
        costs = np.array(self.costs)
        alone = costs if self.single_costs is None else np.array(self.single_costs)
        lengths = np.minimum(lengths, len(costs) - 1)
        return np.where(single, alone[lengths], costs[lengths])


class SharedRows(NamedTuple):
    """The sequences of each row.

    Attributes:
        sequences: int64 array `(sequences,)`: their numbers, row after row.
        ends: int64 array `(rows,)`: how many there are up to the end of each row.
    """

    sequences: np.ndarray
    ends: np.ndarray


def share_rows(costs: np.ndarray, room: int, most: int | None = None) -> SharedRows:
    """Pack sequences into rows, best fit, the longest first.

    Sequences of one length are as good as each other, and so are rows with one room
    left. So all of a length are put at once into rows of the least room that will do,
    and time hardly depends on how many there are.

    Args:
        costs: int array `(sequences,)`, each in [1, `room`].
        room: int.
        most: int or `None`. The most sequences in a row.

    Returns:
        `SharedRows`. Rows are in the order of their first sequences, which are in the
        order in which they came.

    References: [Krell et al., 2021](https://arxiv.org/abs/2107.02027), section 3.1.
    """
    count = len(costs)
    by_cost = np.argsort(-costs, kind="stable")
    sizes, starts = np.unique(-costs[by_cost], return_index=True)
    rows = _Rows(room, most or count, count)
    row = np.empty(count, np.int64)
    stops = np.append(starts, count)[1:]
    for size, start, stop in zip(-sizes, starts, stops, strict=True):
        row[by_cost[start:stop]] = rows.take(int(size), int(stop - start))
    firsts = np.full(rows.count, count)
    np.minimum.at(firsts, row, np.arange(count))
    row = np.argsort(np.argsort(firsts))[row]
    ends = np.cumsum(np.bincount(row, minlength=rows.count))
    return SharedRows(np.argsort(row, kind="stable"), ends)


class _Rows:
    """Rows that aren't full, by the room that they have left."""

    def __init__(self, room, most, count):
        self.count = 0
        self._whole = room
        self._most = most
        self._taken = np.zeros(count, np.int64)  # sequences of each row
        self._rooms: list[int] = []  # ascending: those that there are rows with
        self._rows: dict[int, list[np.ndarray]] = {}

    def take(self, size, count):
        """Take the rows of `count` sequences of a size."""
        taken = []
        while count:
            place = bisect.bisect_left(self._rooms, size)
            if place < len(self._rooms):
                room = self._rooms.pop(place)
                rows = np.concatenate(self._rows.pop(room))
            else:
                room = self._whole
                opened = -(-count // min(room // size, self._most))
                rows = np.arange(self.count, self.count + opened)
                self.count += opened
            fitting = np.minimum(room // size, self._most - self._taken[rows])
            up_to = np.cumsum(fitting)
            used = min(int(np.searchsorted(up_to, count)) + 1, len(rows))
            fitting = fitting[:used]
            fitting[-1] -= max(int(up_to[used - 1]) - count, 0)
            taken.append(np.repeat(rows[:used], fitting))
            self._taken[rows[:used]] += fitting
            count -= len(taken[-1])
            self._put_back(room, rows[used:])
            left = room - size * fitting
            for each in np.unique(left):
                self._put_back(int(each), rows[:used][left == each])
        return np.concatenate(taken)

    def _put_back(self, room, rows):
        rows = rows[self._taken[rows] < self._most]
        if not room or not len(rows):
            return
        if room not in self._rows:
            self._rows[room] = []
            bisect.insort(self._rooms, room)
        self._rows[room].append(rows)
