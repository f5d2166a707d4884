"""Documents that are nearly equal, or have text of a test set."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Sequence

import numpy as np

from keras_bertfam.arguments import checked
from keras_bertfam.corpora.preparing.sources import find_sources, read_documents
from keras_bertfam.text_files.sources import Part, Reading
from keras_bertfam.types import Path

# A word, or a character of a script that has no spaces between words.
_WORD = re.compile(r"[぀-ヿ㐀-䶿一-鿿豈-﫿]|[^\W぀-ヿ㐀-䶿一-鿿豈-﫿]+")
_CACHED_WORDS = 1 << 20
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ROWS_AT_ONCE = 1 << 17
Similar = Callable[[int, np.ndarray], np.ndarray]
_AT_ONCE = 1024  # shingles, so that their hashes stay in the processor's cache


class _Words(dict[str, int]):
    """Hashes of words, of 64 bits, in a cache."""

    def __missing__(self, word):
        if len(self) >= _CACHED_WORDS:
            self.clear()
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        self[word] = number = int.from_bytes(digest, "little")
        return number


_words = _Words()


def hash_words(text: str) -> np.ndarray:
    """Hash each word of a text, without regard to case and punctuation.

    Args:
        text: str.

    Returns:
        A uint64 array of shape `(words,)`.
    """
    words = _WORD.findall(text.lower())
    return np.fromiter(map(_words.__getitem__, words), np.uint64, len(words))


def hash_shingles(words: np.ndarray, size: int) -> np.ndarray:
    """Hash each run of successive words.

    For example, of four words and `size=3` these are the words 0, 1, 2 and 1, 2, 3.

    Args:
        words: uint64 array of `hash_words`.
        size: int. Number of words in a run.

    Returns:
        A uint64 array of shape `(words - size + 1,)`, empty for fewer words.
    """
    count = max(len(words) - size + 1, 0)
    hashes = np.zeros(count, np.uint64)
    for k in range(size):
        hashes = hashes * _FACTOR + words[k : k + count]
    return _mixed(hashes)


def _mixed(numbers):
    """Mix the bits of numbers, by the last steps of SplitMix64.

    Each bit of a result depends on all bits of its number.
    """
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


@checked
@dataclasses.dataclass(frozen=True)
class NearDuplicates:
    """The rule for documents that are nearly equal, by MinHash.

    A shingle is a run of words. Two documents are nearly equal if they share at least
    `threshold` of all their different shingles.

    The share is estimated. A document's signature has, for each of `bands * band_size`
    hash functions, the least hash of its shingles. The share of equal values in two
    signatures estimates the share of common shingles. Only documents that are equal in
    a whole band are compared. With the defaults these are 98 % of the pairs with a
    share of 0.8.

    Args:
        threshold: float in (0, 1]. Least estimated share. Defaults to `0.8`.
        shingle_size: int. Number of words in a shingle. Defaults to `5`.
        bands: int. Number of bands of a signature. Defaults to `16`.
        band_size: int. Number of hashes in a band. Defaults to `7`.

    Raises:
        ValueError: for an argument out of range.

    Example:

    ```python
    near = keras_bertfam.corpora.NearDuplicates(threshold=0.7, shingle_size=3)
    ```

    Reference: [Broder, 1997](https://doi.org/10.1109/SEQUEN.1997.666900).
    """

    threshold: float = 0.8
    shingle_size: int = 5
    bands: int = 16
    band_size: int = 7

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(
                f"`threshold` must be in (0, 1]. Received: {self.threshold}."
            )
        for name in ("shingle_size", "bands", "band_size"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1. Received: {getattr(self, name)}."
                )

    def signature(self, words: np.ndarray) -> np.ndarray:
        """Compute the signature of a document.

        Args:
            words: uint64 array of `hash_words`. A document with fewer words than
                `shingle_size` is one shingle.

        Returns:
            A uint32 array of shape `(bands * band_size,)`.
        """
        size = max(min(self.shingle_size, len(words)), 1)
        shingles = (hash_shingles(words, size) >> np.uint64(32)).astype(np.uint32)
        factors, terms = _hash_functions(self.bands * self.band_size)
        least = np.full(len(factors), np.iinfo(np.uint32).max, np.uint32)
        for start in range(0, len(shingles), _AT_ONCE):
            hashes = factors[:, None] * shingles[start : start + _AT_ONCE]
            hashes += terms[:, None]
            np.minimum(least, hashes.min(axis=1), out=least)
        return least

    def band_hashes(self, signatures: np.ndarray) -> np.ndarray:
        """Hash each band of signatures.

        Args:
            signatures: uint32 array of shape `(documents, bands * band_size)`.

        Returns:
            A uint64 array of shape `(documents, bands)`.
        """
        parts = signatures.reshape(-1, self.bands, self.band_size).astype(np.uint64)
        hashes = np.zeros(parts.shape[:2], np.uint64)
        hashes += np.arange(self.bands, dtype=np.uint64)
        for k in range(self.band_size):
            hashes = _mixed(hashes * _FACTOR + parts[:, :, k])
        return hashes


@functools.lru_cache(maxsize=8)
def _hash_functions(count):
    """Draw the factors and terms of `count` hash functions."""
    numbers = np.arange(2 * count, dtype=np.uint64)
    numbers = _mixed((numbers + np.uint64(1)) * _FACTOR).astype(np.uint32)
    return numbers[:count] | np.uint32(1), numbers[count:]


def find_copies(
    groups: np.ndarray,
    order: np.ndarray,
    numbers: np.ndarray,
    compare: Callable[[np.ndarray], Similar] | None = None,
) -> np.ndarray:
    """Find documents to drop: a similar document of their group stays.

    For example, groups `[7, 7, 7, 8]`, order `[2, 1, 3, 0]` and numbers `[0, 1, 2, 3]`
    give `[0, 2]`: of group 7 document 1 stays.

    Args:
        groups: uint64 array of shape `(rows,)`: the group of each row.
        order: uint64 array `(rows,)`. The least of similar documents stays.
        numbers: uint64 array `(rows,)`: the document of each row. If `order` is equal,
            the document with the least number stays.
        compare: function, or `None` if all documents of a group are similar. It takes
            the sorted, different numbers of the documents of some groups, and returns a
            function `similar(number, others)`. This one returns a bool array: whether
            each of the documents `others` is similar to document `number`.

    Returns:
        A uint64 array of the numbers of documents, sorted.
    """
    rows = np.lexsort((numbers, order, groups))
    groups, numbers = groups[rows], numbers[rows]
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]][: len(groups)])
    sizes = np.diff(np.r_[starts, len(groups)])
    starts, sizes = starts[sizes > 1], sizes[sizes > 1]
    # Some groups are compared at a time, to hold only their signatures in memory.
    at_once = np.cumsum(sizes) // _ROWS_AT_ONCE
    copies: list[np.ndarray] = []
    for part in np.unique(at_once):
        some = at_once == part
        found = [
            numbers[start : start + size]
            for start, size in zip(starts[some], sizes[some], strict=True)
        ]
        similar = None if compare is None else compare(np.unique(np.concatenate(found)))
        for others in found:
            copies += _copies_in(others, similar)
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *copies]))


def _copies_in(others, similar):
    """Find the documents of a group to drop, in parts."""
    while len(others) > 1:
        best, others = others[0], others[1:]
        others = others[others != best]
        alike = np.ones(len(others), bool)
        if similar is not None and len(others):
            alike = similar(best, others)
        yield others[alike]
        others = others[~alike]


def hash_test_sets(
    test_sets: Sequence[Path], reading: Reading, size: int
) -> np.ndarray:
    """Hash each run of words of test sets.

    Args:
        test_sets: names of sources; see `find_sources`.
        reading: `Reading`.
        size: int. Number of words in a run. Shorter texts have no run.

    Returns:
        A sorted uint64 array of different hashes.
    """
    hashes = [
        hash_shingles(hash_words(text), size)
        for source in find_sources(test_sets, reading, "test_sets")
        for text in read_documents(Part(source), reading)
    ]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]))


def is_contaminated(words: np.ndarray, test_hashes: np.ndarray, size: int) -> bool:
    """Tell whether a document has a run of words of a test set.

    Args:
        words: uint64 array of `hash_words`.
        test_hashes: array of `hash_test_sets`.
        size: int. Number of words in a run.
    """
    if not len(test_hashes):
        return False
    hashes = hash_shingles(words, size)
    places = np.searchsorted(test_hashes, hashes)
    places = np.minimum(places, len(test_hashes) - 1)
    return bool((test_hashes[places] == hashes).any())
