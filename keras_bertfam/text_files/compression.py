"""Bytes of files that may be compressed."""

import contextlib
import gzip
import io
from collections.abc import Iterator
from typing import Any

from keras_bertfam.text_files.parts import Source

_COMPRESSED = 1 << 16


@contextlib.contextmanager
def opened(source: Source) -> Iterator[Any]:
    """Open a file to read its bytes as they were before it was compressed."""
    if source.name.endswith(".gz"):
        with gzip.open(source.name) as file:
            yield file
    elif source.name.endswith(".zst"):
        try:
            import zstandard
        except ImportError as error:
            raise ImportError(
                "Files of Zstandard need a library: pip install keras-bertfam[beam]."
            ) from error
        with open(source.name, "rb") as raw:
            frames = _ZstandardFrames(raw, zstandard.ZstdDecompressor())
            with io.BufferedReader(frames, _COMPRESSED) as file:
                yield file
    else:
        with open(source.name, "rb") as file:
            yield file


class _ZstandardFrames(io.RawIOBase):
    """The content of all frames of Zstandard in a file, which must be whole.

    `zstandard.open` reads the first only, and says nothing of one that was cut off.
    """

    def __init__(self, file, decompressor):
        self._file = file
        self._decompressor = decompressor
        self._frame = None
        self._ready = b""

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._ready:
            left_over = self._frame and self._frame.unused_data
            chunk = left_over or self._file.read(_COMPRESSED)
            if not chunk:
                if self._frame is not None and not self._frame.eof:
                    raise EOFError("its last frame was cut off.")
                return 0
            if self._frame is None or self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            self._ready = self._frame.decompress(chunk)
        given = self._ready[: len(buffer)]
        buffer[: len(given)] = given
        self._ready = self._ready[len(given) :]
        return len(given)
