"""Which rows a shard has: found by the lengths of its sentences alone."""

import dataclasses
import zlib
from typing import NamedTuple

import numpy as np

from keras_bertfam.corpora.permutation import uniform_below
from keras_bertfam.corpora.row_sharing import SharedRows, Sharing, share_rows

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
