"""Shards of a prepared corpus: records of token ids, read by their number.

A record has some successive sentences of one document. Its bytes are, all little
endian: the CRC-32 of the rest, the number of sentences and the number of tokens in each
sentence, all uint32; then the ids. A NumPy archive beside each shard has three uint32
arrays: `sentences` (tokens of each sentence), `documents` and `records` (sentences of
each).
"""

import errno
import os
import weakref
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_bertfam.corpora.manifest import Shard
from keras_bertfam.types import Path
from keras_bertfam.whole_files import file_digest, written_aside

RECORD_TOKENS = 1024  # limit of a record, unless one sentence has more
HEADER = 8
_LENGTHS = ("sentences", "documents", "records")


def encode_record(ids: np.ndarray, lengths: np.ndarray) -> bytes:
    """Encode a record as bytes.

    Args:
        ids: array of shape `(tokens,)`, with the manifest's dtype.
        lengths: int array of shape `(sentences,)`.
    """
    table = np.concatenate([[len(lengths)], lengths]).astype("<u4").tobytes()
    data = table + ids.astype(ids.dtype.newbyteorder("<"), copy=False).tobytes()
    return zlib.crc32(data).to_bytes(4, "little") + data


def is_whole(data: bytes) -> bool:
    """Tell whether the checksum in a record's bytes is right."""
    expected = int.from_bytes(data[:4], "little")
    return len(data) >= HEADER and zlib.crc32(memoryview(data)[4:]) == expected


def decode_record(data: bytes, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Decode the ids and the lengths of sentences from the bytes of a record.

    Raises:
        ValueError: if the bytes aren't a record.
    """
    if not is_whole(data):
        raise ValueError("its checksum differs.")
    count = int.from_bytes(data[4:HEADER], "little")
    start = HEADER + 4 * count
    lengths = np.frombuffer(data[HEADER:start], "<u4")
    ids = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"), offset=start)
    if len(ids) != lengths.sum(dtype=np.int64):
        raise ValueError("its lengths are not those of its ids.")
    return ids, lengths


def split_records(lengths: np.ndarray) -> np.ndarray:
    """Divide a document into records, and count the sentences of each.

    For example, sentences of 600, 400, 30 and 2000 tokens give `[2, 1, 1]`.

    Args:
        lengths: int array of shape `(sentences,)`.

    Returns:
        An int64 array. Each record has as many sentences as fit in `RECORD_TOKENS`
        tokens, or one longer sentence.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(ends) and ends[-1] <= RECORD_TOKENS:
        return np.array([len(lengths)], np.int64)
    counts, first, before = [], 0, 0
    while first < len(lengths):
        last = int(np.searchsorted(ends, before + RECORD_TOKENS, side="right"))
        counts.append(max(last, first + 1) - first)
        first += counts[-1]
        before = ends[first - 1]
    return np.array(counts, np.int64)


def write_shard(
    folder: Path,
    number: int,
    of: int,
    documents: Iterable[tuple[np.ndarray, np.ndarray]],
) -> Shard:
    """Write a shard and the file with its lengths; no file is ever half written.

    Args:
        folder: path.
        number: int. Number of the shard.
        of: int. Number of shards.
        documents: tuples of a document's ids, with the manifest's dtype, and its
            sentences' lengths. No document may be empty.

    Returns:
        `Shard`, the entry for the manifest.
    """
    extension = "array_record" if has_array_record() else "tfrecord"
    name = f"tokens-{number:05}-of-{of:05}.{extension}"
    path = os.path.join(folder, name)
    lengths: dict[str, list[np.ndarray]] = {key: [] for key in _LENGTHS}
    with written_aside(path) as part:
        _write_records(part, extension, _records(documents, lengths))
        size, digest = os.path.getsize(part), file_digest(part)
    arrays: dict[str, Any] = {
        key: np.concatenate([np.zeros(0, "<u4"), *parts]).astype("<u4")
        for key, parts in lengths.items()
    }
    shard = Shard(
        name,
        documents=len(arrays["documents"]),
        sentences=len(arrays["sentences"]),
        tokens=int(arrays["sentences"].sum(dtype=np.int64)),
        records=len(arrays["records"]),
        bytes=size,
        sha256=digest,
        lengths_sha256="",
    )
    with written_aside(os.path.join(folder, shard.lengths_file)) as part:
        with open(part, "wb") as file:
            np.savez(file, **arrays)
        return shard._replace(lengths_sha256=file_digest(part))


def _records(documents, lengths):
    """Encode all records, and add to the lists of lengths."""
    for ids, sentences in documents:
        counts = split_records(sentences)
        lengths["sentences"].append(sentences)
        lengths["documents"].append([len(sentences)])
        lengths["records"].append(counts)
        ends = np.cumsum(sentences, dtype=np.int64)
        first = token = 0
        for last in np.cumsum(counts).tolist():
            end = int(ends[last - 1])
            yield encode_record(ids[token:end], sentences[first:last])
            first, token = last, end


def has_array_record() -> bool:
    """Tell whether ArrayRecord is installed; some systems have no wheel of it."""
    try:
        import array_record.python.array_record_module  # noqa: F401
    except ImportError:
        return False
    return True


def _write_records(path, extension, records):
    if extension == "array_record":
        from array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(path, "group_size:1,uncompressed")
        failures: type[Exception] = RuntimeError
    else:
        import tensorflow as tf

        writer = tf.io.TFRecordWriter(path)
        failures = tf.errors.OpError
    try:
        try:
            for record in records:
                writer.write(record)
        finally:
            writer.close()
    except failures as error:  # not an `OSError`, even if the disk is full
        raise OSError(errno.EIO, f"A shard can't be written: {error}", path) from error


def read_lengths(folder: Path, shard: Shard) -> dict[str, np.ndarray]:
    """Read the lengths in a shard.

    Args:
        folder: path of the corpus.
        shard: `Shard`.

    Returns:
        A dict of uint32 arrays: `sentences`, `documents` and `records`.

    Raises:
        OSError: if the file isn't there.
        ValueError: if it is damaged.
    """
    path = os.path.join(folder, shard.lengths_file)
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in _LENGTHS}
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    sizes = {key: len(array) for key, array in arrays.items()}
    expected = {key: getattr(shard, key) for key in _LENGTHS}
    tokens = int(arrays["sentences"].sum(dtype=np.int64))
    if sizes != expected or tokens != shard.tokens:
        raise ValueError(
            f"{path} is damaged: expected {expected} and {shard.tokens} tokens. "
            f"Received: {sizes} and {tokens}."
        )
    return arrays


def check_shard(folder: Path, shard: Shard) -> None:
    """Raise an error unless both files of a shard are as they were written.

    Raises:
        OSError: if a file is missing.
        ValueError: if a file is damaged.
    """
    named = {shard.file: shard.sha256, shard.lengths_file: shard.lengths_sha256}
    for name, expected in named.items():
        path = os.path.join(folder, name)
        if file_digest(path) != expected:
            raise ValueError(f"{path} is damaged: its SHA-256 is not {expected}.")


# Bytes around the data of a TFRecord. Before it: its length and the length's checksum.
# After it: its checksum.
_BEFORE, _AFTER = 12, 4
# Bytes in the files of ArrayRecord, which have Riegeli's format: of a block, of its
# header, and of the header of a chunk.
_BLOCK, _BLOCK_HEADER, _CHUNK = 1 << 16, 24, 40
_RANDOM_ACCESS = "readahead_buffer_size:0,max_parallelism:0"


class ShardReader:
    """Reads the records of a shard, by their numbers. May be shared by threads.

    Args:
        path: path of the file with the shard's tokens.
        dtype: dtype of ids; see `Manifest`.

    Raises:
        OSError: if the file isn't there.
        ImportError: if `array_record` isn't installed, and the file needs it.
        ValueError: if the file is damaged.

    Example:

    ```python
    from keras_bertfam.corpora.shards import ShardReader
    from keras_bertfam.corpora.manifest import Manifest
    manifest = Manifest.read("prepared")
    path = f"prepared/{manifest.shards[0].file}"
    reader = ShardReader(path, manifest.dtype)
    ids, lengths = reader.record(0)
    ```
    """

    def __init__(self, path: Path, dtype: Any) -> None:
        self.path = os.fspath(path)
        self.dtype = np.dtype(dtype)
        if not os.path.isfile(self.path):
            raise FileNotFoundError(
                errno.ENOENT, "This shard of the corpus is not there", self.path
            )
        opened = _ArrayRecords if self.path.endswith(".array_record") else _TFRecords
        try:
            self._records: Any = opened(self.path, self.dtype.itemsize)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"{self.path} is damaged: {error}") from error

    def __len__(self) -> int:
        return len(self._records)

    def record(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Read the ids of a record, and the lengths of its sentences."""
        return self.records([number])[0]

    def records(self, numbers: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Read the ids of records, and the lengths of their sentences.

        Args:
            numbers: numbers of records in the shard, from 0.

        Raises:
            IndexError: if there is no such record.
            ValueError: if a record is damaged; the message has its number.
        """
        found = self.data([int(number) for number in numbers])
        return [decode_record(data, self.dtype) for data in found]

    def data(self, numbers: Sequence[int]) -> list[bytes]:
        """Read the bytes of records, and check them; see `encode_record`.

        Args:
            numbers: see `records`.

        Raises:
            IndexError, ValueError: as `records`.
        """
        count = len(self)
        for number in numbers:
            if not 0 <= number < count:
                raise IndexError(
                    f"A record of {self.path} must be in [0, {count}). "
                    f"Received: {number}."
                )
        try:
            found = self._records.read(numbers)
        except (RuntimeError, ValueError, IndexError):
            found = [*map(self._read_one, numbers)]  # the error names the record
        for number, data in zip(numbers, found, strict=True):
            if not is_whole(data):
                error = "its checksum differs."
                raise ValueError(self._damaged(number, error))
        return found

    def _read_one(self, number):
        try:
            return self._records.read([number])[0]
        except (RuntimeError, ValueError, IndexError) as error:
            raise ValueError(self._damaged(number, error)) from error

    def _damaged(self, number, error):
        return f"{self.path} is damaged, record {number} of {len(self)}: {error}"


class _Records:
    """The records of a file, whose sizes follow from the file with the lengths."""

    def __init__(self, path, itemsize):
        shard = Shard(os.path.basename(path), *[0] * 5, "", "")
        beside = os.path.join(os.path.dirname(path), shard.lengths_file)
        try:
            with open(beside, "rb") as raw, np.load(raw) as file:
                sentences, counts = file["sentences"], file["records"].astype(np.int64)
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{beside} beside it is damaged: {error}.") from error
        starts = np.cumsum(counts) - counts
        tokens = np.add.reduceat(sentences, starts, dtype=np.int64)
        self.sizes = HEADER + 4 * counts + itemsize * tokens
        self.descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)

    def __len__(self):
        return len(self.sizes)


class _ArrayRecords(_Records):
    """The records of an ArrayRecord file.

    To read one record, ArrayRecord's library takes 2 ns for each record of the file: a
    millisecond in a file of many short records. This class computes instead where a
    record begins, from the sizes of the records before it. That works because
    `write_shard` writes each record as one uncompressed chunk of Riegeli's format. The
    library reads files that were written in another way.
    """

    def __init__(self, path, itemsize):
        super().__init__(path, itemsize)
        # Before a record: its chunk's header, the kind of compression, the size of its
        # size, and its size, with 7 bits a byte.
        around = _CHUNK + 2 + sum(self.sizes >= 1 << bits for bits in (0, 7, 14, 21))
        self._begins = _CHUNK + np.cumsum(around + self.sizes) - self.sizes
        self._reader = None
        ends = {0, len(self) - 1} if len(self) else set()
        if not all(is_whole(self._read(number)) for number in ends):
            self._reader = self._opened(path)

    def _opened(self, path):
        from array_record.python.array_record_module import ArrayRecordReader

        reader = ArrayRecordReader(path, _RANDOM_ACCESS, file_reader_buffer_size=32768)
        if not reader.ok() or reader.num_records() != len(self):
            raise ValueError("it is cut off, or its index is not as it was written.")
        return reader

    def read(self, numbers):
        if self._reader is None:
            return [self._read(number) for number in numbers]
        return [self._reader.read([number])[0] for number in numbers]

    def _read(self, number):
        # Each block of the file begins with a header, even in the middle of a record.
        begin = int(self._begins[number])
        end = begin + int(self.sizes[number])
        inside = _BLOCK - _BLOCK_HEADER
        first, last = begin // inside, (end - 1) // inside
        begin += _BLOCK_HEADER * (first + 1)
        end += _BLOCK_HEADER * (last + 1)
        data = os.pread(self.descriptor, end - begin, begin)
        if first == last:
            return data
        cuts = range((first + 1) * _BLOCK - begin, len(data), _BLOCK)
        starts = [0, *(cut + _BLOCK_HEADER for cut in cuts)]
        bounds = zip(starts, [*cuts, len(data)], strict=True)
        return b"".join(data[start:stop] for start, stop in bounds)


class _TFRecords(_Records):
    """The records of a TFRecord file."""

    def __init__(self, path, itemsize):
        super().__init__(path, itemsize)
        framed = _BEFORE + self.sizes + _AFTER
        self._offsets = np.cumsum(framed) - framed + _BEFORE
        if os.path.getsize(path) != framed.sum():
            raise ValueError("its size is not that of its records.")

    def read(self, numbers):
        sizes, offsets = self.sizes, self._offsets
        return [os.pread(self.descriptor, sizes[n], offsets[n]) for n in numbers]
