"""Where the rows of a prepared corpus lie, so that any of them is read by its number.

An index is made of the lengths of sentences once, and kept in files beside the corpus:
the table of its rows, which is mapped into memory, not read.
"""

import hashlib
import json
import os
from typing import Any

import numpy as np

from keras_bertfam.corpora.manifest import Manifest
from keras_bertfam.corpora.row_kinds import RowKind, rows_of_shard
from keras_bertfam.corpora.shards import read_lengths
from keras_bertfam.types import Path
from keras_bertfam.whole_files import write_text, written_aside

FOLDER = "rows"


class RowIndex:
    """Rows of a prepared corpus by their numbers, from 0, shard after shard.

    Args:
        folder: path of the corpus.
        kind: `RowKind`.
        manifest: `Manifest` of the corpus, if it has been read.
        cache: path of the folder of indexes. Defaults to `rows` in that of the corpus.

    Attributes:
        count: int. How many rows there are.
        bounds: int64 array `(shards + 1,)`: the number of each shard's first row.

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
        path = os.path.join(cache or os.path.join(folder, FOLDER), kind.name)
        counts = _read_counts(path, manifest)
        if counts is None:
            counts = _write(path, folder, kind, manifest)
        self.bounds = _bounds(counts)
        self.count = int(self.bounds[-1])
        self._records = _bounds([shard.records for shard in manifest.shards])
        shape = (self.count, len(kind.columns))
        self._rows = _mapped(f"{path}.rows", "<u4", shape)
        self._closing = _mapped(f"{path}.closing", "u1", (int(self._records[-1]),))

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Where rows lie.

        Args:
            numbers: int array `(rows,)`.

        Returns:
            The shard of each, int64 `(rows,)`, and a dict of such arrays: the columns
            of the index.
        """
        shards = np.searchsorted(self.bounds, numbers, side="right") - 1
        table = np.asarray(self._rows[numbers], np.int64)
        return shards, dict(zip(self.kind.columns, table.T, strict=True))

    def closing(self, shards: np.ndarray, records: np.ndarray) -> np.ndarray:
        """What ends with records: see `ShardRows`."""
        return np.asarray(self._closing[self._records[shards] + records])


def _bounds(counts: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _mapped(path, dtype, shape):
    if 0 in shape:  # can't be mapped
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape)


def _read_counts(path, manifest):
    """The rows of each shard, or `None` if there is no whole index of this corpus."""
    try:
        with open(f"{path}.json", encoding="utf-8") as file:
            content = json.load(file)
        counts = np.array(content["rows"], np.int64)
        whole = content["corpus"] == _identity(manifest)
        for name, size in content["bytes"].items():
            whole &= os.path.getsize(f"{path}.{name}") == size
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return counts if whole else None


def _identity(manifest):
    digests = "".join(shard.lengths_sha256 for shard in manifest.shards)
    return hashlib.sha256(digests.encode()).hexdigest()


def _write(path, folder, kind, manifest):
    """Makes an index, a shard at a time; the file that says so comes last."""
    counts, sizes = [], {}
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with (
            written_aside(f"{path}.rows") as rows_part,
            written_aside(f"{path}.closing") as closing_part,
        ):
            with open(rows_part, "wb") as rows, open(closing_part, "wb") as closing:
                for number, shard in enumerate(manifest.shards):
                    found = rows_of_shard(kind, read_lengths(folder, shard), number)
                    rows.write(found.rows.tobytes())
                    closing.write(found.closing.tobytes())
                    counts.append(len(found.rows))
                sizes = {"rows": rows.tell(), "closing": closing.tell()}
        content = {"corpus": _identity(manifest), "bytes": sizes, "rows": counts}
        write_text(f"{path}.json", json.dumps(content))
    except PermissionError as error:
        raise PermissionError(
            error.errno,
            "The index of a corpus's rows can't be written: give another folder for "
            "it as the `cache` of `read_tokens`. The path is",
            error.filename,
        ) from error
    return counts
