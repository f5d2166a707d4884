"""Read or train static vectors of words, the same in every context."""

import collections
import gzip
import itertools
import os
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_bertfam.analysis.word_states import words_of
from keras_bertfam.arguments import check_number, checked
from keras_bertfam.types import Path

_FASTTEXT = struct.pack("<i", 793712314)  # Facebook's own files begin with this number
_ROWS = 256  # words of a text that gensim reads; it drops the rest silently.
_MOST_WORDS = 10_000
# Errors that gensim and gzip raise for a truncated or changed file.
_DAMAGED = (
    *(ArithmeticError, AssertionError, EOFError, LookupError),
    *(gzip.BadGzipFile, zlib.error),
)


@checked
def read_static_vectors(path: Path, limit: int | None = None) -> Any:
    """Read vectors of words from files of GloVe, word2vec or fastText.

    The format is recognised from the file. GloVe's text has a word and its numbers on
    each line. Text of word2vec and fastText (`.vec`) begins with a line of counts.
    word2vec and fastText (`.bin`) also have binary files. All may be compressed by
    gzip, with names that end in `.gz`.

    Args:
        path: str or path of the file.
        limit: int. The most words to read, the first ones, which in published files are
            the most frequent; `None` for all. It isn't possible for fastText's binary
            files.

    Returns:
        A `gensim.models.KeyedVectors`: `most_similar("play")` gives neighbours,
        `["play"]` a float32 array `(dim,)`. For fastText's binary files it has vectors
        for every word, made from the word's parts.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a file in another format or a damaged file, and for `limit` with
            a binary file of fastText.
        ImportError: without gensim, which the `vectors` extra has.

    Example:

    ```python
    with open("glove.txt", "w") as file:
        file.write("cat 0.1 0.9\\ndog 0.2 0.8\\nred -0.7 0.1\\n")
    vectors = keras_bertfam.analysis.read_static_vectors("glove.txt")
    vectors.most_similar("cat", topn=1)[0][0]  # "dog"
    ```

    References: [Pennington et al., 2014](https://aclanthology.org/D14-1162/);
    [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546); [Bojanowski et al.,
    2016](https://arxiv.org/abs/1607.04606).
    """
    _need_gensim()
    from gensim.models import KeyedVectors, fasttext

    path = os.fspath(path)
    if limit is not None:
        check_number("limit", limit, 1)
    try:
        with _opened(path) as file:
            begin, second = file.readline(), file.readline()
    except _DAMAGED as error:
        raise _damaged(path, error) from error
    if begin.startswith(_FASTTEXT) and limit is not None:
        raise ValueError(
            f"`limit` must be `None` for fastText's binary files. Received: {limit}."
        )
    try:
        if begin.startswith(_FASTTEXT):
            return fasttext.load_facebook_vectors(path)
        counts = _counts(begin)
        if counts is not None and not _is_text(second, counts[1]):
            return KeyedVectors.load_word2vec_format(
                path, binary=True, limit=limit, unicode_errors="replace"
            )
        return _read_text(path, counts, limit)
    except _DAMAGED as error:
        raise _damaged(path, error) from error
    except (NotImplementedError, ValueError, struct.error) as error:
        raise ValueError(
            f"`path` must be a file of GloVe, word2vec or fastText. Received: {path}. "
            f"{str(error).removesuffix('.')}."
        ) from error


def _need_gensim():
    try:
        import gensim  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Static vectors need gensim: pip install keras-bertfam[vectors]."
        ) from error


def _damaged(path, error):
    return ValueError(f"{path} is damaged: {str(error).removesuffix('.')}.")


def _opened(path):
    return gzip.open(path) if path.endswith(".gz") else open(path, "rb")


def _counts(line):
    """Give the numbers of words and dimensions, if a file's first line has them."""
    parts = line.split()
    return [*map(int, parts)] if len(parts) == 2 and line[:1].isdigit() else None


def _is_text(line, dim):
    try:
        return len(_parts(line, dim)[1]) == dim
    except ValueError:
        return False


def _parts(line, dim):
    """Split a line into a word, which may contain spaces, and its numbers."""
    # word2vec cuts long words, even within a character.
    word, *numbers = line.decode(errors="replace").rstrip(" \n\r").rsplit(" ", dim)
    return word, np.array(numbers, "float32")


def _read_text(path, counts, limit):
    from gensim.models import KeyedVectors

    found: dict[str, np.ndarray] = {}
    with _opened(path) as file:
        if counts is None:
            dim = len(file.readline().split()) - 1
            file.seek(0)
        else:
            file.readline()
            dim = counts[1]
        lines = filter(bytes.strip, file)
        for number, line in enumerate(itertools.islice(lines, limit)):
            word, numbers = _parts(line, dim)
            if not dim or len(numbers) != dim or not np.isfinite(numbers).all():
                raise ValueError(
                    f"Vector {number} must have {dim or 'some'} finite numbers."
                )
            # Published files have some words twice; the first one is the more frequent.
            found.setdefault(word, numbers)
    if limit is None and counts is not None and number + 1 != counts[0]:
        raise EOFError(f"{counts[0]} vectors must be there. Received: {number + 1}.")
    vectors = KeyedVectors(dim)
    vectors.add_vectors([*found], np.stack([*found.values()]))
    return vectors


@checked
def train_static_vectors(
    documents: Any,
    dim: int = 100,
    *,
    window: int = 5,
    min_frequency: int = 5,
    num_negatives: int = 5,
    epochs: int = 5,
    learning_rate: float = 0.025,
    match_case: bool = False,
    seed: int = 0,
) -> Any:
    """Train vectors of words on documents: skip-gram with negative sampling.

    Occurrences of words that make up more than a thousandth of the text are left out at
    random; the more frequent a word, the more of them.

    Args:
        documents: list of str, split into words as by `word_vectors`, or of lists of
            words.
        dim: int. The width of a vector.
        window: int. The most words on either side that are predicted.
        min_frequency: int. Rarer words have no vector.
        num_negatives: int. Number of wrong words for each correct one.
        epochs: int.
        learning_rate: float. It falls linearly.
        match_case: bool. Whether `Bank` and `bank` are different words.
        seed: int. The same seed gives the same vectors.

    Returns:
        A `gensim.models.KeyedVectors`, see `read_static_vectors`.

    Raises:
        ValueError: if no word is frequent enough, or for a number out of its range.
        ImportError: without gensim, which the `vectors` extra has.

    Example:

    ```python
    texts = keras_bertfam.corpus.python_documentation()
    vectors = keras_bertfam.analysis.train_static_vectors(texts, dim=16, epochs=1)
    vectors.most_similar("object", topn=5)
    ```

    Reference: [Mikolov et al., 2013](https://arxiv.org/abs/1310.4546), section 2.2; its
    released code for the defaults.
    """
    _need_gensim()
    from gensim.models import Word2Vec

    for name, value in (("dim", dim), ("window", window), ("epochs", epochs)):
        check_number(name, value, 1)
    same = str if match_case else str.casefold
    texts = [[*map(same, words)] for words in words_of(documents)]
    parts = [
        text[k : k + _MOST_WORDS]
        for text in texts
        for k in range(0, len(text), _MOST_WORDS)
    ]
    counts = collections.Counter(itertools.chain.from_iterable(texts))
    most = max(counts.values(), default=0)
    if most < max(min_frequency, 1):
        raise ValueError(
            f"`documents` must have some word at least {max(min_frequency, 1)} times, "
            f"see `min_frequency`. Received: at most {most} times."
        )
    # With several threads the order of updates would vary.
    trained = Word2Vec(
        parts,
        vector_size=dim,
        alpha=learning_rate,
        window=window,
        min_count=min_frequency,
        negative=num_negatives,
        epochs=epochs,
        seed=seed,
        sg=1,
        workers=1,
    )
    return trained.wv


@checked
def similar_words(
    vectors: Any,
    words: Iterable[str] | None = None,
    top_k: int = 10,
    least: float = 0.0,
) -> dict[str, list[str]]:
    """List the words whose vectors are most similar to each word's, by the cosine.

    Args:
        vectors: `gensim.models.KeyedVectors`, see `read_static_vectors` and
            `train_static_vectors`.
        words: words for which to list others, or `None` for all with vectors. Words
            without a vector are left out.
        top_k: int. The most words for each.
        least: float. The least cosine.

    Returns:
        Dict from words to lists of words, the most similar first. It is the argument
        `similar_words` of `MaskedLMPreprocessor`, for MacBERT. Words without similar
        ones are left out.

    Example:

    ```python
    texts = keras_bertfam.corpus.python_documentation()
    vectors = keras_bertfam.analysis.train_static_vectors(texts, dim=16, epochs=1)
    keras_bertfam.analysis.similar_words(vectors, ["object"], top_k=2)
    ```

    Reference: [Cui et al., 2020](https://arxiv.org/abs/2004.13922), section 3.
    """
    known = vectors.index_to_key
    given = known if words is None else [*dict.fromkeys(words)]
    places = [vectors.key_to_index[w] for w in given if w in vectors.key_to_index]
    normed = vectors.get_normed_vectors()
    top = min(top_k, len(known) - 1)
    found = {}
    for first in range(0, len(places) if top > 0 else 0, _ROWS):
        rows = np.array(places[first : first + _ROWS])
        cosines = normed[rows] @ normed.T
        cosines[np.arange(len(rows)), rows] = -np.inf
        best = np.argpartition(-cosines, top - 1)[:, :top]
        for row, own, others in zip(rows, cosines, best, strict=True):
            others = sorted(others, key=lambda k: (-own[k], k))  # noqa: B023
            similar = [known[k] for k in others if own[k] >= least]
            if similar:
                found[known[row]] = similar
    return found
