"""An index of the rows of a prepared corpus, by which any is read by its number."""

import contextlib
import hashlib
import json
import os
from typing import Any

import numpy as np

from keras_bertfam.corpora.manifest import Manifest
from keras_bertfam.corpora.row_kinds import RowKind, rows_of_shard
from keras_bertfam.corpora.shards import read_lengths
from keras_bertfam.parsing import read_json
from keras_bertfam.types import Path
from keras_bertfam.whole_files import file_digest, write_text, written_aside

_INDEX_FOLDER = "rows"


class RowIndex:
    """Rows of a prepared corpus by their numbers, from 0, shard after shard.

    An index is made of the lengths of sentences once, and kept in files beside the
    corpus: the table of its rows, which is mapped into memory. Files are compared with
    their digests when they are opened, and made anew if they differ.

    Where rows are shared, each has several sequences, which have numbers of their own;
    else a row is the sequence of its number.

    Args:
        folder: path of the corpus.
        kind: `RowKind`.
        manifest: `Manifest` of the corpus, if it has been read.
        cache: path of the folder of indexes. Defaults to `rows` in that of the corpus.

    Attributes:
        count: int. How many rows there are.
        bounds: int64 array `(shards + 1,)`: the number of each shard's first row.
        sequence_bounds: int64 array `(shards + 1,)`: that of its first sequence.

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
        path = os.path.join(cache or os.path.join(folder, _INDEX_FOLDER), kind.name)
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
            numbers: int array `(rows,)`. Of rows.

        Returns:
            The numbers of their sequences, and for each which of the rows it is in,
            from 0, ascending: int64 `(sequences,)`.
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
            The shard of each, int64 `(sequences,)`, and a dict of such arrays: the
            columns of the index.
        """
        shards = np.searchsorted(self.sequence_bounds, numbers, side="right") - 1
        table = np.asarray(self._rows[numbers], np.int64)
        return shards, dict(zip(self.kind.columns, table.T, strict=True))

    def closing(self, shards: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Find what ends with records: see `ShardRows`."""
        return np.asarray(self._closing[self._records[shards] + records])


def _bounds(counts: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _mapped(path, dtype, shape):
    if 0 in shape:  # can't be mapped
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape)


def _read_counts(path, manifest):
    """Read rows and sequences of each shard; `None` without an index of this corpus."""
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
    """Read the file that vouches for the others, itself included."""
    content = {"corpus": _identity(manifest), "sha256": digests, "counts": counts}
    text = json.dumps(content, sort_keys=True)
    return {**content, "own": hashlib.sha256(text.encode()).hexdigest()}


def _identity(manifest):
    digests = "".join(shard.lengths_sha256 for shard in manifest.shards)
    return hashlib.sha256(digests.encode()).hexdigest()


def _write(path, folder, kind, manifest):
    """Make an index, a shard at a time; the file that says so comes last."""
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
    except PermissionError as error:
        raise PermissionError(
            error.errno,
            "The index of a corpus's rows can't be written: give another folder for "
            "it as the `cache` of `read_tokens`. The path is",
            error.filename,
        ) from error
    return counts
