"""Random access to the records of a shard."""

import errno
import os
import weakref
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.corpora.manifest import Shard
from keras_bertfam.corpora.shards import HEADER, decode_record, is_whole
from keras_bertfam.types import Path

# Around the data of a TFRecord: its length, the length's checksum; its own checksum.
_BEFORE, _AFTER = 12, 4
# Of the files in which ArrayRecord has its records, see Riegeli's format: a block and
# its header, and the header of a chunk.
_BLOCK, _BLOCK_HEADER, _CHUNK = 1 << 16, 24, 40
_RANDOM_ACCESS = "readahead_buffer_size:0,max_parallelism:0"


class ShardReader:
    """Reads the records of a shard, by their numbers. May be shared by threads.

    Args:
        path: of the file with its tokens.
        dtype: the manifest's.

    Raises:
        OSError: if the file isn't there.
        ImportError: if `array_record` isn't installed, and the file needs it.
        ValueError: if the file is damaged.

    Example:

    ```python
    manifest = keras_bertfam.corpora.Manifest.read("prepared")
    path = f"prepared/{manifest.shards[0].file}"
    reader = keras_bertfam.corpora.ShardReader(path, manifest.dtype)
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
            numbers: of the records in the shard, from 0.

        Raises:
            IndexError: if there is no such record.
            ValueError: if one is damaged: which.
        """
        found = self.data([int(number) for number in numbers])
        return [decode_record(data, self.dtype) for data in found]

    def data(self, numbers: Sequence[int]) -> list[bytes]:
        """Read the bytes of records, see `encode_record`, whose checksums are right.

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
            found = [*map(self._read_one, numbers)]  # to say which
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
    """The records of a file, found by their sizes, which the lengths beside it tell."""

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

    Its library takes 2 ns for each record of the file to read any of them, a
    millisecond where they are short. But a record is one of Riegeli's chunks, not
    compressed, as `write_shard` asks for, so where it begins follows from the sizes of
    those before. The library reads what was written in another way.
    """

    def __init__(self, path, itemsize):
        super().__init__(path, itemsize)
        # Before a record: its chunk's header, how it is compressed, the size of its
        # size, and its size, of 7 bits a byte.
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
        # Each block of the file begins with a header, also within a record.
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
