"""An index of passages: built by an encoder, searched, saved and loaded."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from keras_bertfam.arguments import check_number, check_several, checked
from keras_bertfam.presets import folders
from keras_bertfam.presets.inspection import CONFIG_FILE
from keras_bertfam.retrieval import storing
from keras_bertfam.retrieval.engines import Vectors, checked_settings
from keras_bertfam.retrieval.passages import (
    Found,
    Passage,
    Passages,
    as_passage,
    as_questions,
    chunks_of,
)
from keras_bertfam.retrieval.token_vectors import TokenVectors
from keras_bertfam.types import Config, Path


class Origin:
    """The state of the encoder that made the vectors of an index.

    Args:
        encoder: a task with `encode`, or `None`.

    Attributes:
        digest: string, of all that its vectors depend on; `None` without an encoder.
    """

    def __init__(self, encoder: Any = None) -> None:
        self.digest = _told_by(encoder, "passage_digest")
        self._sample = _told_by(encoder, "passage_sample")  # when it was last checked

    def check(self, encoder: Any, name: str = "The index") -> None:
        """Raise a `ValueError` unless an encoder would make these vectors today.

        Args:
            encoder: a task with `encode`.
            name: the index's name in the error.
        """
        digest = _told_by(encoder, "passage_digest")
        if digest != self.digest:
            raise ValueError(
                f"{name} must be of this encoder, as it is now: an encoder that was "
                "trained since, or has other rows, needs a new index. Expected: "
                f"{self.digest}. Received: {digest}."
            )
        self._sample = _told_by(encoder, "passage_sample")

    def check_fresh(self, encoder: Any) -> None:
        """Check an encoder, if it may have changed since the last time.

        Args:
            encoder: the task that was checked, or that made the vectors.
        """
        if _told_by(encoder, "passage_sample") != self._sample:
            self.check(encoder)


def check_encodes(encoder: Any) -> None:
    """Raise a `ValueError` unless an encoder makes vectors."""
    if not hasattr(encoder, "encode"):
        raise ValueError(
            "`encoder` must be a task with `encode`, such as a `DualEncoder`. "
            f"Received: {type(encoder).__name__}."
        )


def has_token_vectors(encoder: Any) -> bool:
    """Tell whether `encode` gives a vector for each token, in a list of arrays."""
    return getattr(encoder, "text_axes", 1) > 1


def _told_by(encoder, name):
    return getattr(encoder, name)() if hasattr(encoder, name) else None


# Passages encoded at a time, in batches: these are of like length then.
BATCHES_AT_ONCE = 32


@checked
class Index:
    """An index of passages, searched by the inner products of their vectors.

    FAISS stores and searches dense vectors, SciPy sparse ones. `pip install
    'keras-bertfam[retrieval]'` installs both. The kind `"scann"` needs `pip install
    'keras-bertfam[scann]'`, on Linux.

    Args:
        dim: int. Width of the vectors.
        kind: how the index is searched. `"exact"` compares a query with all vectors.
            `"ivf"` puts vectors into cells, and compares a query with the vectors of
            the nearest cells. The cells are learnt at the first search. `"hnsw"` goes
            from vector to vector in a graph. `"scann"` compares codes of the vectors in
            the nearest cells, then the best vectors themselves. Cells and codes are
            learnt anew at the first search after vectors were added. `"inverted"` is
            for sparse vectors: it compares a query exactly with the vectors that share
            a nonzero place with it, and finds no others.
        encoder: the task that makes the vectors: `DualEncoder`, `TextEmbedder`,
            `SparseEncoder`, `LateInteraction`, or another with `encode`. `None` for an
            index that is searched by vectors only.
        token_vectors: bool. Whether each passage has a vector for each of its tokens,
            as `LateInteraction` makes them. Each token of a query then takes its best
            product with a passage's tokens, and the score is the sum of these.
            `"exact"` compares all passages; other kinds find the nearest tokens, and
            compare the passages that have them.
        **settings: ints; which ones depends on the kind:

            - `"ivf"` has `nlist`, the number of cells, and `nprobe`, the number of
              cells that are searched (16). `nlist` is by default four times the root
              of the number of vectors, or fewer: so many that a cell has 39 vectors
              on average.
            - `"hnsw"` has `m`, the number of links of a vector (32);
              `ef_construction`, the number of candidates for links (80); and
              `ef_search`, the number of candidates in a search (64).
            - `"scann"` has `nlist` (the root of the number of vectors); `nprobe`
              (16); and `reorder`, the number of vectors that are compared themselves
              (100).
            - With `token_vectors`, all kinds except `"exact"` have `token_hits`, the
              number of tokens found for each token of a query (64).
            - `"exact"` and `"ivf"` have `bits`, the bits of each stored number: 32,
              16, 8 or 4. 16 rounds to half precision. 8 and 4 round to one of 256 or
              16 values between the least and the greatest of a column; `"ivf"` rounds
              differences from cells, which are smaller. These values are learnt anew
              whenever vectors are added. Once the index has 65,536 vectors, they are
              learnt for good.

            Greater numbers, except of `nlist`, find more and take more time.

    Raises:
        ValueError: for an argument out of its range.
        ImportError: without the library of the kind.

    Example:

    ```python
    index = keras_bertfam.retrieval.Index(2)
    index.add([[1.0, 0.0], [0.0, 1.0]], ["A cat.", ("Dogs", "A dog.")])
    scores, ids = index.search([[0.0, 2.0]], k=1)
    index.passages[ids[0, 0]]  # ("Dogs", "A dog.")
    ```

    References: [Douze et al., 2024](https://arxiv.org/abs/2401.08281); [Guo et al.,
    2020](https://arxiv.org/abs/1908.10396).
    """

    def __init__(
        self,
        dim: int,
        kind: str = "exact",
        encoder: Any = None,
        token_vectors: bool = False,
        **settings: Any,
    ) -> None:
        if encoder is not None and has_token_vectors(encoder) != token_vectors:
            raise ValueError(
                "`token_vectors` must fit the encoder's vectors. Expected: "
                f"{not token_vectors}, of a {type(encoder).__name__}. Received: "
                f"token_vectors={token_vectors}."
            )
        vectors = TokenVectors if token_vectors else Vectors
        self._vectors: Any = vectors(dim, kind, settings)
        self._passages = Passages()
        self.token_vectors = token_vectors
        self.dim = dim
        self.kind = kind
        self.encoder = encoder
        self._origin = Origin(encoder)

    @classmethod
    @checked
    def build(
        cls,
        passages: Iterable[Any],
        encoder: Any,
        kind: str | None = None,
        batch_size: int = 32,
        duplicates: str = "error",
        **settings: Any,
    ) -> Self:
        """Build an index of passages, with the vectors that an encoder makes of them.

        Args:
            passages: iterable, such as a `tf.data.Dataset`, of strings or of tuples of
                title and text, not in batches. Read once, some at a time.
            encoder: see `Index`.
            kind: see `Index`; `None` for `"inverted"` with a `SparseEncoder`, and
                `"exact"` with others.
            batch_size: int, of the encoder.
            duplicates: `"error"` or `"skip"`: what happens to a passage that the index
                already has.
            **settings: see `Index`.

        Returns:
            An `Index`.

        Raises:
            ValueError: for an argument out of its range, no encoder, no passages, a
                passage without text, or a passage that the index already has.

        Example:

        ```python
        model = keras_bertfam.tasks.DualEncoder.from_preset("my_bert")
        passages = tf.data.TextLineDataset("vocab.txt")
        index = keras_bertfam.retrieval.Index.build(passages, model)
        index.save("my_index")
        index = keras_bertfam.retrieval.Index.load("my_index", model)
        ```
        """
        if duplicates not in ("error", "skip"):
            raise ValueError(
                f'`duplicates` must be "error" or "skip". Received: {duplicates!r}.'
            )
        check_number("batch_size", batch_size, 1)
        check_several("passages", passages, "passages")
        check_encodes(encoder)
        kind = getattr(encoder, "index_kind", "exact") if kind is None else kind
        several = has_token_vectors(encoder)
        checked_settings(kind, settings, several)
        index = None
        for given in _parts(passages, batch_size, duplicates == "skip"):
            vectors = encoder.encode(given, "passage", batch_size)
            if index is None:
                width = np.shape(vectors[0])[-1]
                index = cls(width, kind, encoder, several, **settings)
            index.add(vectors, given)
        if index is None:
            raise ValueError("`passages` must have a passage. Received: none.")
        index._vectors.check_count()
        return index

    @checked
    def update(self, passages: Iterable[Any], batch_size: int = 32) -> tuple[int, int]:
        """Make these the passages of the index; encode only the new ones.

        Other passages are removed. The ids are new: they count the given passages, as
        in a new index. With fewer than 32 `bits`, the vectors that stay are rounded
        again. After an error the index is as it was.

        Args:
            passages: see `build`. A repeated passage is taken once.
            batch_size: int, of the encoder.

        Returns:
            A tuple of ints: the numbers of new passages and of removed ones.

        Raises:
            ValueError: without an encoder, for an encoder that was trained since the
                index was made, for no passages, or for a passage without text.

        Example:

        ```python
        model = keras_bertfam.tasks.DualEncoder.from_preset("my_bert")
        index = keras_bertfam.retrieval.Index.build(["A cat.", "A dog."], model)
        index.update(["A cat.", "A bird.", "A fish."])  # (2, 1)
        ```
        """
        self._check_encoder("update")
        check_several("passages", passages, "passages")
        known = {passage: number for number, passage in enumerate(self._passages)}
        updated = type(self)(
            self.dim, self.kind, self.encoder, self.token_vectors, **self.settings
        )
        updated._vectors = self._vectors.emptied()
        for given in _parts(passages, batch_size, skip=True):
            old = [passage for passage in given if passage in known]
            new = [passage for passage in given if passage not in known]
            vectors: dict[Passage, np.ndarray] = {}
            if old:
                kept = self.vectors([known[passage] for passage in old])
                vectors |= zip(old, kept, strict=True)
            if new:
                encoded = self.encoder.encode(new, "passage", batch_size)
                vectors |= zip(new, encoded, strict=True)
            updated.add([vectors[passage] for passage in given], given)
        if not len(updated):
            raise ValueError("`passages` must have a passage. Received: none.")
        updated._vectors.engine()  # what can't be learnt is refused before the change
        stayed = sum(passage in known for passage in updated.passages)
        changes = len(updated) - stayed, len(self) - stayed
        self._vectors, self._passages = updated._vectors, updated._passages
        return changes

    def add(self, vectors: Any, passages: Sequence[Any]) -> np.ndarray:
        """Add passages with their vectors: all of them, or none after an error.

        Args:
            vectors: float array `(count, dim)`; with `token_vectors`, a list of arrays
                `(tokens, dim)`.
            passages: list of strings, or of tuples of title and text.

        Returns:
            int64 array `(count,)`, the passages' ids. Ids count the passages from 0, in
            the order in which they were added.

        Raises:
            ValueError: for vectors that have another width, aren't finite, or aren't as
                many as the passages; for passages without text, or that the index
                already has.
        """
        check_several("passages", passages, "passages")
        vectors = self._vectors.checked(vectors)
        given = [as_passage(value, number) for number, value in enumerate(passages)]
        if len(given) != len(vectors):
            raise ValueError(
                "`vectors` and `passages` must be equally many. Received: "
                f"{len(vectors)} and {len(given)}."
            )
        twice = self._passages.first_known(given)
        if twice is not None:
            raise ValueError(
                "`passages` must be there once each. Received again: "
                f"{given[twice]!r}, number {twice}."
            )
        self._vectors.add(vectors)
        self._passages.extend(given)
        return np.arange(len(self) - len(given), len(self))

    @checked
    def search(self, vectors: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the passages with the greatest scores for each query, best first.

        Args:
            vectors: float array `(count, dim)`, of queries; with `token_vectors`, a
                list of arrays `(tokens, dim)`.
            k: int. How many passages.

        Returns:
            A tuple of arrays `(count, k)`: float32 scores, and int64 ids. A search may
            find fewer than `k` passages: `"ivf"`, `"hnsw"` and `"scann"` don't reach
            all vectors, and `"inverted"` finds none that share nothing with the query.
            The id is -1 and the score `-inf` in the places left.

        Raises:
            ValueError: for vectors of another width, an empty index, or a `k` greater
                than the number of passages.
        """
        vectors = self._vectors.checked(vectors)
        self._check_not_empty()
        if not isinstance(k, (int, np.integer)) or not 1 <= k <= len(self):
            raise ValueError(
                f"`k` must be in [1, {len(self)}], the passages of the index. "
                f"Received: {k!r}."
            )
        return self._vectors.search(vectors, int(k))

    @checked
    def find(
        self,
        questions: Sequence[str],
        k: int = 5,
        batch_size: int = 32,
        too_long: str | None = None,
    ) -> list[list[Found]]:
        """Find the passages that answer questions, the best first.

        Args:
            questions: list of strings.
            k: int. How many passages for each, or all if the index has fewer.
            batch_size: int, of the encoder.
            too_long: `"error"` or `"cut"`, what is done with a question that doesn't
                fit into a row; `None` for what the encoder does by default.

        Returns:
            List of lists of `Found`.

        Raises:
            ValueError: as `search` does; without an encoder, for an encoder that was
                trained since the index was made, and for a question without text or of
                too many tokens.
        """
        self._check_encoder("find")
        questions = as_questions(questions)
        # An encoder of one's own needn't have the argument.
        more = {} if too_long is None else {"too_long": too_long}
        found, k = [], min(k, max(len(self), 1))
        # Some at a time: sparse vectors are as wide as a vocabulary.
        for part in chunks_of(questions, batch_size * BATCHES_AT_ONCE):
            vectors = self.encoder.encode(list(part), "query", batch_size, **more)
            found += [
                [
                    Found(float(score), int(number), self.passages[number])
                    for score, number in zip(*row, strict=True)
                    if number >= 0
                ]
                for row in zip(*self.search(vectors, k), strict=True)
            ]
        return found

    def vectors(self, ids: Any) -> Any:
        """Give the vectors of passages.

        Args:
            ids: int array of any shape.

        Returns:
            float32 array of that shape and `dim`; with `token_vectors`, a list of
            arrays `(tokens, dim)`.

        Raises:
            IndexError: for an id without a passage.
            ValueError: for what isn't ints.
        """
        given, ids = ids, np.asarray(ids)
        if ids.dtype.kind not in "iu" and ids.size:
            raise ValueError(f"`ids` must be ints. Received: {given!r}.")
        ids = ids.astype("int64")
        outside = ids[(ids < 0) | (ids >= len(self))]
        if outside.size:
            self._passages[int(outside[0])]  # which raises the error
        return self._vectors.take(ids)

    def __len__(self) -> int:
        return len(self._passages)

    @property
    def settings(self) -> Config:
        """Give the settings of its kind, as the constructor takes them."""
        return dict(self._vectors.settings)

    @property
    def passages(self) -> Passages:
        """Give the passages, by their ids."""
        return self._passages

    def save(self, folder: Path) -> None:
        """Write the index and its texts: all of them, or nothing after an error.

        Args:
            folder: path of a new folder, or of an index that is replaced.

        Raises:
            ValueError: for an empty index, or a folder with a preset.
        """
        self._check_not_empty()
        if os.path.exists(os.path.join(folder, CONFIG_FILE)):
            raise ValueError(
                "`folder` must be new or an index's, not a preset's. Received: "
                f"{os.fspath(folder)!r}, which has a {CONFIG_FILE}."
            )
        facts = {
            "dim": self.dim,
            "count": len(self),
            "kind": self.kind,
            "settings": self._vectors.settings,
            "encoder": self._origin.digest,
        }
        sizes = self._vectors.sizes()
        with folders.write_aside(folder) as aside:
            storing.write(aside, self._vectors.engine(), self._passages, facts, sizes)

    @classmethod
    def load(cls, folder: Path, encoder: Any = None) -> Self:
        """Read an index that was saved.

        The sizes and digests of all files are checked, and no code in them is run.

        Args:
            folder: path.
            encoder: the task that the index was built with, to make the vectors of
                questions; or `None`.

        Returns:
            An `Index`.

        Raises:
            FileNotFoundError: if there is no such folder.
            CheckpointError: for a folder without a whole index.
            ValueError: for another encoder, or an encoder that was trained since.
        """
        stored = folders.read_whole(folder, lambda: storing.read(folder))
        manifest = stored.manifest
        facts = manifest["dim"], manifest["kind"], manifest["settings"]
        index = cls(*facts[:2], None, stored.sizes is not None, **facts[2])
        if stored.sizes is None:
            index._vectors = Vectors(*facts, stored.engine)
        else:
            index._vectors = TokenVectors(*facts, stored.engine, stored.sizes)
        index._passages = Passages(stored.passages)
        index._origin.digest = manifest.get("encoder")
        if encoder is not None:
            if has_token_vectors(encoder) != index.token_vectors:
                raise ValueError(
                    f"The index in {os.fspath(folder)!r} must be of this encoder. "
                    f"Expected: token_vectors={has_token_vectors(encoder)}. Received: "
                    f"{index.token_vectors}."
                )
            index.check_encoder(encoder, f"The index in {os.fspath(folder)!r}")
            index.encoder = encoder
        return index

    def check_encoder(self, encoder: Any, name: str = "The index") -> None:
        """Raise a `ValueError` unless an encoder would make these vectors today.

        Args:
            encoder: see `Index`.
            name: the index's name in the error.
        """
        self._origin.check(encoder, name)

    def _check_encoder(self, method):
        """Raise a `ValueError` without an encoder, or for one that has changed."""
        if self.encoder is None:
            raise ValueError(
                f"`{method}` needs the encoder of the index: give it to `build` or "
                "`load`."
            )
        self._origin.check_fresh(self.encoder)

    def _check_not_empty(self):
        if not len(self):
            raise ValueError("The index must have passages. Received: an empty index.")


def _parts(passages, batch_size, skip):
    """Check passages some at a time, and leave repeated ones out if asked to."""
    read, known = 0, Passages()
    for chunk in chunks_of(passages, batch_size * BATCHES_AT_ONCE):
        given = [as_passage(value, read + i) for i, value in enumerate(chunk)]
        read += len(given)
        if skip:
            given = [passage for passage in given if known.take(passage)]
        if given:
            yield given
