"""The rows of a shard, and the sequences that share a row, from lengths alone."""

import bisect
import dataclasses
import zlib
from typing import NamedTuple

import numpy as np

from keras_bertfam.corpora.permutation import uniform_below


@dataclasses.dataclass(frozen=True)
class Sharing:
    """The room of a row, and the room that each sequence takes.

    Args:
        room: int. The room of a row, such as its number of tokens.
        costs: tuple of ints in [1, `room`]. `costs[n]` is the room that a sequence of
            `n` tokens takes. Longer sequences take the last of them.
        single_costs: the same for sequences of one sentence, or `None` for `costs`.
        most: int or `None`. The most sequences in a row. Defaults to `None`.
    """

    room: int
    costs: tuple[int, ...]
    single_costs: tuple[int, ...] | None = None
    most: int | None = None

    @property
    def name(self) -> str:
        """str: a part of the names of index files."""
        digest = zlib.crc32(repr((self.costs, self.single_costs)).encode())
        return f"shared-{self.room}-{self.most or 0}-{digest:08x}"

    def costs_of(self, lengths: np.ndarray, single: np.ndarray) -> np.ndarray:
        """Compute the room that sequences take.

        For example, with `costs=(1, 2, 2, 4)` sequences of 1, 3 and 9 tokens take 2, 4
        and 4.

        Args:
            lengths: int array `(sequences,)`. Number of tokens of each.
            single: bool array `(sequences,)`. Whether each has one sentence.
        """
        costs = np.array(self.costs)
        alone = costs if self.single_costs is None else np.array(self.single_costs)
        lengths = np.minimum(lengths, len(costs) - 1)
        return np.where(single, alone[lengths], costs[lengths])


class SharedRows(NamedTuple):
    """The sequences of each row.

    Attributes:
        sequences: int64 array `(sequences,)`: numbers of the sequences, row after row.
        ends: int64 array `(rows,)`. Row `i` has `sequences[ends[i - 1]:ends[i]]`.
    """

    sequences: np.ndarray
    ends: np.ndarray


def share_rows(costs: np.ndarray, room: int, most: int | None = None) -> SharedRows:
    """Pack sequences into rows: best fit, the longest sequences first.

    For example, costs 5, 3, 4, 2 and 6 with a room of 8 give three rows: sequences 0
    and 1, sequence 2, and sequences 3 and 4. `sequences` is `[0, 1, 2, 3, 4]`, and
    `ends` is `[2, 3, 5]`.

    All sequences of one cost are placed at once, in the rows with the least room that
    is enough. So time depends on the number of different costs, and hardly on the
    number of sequences.

    Args:
        costs: int array `(sequences,)`, each in [1, `room`].
        room: int.
        most: int or `None`. The most sequences in a row.

    Returns:
        `SharedRows`. Rows are ordered by their first sequences, and the sequences of a
        row by their numbers.

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
        self._rooms: list[int] = []  # keys of `_rows`, ascending
        self._rows: dict[int, list[np.ndarray]] = {}

    def take(self, size, count):
        """Choose rows for `count` sequences of a size; give the row of each."""
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


# A segment is read up to the length of so many rows; the rest would be cut off anyway.
_LONGEST = 2
# The columns of an index; the second tuple is for rows within a document.
COLUMNS = ("record", "offset", "length", "records")
SEGMENT_COLUMNS = (*COLUMNS, "target", "first", "siblings")


@dataclasses.dataclass(frozen=True)
class RowKind:
    """A way of cutting documents into rows.

    Args:
        kind: `"full"` (as many sentences as fit, across documents; longer sentences are
            cut), `"doc"` (the same within a document), `"stream"` (text cut every
            `length` tokens), `"windows"` (text of `length` tokens, every `advance`
            tokens), `"pieces"` (documents; longer ones are cut), `"segments"`
            (sentences of a document until their tokens reach a target) or
            `"sentences"` (two sentences of a document).
        length: int. Tokens of a row, without special tokens.
        separator: int or `None`. The id after each document of `"stream"` and
            `"windows"`, and between documents in a row of `"full"`.
        advance: int. Distance of the first tokens of two `"windows"`.
        short_rate: float. Share of documents with a short target, for `"segments"`. A
            short target is uniform in [`shortest`, `length`]; others are `length`.
        shortest: int. The smallest short target.
        short_rows: bool. Whether targets are drawn for each row. By default they are
            drawn for each document.
        sharing: `Sharing`, or `None`. With it, documents are cut into sequences in this
            way, and a row has as many sequences as it has room for.
    """

    kind: str
    length: int
    separator: int | None = None
    advance: int = 0
    short_rate: float = 0.0
    shortest: int = 2
    short_rows: bool = False
    sharing: Sharing | None = None

    @property
    def name(self) -> str:
        """str: the name of the index files; equal rows have equal names."""
        fields = {**vars(self), "separator": self.separator is not None}
        sharing = fields.pop("sharing")
        kind, length, *others = fields.values()
        rest = [f"{x:g}" for x in others]
        rest += [] if sharing is None else [sharing.name]
        return f"{kind}-{length}-{'-'.join(rest)}"

    @property
    def in_documents(self) -> bool:
        """bool: whether a row is of sentences of one document."""
        return self.kind in ("segments", "sentences")

    @property
    def width(self) -> int:
        """int: the most tokens of a row."""
        return self.length * (_LONGEST if self.in_documents else 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """tuple: the columns of an index."""
        return SEGMENT_COLUMNS if self.in_documents else COLUMNS


class ShardRows(NamedTuple):
    """The rows of a shard.

    Attributes:
        rows: uint32 array `(rows, columns)`.
        closing: uint8 array `(records,)`: 1 if a record is a document's last one, plus
            2 if a separator follows it.
        shared: `SharedRows` if `rows` has sequences that share rows, or `None`.
    """

    rows: np.ndarray
    closing: np.ndarray
    shared: SharedRows | None = None


def rows_of_shard(
    kind: RowKind, lengths: dict[str, np.ndarray], number: int
) -> ShardRows:
    """Find the rows of a shard.

    Args:
        kind: `RowKind`.
        lengths: dict of `read_lengths`.
        number: int. Number of the shard; random draws depend on it.
    """
    sentences, documents, records = (
        lengths[name].astype(np.int64) for name in ("sentences", "documents", "records")
    )
    ends = np.cumsum(documents)  # the first sentence after each document
    record_ends = np.cumsum(records)
    closing = np.isin(record_ends, ends).astype(np.uint8)
    separators = np.zeros(len(sentences), np.int64)
    if kind.separator is not None:
        last = -1 if kind.kind == "full" else None
        separators[ends[:last] - 1] = 1
        closing[np.isin(record_ends, ends[:last])] |= 2
    # Tokens and separators before each sentence, and before each record.
    bounds = _bounds(sentences + separators)
    record_bounds = bounds[np.concatenate([[0], record_ends])]
    extra = None
    single = np.zeros(1, bool)
    if kind.in_documents:
        begins, stops, extra, single = _segments(kind, bounds, documents, ends, number)
    elif kind.kind == "pieces":
        begins, stops = _pieces(kind, bounds[np.concatenate([[0], ends])])
    elif kind.kind in ("full", "doc"):
        begins, stops = _blocks(kind, sentences, separators, documents)
    else:
        begins, stops = _windows(kind, int(bounds[-1]))
    record = np.searchsorted(record_bounds, begins, side="right") - 1
    last_record = np.searchsorted(record_bounds, stops - 1, side="right") - 1
    columns = [
        record,
        begins - record_bounds[record],
        stops - begins,
        last_record - record + 1,
        *(extra or ()),
    ]
    table = np.stack(columns, 1).astype("<u4")
    if kind.sharing is None:
        return ShardRows(table, closing)
    costs = kind.sharing.costs_of(stops - begins, single)
    shared = share_rows(costs, kind.sharing.room, kind.sharing.most)
    return ShardRows(table, closing, shared)


def _bounds(lengths):
    """Give the begin of each length, and the end: lengths 3, 2 give `[0, 3, 5]`."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _windows(kind, total):
    # Ten tokens, of length 4: a stream begins at [0, 4, 8] and ends at [4, 8, 10].
    # Windows with `advance=2` begin at [0, 2, 4, 6] and end at [4, 6, 8, 10].
    if kind.kind == "windows":
        begins = np.arange(0, max(total - kind.length + 1, 0), kind.advance)
    else:
        begins = np.arange(0, total, kind.length)
    return begins, np.minimum(begins + kind.length, total)


def _pieces(kind, documents):
    """Cut documents that are longer than a row; `documents` has their bounds."""
    # Bounds [0, 6, 9], of length 4: begins are [0, 4, 6], ends are [4, 6, 9].
    sizes = np.diff(documents)
    counts = -(-sizes // kind.length)
    whole = np.repeat(np.arange(len(sizes)), counts)
    piece = np.arange(len(whole)) - np.repeat(_bounds(counts)[:-1], counts)
    begins = documents[whole] + piece * kind.length
    return begins, np.minimum(begins + kind.length, documents[whole + 1])


def _blocks(kind, sentences, separators, documents):
    """Fill rows with units that fit: sentences, pieces of long ones, separators."""
    # Two documents have sentences of 5, 4 and of 10, 3 tokens; a row has 8. Units are
    # [5, 4, 8, 2, 3]. Rows begin at [0, 5, 9, 17] and end at [5, 9, 17, 22].
    counts = -(-sentences // kind.length)
    whole = np.repeat(np.arange(len(sentences)), counts)
    piece = np.arange(len(whole)) - np.repeat(_bounds(counts)[:-1], counts)
    units = np.minimum(sentences[whole] - piece * kind.length, kind.length)
    after = np.cumsum(counts)[separators > 0]
    units = np.insert(units, after, 1)
    bounds = _bounds(units)
    following = np.searchsorted(bounds, bounds[:-1] + kind.length, side="right") - 1
    if kind.kind == "doc":
        ends = np.cumsum(counts)[np.cumsum(documents) - 1]
        sizes = np.diff(ends, prepend=0)
        following = np.minimum(following, np.repeat(ends, sizes))
    starts = _follow_pointers(following)
    return bounds[starts], bounds[np.append(starts[1:], len(units))]


def _segments(kind, bounds, documents, ends, number):
    document = np.repeat(np.arange(len(documents)), documents)
    sentence = np.arange(len(document))
    target = np.full(len(document), kind.length)
    if kind.kind == "segments":
        drawn_for = sentence if kind.short_rows else document
        seed = (number, zlib.crc32(kind.name.encode()))
        spread = kind.length - kind.shortest + 1
        drawn = kind.shortest + uniform_below(spread, drawn_for, *seed, 1)
        short = uniform_below(1 << 30, drawn_for, *seed, 2) < kind.short_rate * 2**30
        target = np.where(short, drawn, target)
        following = np.searchsorted(bounds, bounds[:-1] + target)
    else:
        following = sentence + 2
    starts = _follow_pointers(np.minimum(following, ends[document]))
    begins = bounds[starts]
    following = np.append(starts[1:], len(document))
    stops = bounds[following]
    _, first, where, siblings = np.unique(
        document[starts], return_index=True, return_inverse=True, return_counts=True
    )
    extra = (target[starts], first[where], siblings[where])
    single = following - starts == 1
    return begins, np.minimum(stops, begins + kind.width), extra, single


def _follow_pointers(following):
    """Return the chain from 0: `[2, 3, 4, 4, 5]` gives `[0, 2, 4]`.

    After `i` the chain has `following[i]`, and it ends before `len(following)`. Each
    step doubles its known part.
    """
    count = len(following)
    if not count:
        return np.zeros(0, np.int64)
    elements = np.zeros(1, np.int64)
    jump = np.append(following, count)
    while elements[-1] < count:
        elements = np.concatenate([elements, jump[elements]])
        jump = jump[jump]
    return elements[elements < count]
