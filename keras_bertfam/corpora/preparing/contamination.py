"""Text of test sets, which no corpus should have."""

from collections.abc import Sequence

import numpy as np

from keras_bertfam.corpora.preparing.near_duplicates import hash_shingles, hash_words
from keras_bertfam.corpora.preparing.reading import read_documents
from keras_bertfam.corpora.preparing.sources import find_sources
from keras_bertfam.text_files.parts import Part, Reading
from keras_bertfam.types import Path


def hash_test_sets(
    test_sets: Sequence[Path], reading: Reading, size: int
) -> np.ndarray:
    """Hash each run of words of test sets.

    Args:
        test_sets: what `find_sources` takes.
        reading: `Reading`.
        size: int. Words in a run; shorter texts have none.

    Returns:
        A uint64 array, sorted, of different numbers.
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
        words: uint64 array, of `hash_words`.
        test_hashes: what `hash_test_sets` returns.
        size: int. Words in a run.
    """
    if not len(test_hashes):
        return False
    hashes = hash_shingles(words, size)
    places = np.searchsorted(test_hashes, hashes)
    places = np.minimum(places, len(test_hashes) - 1)
    return bool((test_hashes[places] == hashes).any())
