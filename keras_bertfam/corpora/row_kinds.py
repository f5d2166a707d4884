"""Which rows a shard has, and which sequences share one: by their lengths alone."""

import bisect
import dataclasses
import zlib
from typing import NamedTuple

import numpy as np

from keras_bertfam.corpora.permutation import uniform_below


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


# Of a segment, text of more than so many rows is left out, which would be cut off.
_LONGEST = 2
# What an index holds of each row: for rows within a document the second.
COLUMNS = ("record", "offset", "length", "records")
SEGMENT_COLUMNS = (*COLUMNS, "target", "first", "siblings")


@dataclasses.dataclass(frozen=True)
class RowKind:
    """A way of cutting documents into rows.

    Args:
        kind: `"full"` (sentences, and cut ones, that fit, across documents), `"doc"`
            (the same within a document), `"stream"` (cut anywhere), `"windows"` (the
            same, each `advance` tokens after the one before), `"pieces"` (documents,
            cut where they are longer), `"segments"` (sentences of a document that
            reach a target) or `"sentences"` (two of a document).
        length: int. Tokens of a row, without special tokens.
        separator: int or `None`. The id after each document of `"stream"` and
            `"windows"`, and between those of a row of `"full"`.
        advance: int.
        short_rate: float. Share of the documents (`"segments"`) whose target isn't
            `length` but uniform in [`shortest`, `length`].
        shortest: int.
        short_rows: bool. Whether that is drawn for each row, not each document.
        sharing: `Sharing`, or `None`. With it, these aren't rows but sequences, of
            which a row has as many as it has room for.
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
        """str: what names the files of an index, equal for equal rows."""
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
        """tuple: what an index has of each row."""
        return SEGMENT_COLUMNS if self.in_documents else COLUMNS


class ShardRows(NamedTuple):
    """The rows of a shard.

    Attributes:
        rows: uint32 array `(rows, columns)`.
        closing: uint8 array `(records,)`: 1 where a record is a document's last, 2
            more where a separator comes after it.
        shared: `SharedRows`, where `rows` are sequences that share rows, or `None`.
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
        lengths: what `read_lengths` gives.
        number: int. Of the shard, for what is drawn.
    """
    sentences, documents, records = (
        lengths[name].astype(np.int64) for name in ("sentences", "documents", "records")
    )
    ends = np.cumsum(documents)  # the sentence after each document's last
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
    """Sum lengths up to where each begins, and the last ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _windows(kind, total):
    if kind.kind == "windows":
        begins = np.arange(0, max(total - kind.length + 1, 0), kind.advance)
    else:
        begins = np.arange(0, total, kind.length)
    return begins, np.minimum(begins + kind.length, total)


def _pieces(kind, documents):
    """Cut documents, of which the bounds are given, where they are longer."""
    sizes = np.diff(documents)
    counts = -(-sizes // kind.length)
    whole = np.repeat(np.arange(len(sizes)), counts)
    piece = np.arange(len(whole)) - np.repeat(_bounds(counts)[:-1], counts)
    begins = documents[whole] + piece * kind.length
    return begins, np.minimum(begins + kind.length, documents[whole + 1])


def _blocks(kind, sentences, separators, documents):
    """Bound units that fit: sentences, pieces of long ones, and separators."""
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
    """Return 0, what follows it, what follows that, and so on; by doubling."""
    count = len(following)
    if not count:
        return np.zeros(0, np.int64)
    elements = np.zeros(1, np.int64)
    jump = np.append(following, count)
    while elements[-1] < count:
        elements = np.concatenate([elements, jump[elements]])
        jump = jump[jump]
    return elements[elements < count]
