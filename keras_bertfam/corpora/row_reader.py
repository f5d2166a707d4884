"""Rows of a prepared corpus as arrays, read by their numbers, and the rows' index."""

import collections
import contextlib
import errno
import hashlib
import json
import os
import threading
from typing import Any

import numpy as np

from keras_bertfam.corpora.manifest import Manifest
from keras_bertfam.corpora.permutation import uniform_below
from keras_bertfam.corpora.row_kinds import RowKind, rows_of_shard
from keras_bertfam.corpora.shards import HEADER, ShardReader, read_lengths
from keras_bertfam.parsing import read_json
from keras_bertfam.types import Path
from keras_bertfam.whole_files import file_digest, write_text, written_aside

_INDEX_FOLDER = "rows"
_NOT_WRITABLE = errno.EACCES, errno.EPERM, errno.EROFS


class RowIndex:
    """Rows of a prepared corpus by their numbers, from 0, shard after shard.

    An index is a table of rows. It is computed once, from the lengths of sentences, and
    kept in files beside the corpus, which are mapped into memory. When the files are
    opened, they are compared with their digests. If they differ, they are made anew.

    If sequences share rows, a row has several sequences, and sequences have their own
    numbers. Otherwise row `n` is sequence `n`.

    Args:
        folder: path of the corpus.
        kind: `RowKind`.
        manifest: `Manifest` of the corpus, if it has been read.
        cache: path of the folder of indexes, which corpora may share. Defaults to
            `rows` in the corpus's folder.

    Attributes:
        count: int. Number of rows.
        bounds: int64 array `(shards + 1,)`: the number of each shard's first row, and
            `count`.
        sequence_bounds: int64 array `(shards + 1,)`: the same for sequences.

    Raises:
        OSError: if the index isn't there and can't be written.
        ValueError: if the corpus is damaged.
    """

    def __init__(
        self,
        folder: Path,
        kind: RowKind,
        manifest: Manifest | None = None,
        cache: Path | None = None,
    ) -> None:
        manifest = manifest or Manifest.read(folder)
        self.kind = kind
        path = os.path.join(folder, _INDEX_FOLDER, kind.name)
        if cache is not None:
            path = os.path.join(cache, f"{kind.name}-{_identity(manifest)[:16]}")
        counts = _read_counts(path, manifest) or _write(path, folder, kind, manifest)
        self.bounds = _bounds(counts["rows"])
        self.count = int(self.bounds[-1])
        self.sequence_bounds = self.bounds
        self._records = _bounds([shard.records for shard in manifest.shards])
        if kind.sharing is not None:
            self.sequence_bounds = _bounds(counts["sequences"])
            count = int(self.sequence_bounds[-1])
            self._shared = _mapped(f"{path}.shared", "<u4", (count,))
            self._ends = _mapped(f"{path}.ends", "<u4", (self.count,))
        shape = (int(self.sequence_bounds[-1]), len(kind.columns))
        self._rows = _mapped(f"{path}.rows", "<u4", shape)
        self._closing = _mapped(f"{path}.closing", "u1", (int(self._records[-1]),))

    def sequences(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the sequences of rows.

        Args:
            numbers: int array `(rows,)`. Numbers of rows.

        Returns:
            Two int64 arrays `(sequences,)`: the numbers of the sequences, and the place
            of each sequence's row in `numbers`, ascending.
        """
        if self.kind.sharing is None:
            return numbers, np.arange(len(numbers))
        shards = np.searchsorted(self.bounds, numbers, side="right") - 1
        first = numbers == self.bounds[shards]
        begins = np.where(first, 0, self._ends[np.maximum(numbers - 1, 0)])
        counts = np.asarray(self._ends[numbers], np.int64) - begins
        row = np.repeat(np.arange(len(numbers)), counts)
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        base = self.sequence_bounds[shards]
        return base[row] + self._shared[(base + begins)[row] + place], row

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Find where sequences lie.

        Args:
            numbers: int array `(sequences,)`.

        Returns:
            The shard of each sequence, int64 `(sequences,)`, and a dict of such arrays,
            one for each column of the index.
        """
        shards = np.searchsorted(self.sequence_bounds, numbers, side="right") - 1
        table = np.asarray(self._rows[numbers], np.int64)
        return shards, dict(zip(self.kind.columns, table.T, strict=True))

    def closing(self, shards: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Look up whether documents end with records: see `ShardRows.closing`."""
        return np.asarray(self._closing[self._records[shards] + records])


def _bounds(counts: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _mapped(path, dtype, shape):
    if 0 in shape:  # an empty file can't be mapped
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape)


def _read_counts(path, manifest):
    """Read each shard's number of rows and sequences; `None` for no valid index."""
    try:
        content = read_json(f"{path}.json", many=True)
        counts = {key: np.array(x, np.int64) for key, x in content["counts"].items()}
        whole = content == _content(manifest, content["counts"], content["sha256"])
        for name, digest in content["sha256"].items():
            whole = whole and file_digest(f"{path}.{name}") == digest
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return counts if whole else None


def _content(manifest, counts, digests):
    """Make the content of the file with the digests of all files, its own included."""
    content = {"corpus": _identity(manifest), "sha256": digests, "counts": counts}
    text = json.dumps(content, sort_keys=True)
    return {**content, "own": hashlib.sha256(text.encode()).hexdigest()}


def _identity(manifest):
    digests = "".join(shard.lengths_sha256 for shard in manifest.shards)
    return hashlib.sha256(digests.encode()).hexdigest()


def _write(path, folder, kind, manifest):
    """Make an index, shard by shard; the file with the digests is written last."""
    counts: dict[str, list[int]] = {"rows": [], "sequences": []}
    names = ["rows", "closing", *(["shared", "ends"] if kind.sharing else [])]
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.ExitStack() as stack:
            parts = [stack.enter_context(written_aside(f"{path}.{x}")) for x in names]
            digests = [hashlib.sha256() for _ in names]
            with contextlib.ExitStack() as opened:
                files = [opened.enter_context(open(part, "wb")) for part in parts]
                for number, shard in enumerate(manifest.shards):
                    found = rows_of_shard(kind, read_lengths(folder, shard), number)
                    arrays = [found.rows, found.closing]
                    if found.shared is not None:
                        arrays += [x.astype("<u4") for x in found.shared]
                    counts["sequences"].append(len(found.rows))
                    counts["rows"].append(len(arrays[-1 if found.shared else 0]))
                    for file, digest, array in zip(files, digests, arrays, strict=True):
                        data = array.tobytes()
                        file.write(data)
                        digest.update(data)
        named = {x: y.hexdigest() for x, y in zip(names, digests, strict=True)}
        write_text(f"{path}.json", json.dumps(_content(manifest, counts, named)))
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        raise OSError(
            error.errno,
            "The index of a corpus's rows can't be written: give another folder for "
            "it as the `cache` of `read_tokens`. The path is",
            error.filename,
        ) from error
    return counts


# Limits of open shards: each is an open file, and takes 16 bytes for each record.
_OPEN_SHARDS, _KNOWN_RECORDS = 256, 1 << 24
STARTS, ENDS = 1, 2  # marks of a token that starts or ends a sentence


class RowReader:
    """Reads rows of a prepared corpus at random. May be shared by threads.

    Args:
        folder: path of the corpus.
        kind: `RowKind`.
        pad_token_id: int. The id that fills shorter rows. Defaults to `0`.
        manifest: see `RowIndex`.
        cache: see `RowIndex`.

    Raises:
        OSError, ValueError: as `RowIndex`.

    Example, the first 64 rows in pass 3 of a corpus:

    ```python
    import numpy as np
    from keras_bertfam.corpora.permutation import permuted
    from keras_bertfam.corpora.row_kinds import RowKind
    from keras_bertfam.corpora.row_reader import RowReader

    reader = RowReader("prepared", RowKind("full", 126, separator=102))
    rows = reader.read(permuted(np.arange(64), reader.index.count, 3))
    ```
    """

    def __init__(
        self,
        folder: Path,
        kind: RowKind,
        pad_token_id: int = 0,
        manifest: Manifest | None = None,
        cache: Path | None = None,
    ) -> None:
        self.kind = kind
        self.pad_token_id = pad_token_id
        self._folder = os.fspath(folder)
        self._manifest = manifest or Manifest.read(folder)
        self.index = RowIndex(folder, kind, self._manifest, cache)
        self._dtype = np.dtype(self._manifest.dtype).newbyteorder("<")
        self._shards: collections.OrderedDict[int, ShardReader] = (
            collections.OrderedDict()
        )
        self._lock = threading.Lock()

    def read(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Read rows, or sequences if these share rows.

        Args:
            numbers: int array `(rows,)`. Numbers of rows, or of sequences that share
                rows; see `RowIndex.sequences`.

        Returns:
            A dict of int32 arrays. `token_ids`, `(rows, width)`, is padded. The width
            is the kind's, or for sequences the length of the longest. `sequence_ids`,
            of the same shape, is 1, 2, ... for a row's documents and 0 at padding.
            `lengths` is `(rows,)`. Rows of whole sentences and windows also have
            `marks`, of the shape of `token_ids`: 1 if a token starts a sentence, plus 2
            if it ends one. Segments also have `targets`, `(rows,)`.

        Raises:
            OSError: if a shard is missing.
            ValueError: if a shard is damaged; the message names shard and record.
        """
        shards, row = self.index.find(numbers)
        owner = np.repeat(np.arange(len(numbers)), row["records"])
        records = row["record"][owner] + _within(row["records"])
        data = self._data(shards[owner], records)
        closing = self.index.closing(shards[owner], records)
        parts = _Records(data, self._dtype, closing, owner, len(numbers))
        width = self.kind.width
        if self.kind.sharing is not None:
            width = row["length"].max(initial=1)
        out = parts.rows(row, width, self.kind.separator, self.pad_token_id)
        if self.kind.in_documents or self.kind.kind == "windows":
            out["marks"] = parts.marks(row, width)
        if self.kind.in_documents:
            out["targets"] = row["target"].astype(np.int32)
        return out

    def others(self, numbers: np.ndarray, *seed: int) -> np.ndarray:
        """Draw a row of another document for each row, uniformly.

        Args:
            numbers: int array `(rows,)`, as for `read`. Rows of whole sentences.
            *seed: ints. The result depends on these and on `numbers` alone.

        Raises:
            ValueError: for a corpus of one document.
        """
        shards, row = self.index.find(numbers)
        elsewhere = self.index.sequence_bounds[-1] - row["siblings"]
        if not elsewhere.all():
            raise ValueError(
                "The corpus must have two documents at least: a random segment needs "
                "another one. Received: one."
            )
        drawn = uniform_below(elsewhere, numbers, *seed)
        begins = self.index.sequence_bounds[shards] + row["first"]
        return drawn + np.where(drawn >= begins, row["siblings"], 0)

    def _data(self, shards, records):
        """Read the bytes of records."""
        order = np.argsort(shards, kind="stable")
        bounds = np.flatnonzero(np.diff(shards[order])) + 1
        data: list[bytes] = [b""] * len(order)
        for places in np.split(order, bounds) if len(order) else ():
            shard = self._shard(int(shards[places[0]]))
            found = shard.data(records[places].tolist())
            for place, each in zip(places.tolist(), found, strict=True):
                data[place] = each
        return data

    def _shard(self, number):
        with self._lock:
            reader = self._shards.pop(number, None)
            if reader is None:
                file = self._manifest.shards[number].file
                path = os.path.join(self._folder, file)
                reader = ShardReader(path, self._dtype)
                known = sum(map(len, self._shards.values())) + len(reader)
                while self._shards and (
                    known > _KNOWN_RECORDS or len(self._shards) >= _OPEN_SHARDS
                ):
                    known -= len(self._shards.popitem(last=False)[1])
            self._shards[number] = reader
            return reader


class _Records:
    """The records of some rows, decoded all at once.

    Args:
        data: list of the bytes of records; see `encode_record`.
        dtype: dtype of ids.
        closing: uint8 array `(records,)`: see `ShardRows`.
        owner: int array `(records,)`: the row of each record, ascending.
        count: int. Number of rows.
    """

    def __init__(self, data, dtype, closing, owner, count):
        sizes = np.fromiter(map(len, data), np.int64, len(data))
        self._begins = np.cumsum(sizes) - sizes
        blob = b"".join(data)
        self._halves = np.frombuffer(blob, "<u2")
        self._ids = np.frombuffer(blob, dtype)
        self._sentences = self._numbers(self._begins + 4)
        at = self._begins + HEADER + 4 * self._sentences
        self._at = at // dtype.itemsize
        self._tokens = (self._begins + sizes - at) // dtype.itemsize
        self._owner = owner
        self._has_separator = closing > 1
        # In each record's row: number of tokens and separators before the record.
        lengths = self._tokens + self._has_separator
        self._before = _since_first(lengths, owner, count)
        self._ends = self._before + lengths
        self._document = _since_first(closing & 1, owner, count)

    def _numbers(self, at):
        """Read the uint32 numbers at even byte offsets."""
        at = at // 2
        return self._halves[at] + (self._halves[at + 1].astype(np.int64) << 16)

    def rows(self, row, width, separator, pad_token_id):
        """Make arrays of token ids, of each token's document, and of lengths."""
        offset = row["offset"][self._owner]
        low = np.maximum(self._before, offset)
        high = np.minimum(self._ends, offset + row["length"][self._owner])
        sizes = high - low
        place = np.repeat(low - self._before, sizes) + _within(sizes)
        ids = self._ids[
            np.minimum(np.repeat(self._at, sizes) + place, len(self._ids) - 1)
        ]
        if separator is not None:
            ids = np.where(place < np.repeat(self._tokens, sizes), ids, separator)
        inside = np.arange(width) < row["length"][:, None]
        token_ids = np.full(inside.shape, pad_token_id, np.int32)
        token_ids[inside] = ids
        sequence_ids = np.zeros(inside.shape, np.int32)
        sequence_ids[inside] = np.repeat(self._document + 1, sizes)
        return {
            "token_ids": token_ids,
            "sequence_ids": sequence_ids,
            "lengths": row["length"].astype(np.int32),
        }

    def marks(self, row, width):
        """Mark where sentences start and end."""
        lengths = self._numbers(
            np.repeat(self._begins + HEADER, self._sentences)
            + 4 * _within(self._sentences)
        )
        record = np.repeat(np.arange(len(self._sentences)), self._sentences)
        ends = _since_first(lengths, record, len(self._sentences)) + lengths
        owner = self._owner[record]
        first = self._before[record] + ends - lengths - row["offset"][owner]
        marks = np.zeros((len(row["offset"]), width), np.int32)
        for place, mark in ((first, STARTS), (first + lengths - 1, ENDS)):
            inside = (place >= 0) & (place < row["length"][owner])
            marks[owner[inside], place[inside]] += mark
        return marks


def _within(counts):
    """Count from 0 for each of some counts: `[2, 3]` gives `[0, 1, 0, 1, 2]`."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _since_first(values, owner, count):
    """Sum the earlier values of the same owner.

    For example, values `[4, 1, 5, 2]` of owners `[0, 0, 0, 1]` give `[0, 4, 5, 0]`.
    """
    before = np.cumsum(values, dtype=np.int64) - values
    first = np.searchsorted(owner, np.arange(count))
    return before - before[first][owner] if len(owner) else before
