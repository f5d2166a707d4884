"""Random access to the records of a shard."""

import errno
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bertfam.corpora.manifest import Shard
from keras_bertfam.corpora.shards import HEADER, decode_record, is_whole
from keras_bertfam.types import Path

# Around the data of a TFRecord: its length, the length's checksum; its own checksum.
_BEFORE, _AFTER = 12, 4
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
        except (RuntimeError, ValueError, KeyError) as error:
            raise ValueError(f"{self.path} is damaged: {error}.") from error

    def __len__(self) -> int:
        return len(self._records)

    def record(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids of a record, and the lengths of its sentences."""
        return self.records([number])[0]

    def records(self, numbers: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The ids of records, and the lengths of their sentences.

        Args:
            numbers: of the records in the shard, from 0.

        Raises:
            IndexError: if there is no such record.
            ValueError: if one is damaged: which.
        """
        found = self.data([int(number) for number in numbers])
        return [decode_record(data, self.dtype) for data in found]

    def data(self, numbers: Sequence[int]) -> list[bytes]:
        """The bytes of records, see `encode_record`, whose checksums are right.

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


class _ArrayRecords:
    """The records of an ArrayRecord file."""

    def __init__(self, path, itemsize):
        from array_record.python.array_record_module import ArrayRecordReader

        self._reader = ArrayRecordReader(
            path, _RANDOM_ACCESS, file_reader_buffer_size=32768
        )
        if not self._reader.ok():
            raise ValueError("it is cut off, or its index is not as it was written")

    def __len__(self):
        return self._reader.num_records()

    def read(self, numbers):
        # A call for each: one for all takes four times as long.
        read = self._reader.read
        return [read([number])[0] for number in numbers]


class _TFRecords:
    """The records of a TFRecord file, which are found by the lengths beside it."""

    def __init__(self, path, itemsize):
        shard = Shard(os.path.basename(path), *[0] * 5, "", "")
        with np.load(os.path.join(os.path.dirname(path), shard.lengths_file)) as file:
            sentences, counts = file["sentences"], file["records"]
        starts = np.cumsum(counts, dtype=np.int64) - counts
        tokens = np.add.reduceat(sentences, starts, dtype=np.int64)
        self._sizes = HEADER + 4 * counts.astype(np.int64) + itemsize * tokens
        framed = _BEFORE + self._sizes + _AFTER
        self._offsets = np.cumsum(framed) - framed + _BEFORE
        self._file = open(path, "rb")  # noqa: SIM115
        if os.path.getsize(path) != framed.sum():
            raise ValueError("its size is not that of its records")

    def __len__(self):
        return len(self._sizes)

    def read(self, numbers):
        descriptor = self._file.fileno()
        return [os.pread(descriptor, self._sizes[n], self._offsets[n]) for n in numbers]
