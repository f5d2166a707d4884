"""Look up passages while batches are made."""

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Mixin, Model, TFTensor


class PassageSearch:
    """Finds passages for queries, for preprocessors that make batches.

    It has its own copy of the retriever, which only `refresh` and `adopt` change. It
    needs one because batches are made in other threads, ahead of the steps that train
    the retriever itself.

    Args:
        retriever: `keras_bertfam.tasks.DualEncoder` with a preprocessor.
        index: `keras_bertfam.retrieval.Index` with vectors from this retriever.
        sources: sequence of ints, or `None`. The document of each passage, so that a
            text doesn't get passages of its own document. `None` if each passage is a
            document.
        stale: `"error"` or `"allow"`: refuse or allow an index with other vectors than
            the retriever makes now.

    Attributes:
        retriever: the `DualEncoder` that is trained.
        step: int. The training step whose weights made the index; 0 for the first
            index.

    Raises:
        ValueError: for an empty index, vectors of another size or from another
            retriever, a retriever without a preprocessor, or more or fewer sources than
            passages.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer, sequence_length=32))
    passages = ["Jane Austen wrote Emma.", ("Paris", "It is in France.")]
    index = keras_bertfam.retrieval.Index.build(passages, retriever)
    search = keras_bertfam.tasks.PassageSearch(retriever, index)
    query = retriever.preprocessor.encode_texts("query", ["Who wrote Emma?"])
    numbers = search.find(query, count=1)  # (1, 1)
    [search.passages[number] for number in numbers[0]]
    ```
    """

    def __init__(
        self,
        retriever: Model,
        index: Any,
        sources: Sequence[int] | None = None,
        stale: str = "error",
    ) -> None:
        if getattr(retriever, "preprocessor", None) is None:
            raise ValueError(
                "`retriever` must be a `DualEncoder` with a preprocessor. Received: "
                f"{type(retriever).__name__} without one."
            )
        if stale not in ("error", "allow"):
            raise ValueError(
                f'`stale` must be "error" or "allow". Received: stale={stale!r}.'
            )
        _check_index(index, retriever)
        if stale == "error":
            index.check_encoder(retriever)
        count = len(index)
        self.sources = np.arange(count) if sources is None else np.asarray(sources)
        if self.sources.shape != (count,) or self.sources.dtype.kind not in "iu":
            raise ValueError(
                f"`sources` must be {count} ints, one for each passage. Received: "
                f"shape={self.sources.shape}, dtype={self.sources.dtype}."
            )
        if count and self.sources.min() < 0:
            raise ValueError(
                "`sources` must be at least 0: for a text, -1 stands for no document. "
                f"Received: {self.sources.min()}."
            )
        self.retriever = retriever
        self._copy = self.copied_retriever()
        self._index = index
        self._lock = threading.RLock()
        self.step = 0

    def copied_retriever(self) -> Model:
        """Copy the retriever's current weights into another `DualEncoder`.

        A step's own variables can't be used: under JAX `predict` takes their memory
        over.
        """
        config = {**self.retriever.get_config(), "preprocessor": None}
        copy = type(self.retriever).from_config(config)
        copy.preprocessor = self.retriever.preprocessor
        for ours, theirs in zip(copy.weights, self.retriever.weights, strict=True):
            ours.assign(ops.copy(theirs))
        return copy

    def __len__(self) -> int:
        return len(self._index)

    @property
    def index(self) -> Any:
        """`keras_bertfam.retrieval.Index`: the index that is searched now."""
        return self._index

    @property
    def passages(self) -> Any:
        """The passages, strings or tuples of a title and a text."""
        return self._index.passages

    @property
    def most_of_a_source(self) -> int:
        """int: how many passages the document with the most passages has."""
        return int(np.unique(self.sources, return_counts=True)[1].max())

    def check_count(self, count: int, excluding: bool = False) -> None:
        """Raise a `ValueError` if there are fewer passages for a query.

        Args:
            count: int.
            excluding: bool. Whether passages of the query's own document are left out.
        """
        check_at_least(1, num_passages=count)
        if len(self) != len(self.sources):
            raise ValueError(
                f"`index` must still have its {len(self.sources)} passages. For "
                f"another index make another `PassageSearch`. Received: {len(self)} "
                "passages."
            )
        most = len(self) - (self.most_of_a_source if excluding else 0)
        if count > most:
            raise ValueError(
                f"`num_passages` must be at most {most}, as the index has {len(self)} "
                f"passages. Received: num_passages={count}."
            )

    def adopt(self, index: Any, weights: Any, step: int) -> None:
        """Switch to another index, and to the weights that made it.

        Args:
            index: `keras_bertfam.retrieval.Index` of the same passages.
            weights: list of arrays, the weights of the retriever; `None` for its
                current ones.
            step: int. The training step of these weights.

        Raises:
            ValueError: for an index with other passages, or vectors of another size.
        """
        _check_index(index, self.retriever)
        if [*index.passages] != [*self._index.passages]:
            raise ValueError(
                f"`index` must be of the same {len(self)} passages, in their order. "
                f"Received: one of {len(index)}, of which some are others."
            )
        if weights is None:
            weights = [ops.copy(variable) for variable in self.retriever.weights]
        with self._lock:
            for variable, value in zip(self._copy.weights, weights, strict=True):
                variable.assign(value)
            self._index, self.step = index, step

    @checked
    def find(
        self, query: dict[str, Any], count: int, sources: Any = None
    ) -> np.ndarray:
        """Find the passages with the greatest inner products.

        Args:
            query: dict of arrays, rows of a query encoder such as `token_ids`.
            count: int. Passages for each query.
            sources: int array `(rows,)` or `None`: the document of each query, whose
                passages are left out; -1 for none.

        Returns:
            int32 array `(rows, count)`, numbers of passages, the best first.

        Raises:
            ValueError: if there are fewer passages.
        """
        return self.look_up(query, count, sources)[0]

    @without_gradients
    def look_up(
        self, query: dict[str, Any], count: int, sources: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find passages, with their vectors in the index.

        Returns:
            int32 array `(rows, count)`, and float32 array `(rows, count, dim)`.
        """
        self.check_count(count, sources is not None)
        if sources is not None and np.min(sources, initial=-1) < -1:
            raise ValueError(
                "`source` must be the number of a document, or -1 for none. Received: "
                f"{np.min(sources)}."
            )
        inputs = {name: ops.convert_to_tensor(value) for name, value in query.items()}
        more = 0 if sources is None else self.most_of_a_source
        with self._lock:
            vectors = self._copy.query_vectors(inputs, training=False)
            vectors = np.asarray(ops.convert_to_numpy(vectors), "float32")
            found = np.asarray(self._index.search(vectors, count + more)[1])
            if sources is not None:
                own = (found < 0) | (self.sources[found] == sources[:, None])
                found = np.where(own, -1, found)
                order = np.argsort(own, axis=1, kind="stable")
                found = np.take_along_axis(found, order, axis=1)
            found = found[:, :count]
            if (found < 0).any():
                raise ValueError(
                    f"`index` must find {count + more} passages for each query: let "
                    "it search more of its cells or links. Received fewer in row "
                    f"{int(np.argmax((found < 0).any(1)))}."
                )
            return found.astype("int32"), self._index.vectors(found)

    def texts(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Give titles and texts of passages as bytes; -1 is an empty passage."""
        pairs = [("", "") if i < 0 else _titled(self.passages[i]) for i in numbers.flat]
        columns = [*zip(*pairs, strict=True)]
        titles, texts = (
            np.array([text.encode() for text in column], object).reshape(numbers.shape)
            for column in columns
        )
        return titles, texts


def _check_index(index, retriever):
    if len(index) == 0:
        raise ValueError("`index` must have passages. Received: an empty index.")
    if not hasattr(retriever, "vector_dim") or index.token_vectors:
        raise ValueError(
            "`retriever` and `index` must have one vector for each text. Received: a "
            f"{type(retriever).__name__}, and token_vectors={index.token_vectors}."
        )
    dim = retriever.vector_dim
    if index.dim != dim:
        raise ValueError(
            f"`index` must have vectors of the retriever's size, dim={dim}. "
            f"Received: dim={index.dim}."
        )


def _titled(passage):
    return ("", passage) if isinstance(passage, str) else tuple(passage)


class PassagesPreprocessor(Mixin):
    """Mixin of preprocessors with `num_passages` passages for each row.

    Attributes:
        excluding: bool. Whether passages of a query's own document are left out.
    """

    num_passages: int
    excluding = False
    _search: Any = None

    @property
    def search(self) -> Any:
        """`keras_bertfam.tasks.PassageSearch`, which finds the passages; or `None`."""
        return self._search

    @search.setter
    def search(self, search: Any) -> None:
        search.check_count(self.num_passages, self.excluding)
        self.check_fits(search)
        self._search = search
        self.trace_again()

    def check_fits(self, search: Any) -> None:
        """Raise a `ValueError` for a search that doesn't go with the rows."""

    def trace_again(self) -> None:
        """Drop the graphs that were traced with another `search`."""

    def check_search(self) -> None:
        """Raise a `ValueError` unless `search` is set."""
        if self._search is None:
            raise ValueError(
                "`search` must be set to a `PassageSearch` before texts are read. "
                "Expected: preprocessor.search = PassageSearch(retriever, index). "
                "Received: None."
            )

    def rows_of(
        self, kind: str, texts: TFTensor, titles: TFTensor | None = None
    ) -> dict[str, TFTensor]:
        """Make the retriever's rows, of equal length. Works in a graph.

        Args:
            kind: `"query"` or `"passage"`. A query that is too long raises an error; a
                passage is cut.
            texts: string tensor `(batch,)`.
            titles: string tensor `(batch,)`, `""` for none, or `None`.

        Returns:
            A dict of `token_ids`, `segment_ids` and `padding_mask`, `(batch, length)`.
        """
        self.check_search()
        rows = self._search.retriever.preprocessor.rows_of(kind)
        ids = tokenize(rows.tokenizer, to_utf8(texts))
        if titles is not None:
            titles = tokenize(rows.tokenizer, to_utf8(titles))
        if kind == "query":
            most = rows.room(tf.zeros([], tf.int32))
            refuse_over(
                tf.cast(ids.row_lengths(), tf.int32) - most,
                f"`x` must be queries that fit into rows of {rows.sequence_length} "
                "tokens, special ones included.",
            )
        return rows(ids, titles)

    def find_passages(
        self, query: dict[str, TFTensor], sources: TFTensor | None = None
    ) -> tuple[TFTensor, ...]:
        """Call `search` on the host. Works in a graph.

        Args:
            query: dict of tensors `(batch, length)`, rows of the query encoder.
            sources: int tensor `(batch,)` or `None`, see `PassageSearch.find`.

        Returns:
            Tuple of the numbers of passages, int32 `(batch, num_passages)`; string
            tensors of that shape, titles and texts; and float32 vectors `(batch,
            num_passages, dim)`.
        """
        search, count, names = self._search, self.num_passages, sorted(query)

        def find(*rows):
            own = None if sources is None else rows[-1]
            given = dict(zip(names, rows, strict=False))
            found, vectors = search.look_up(given, count, own)
            return found, vectors, *search.texts(found)

        given = [query[name] for name in names]
        kinds = (tf.int32, tf.float32, tf.string, tf.string)
        with tf.device("CPU:0"):
            found, vectors, *texts = tf.numpy_function(
                find, given if sources is None else [*given, sources], kinds
            )
        shape = [None, count]
        vectors = tf.ensure_shape(vectors, [*shape, search.index.dim])
        return (*(tf.ensure_shape(x, shape) for x in (found, *texts)), vectors)


@contextlib.contextmanager
def refusals_as_value_errors() -> Iterator[None]:
    """Raise what `refuse_over` says in a graph as a `ValueError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        said = re.search(r"assertion failed: \[(.*)\]", str(error))
        raise ValueError(said[1] if said else str(error)) from error


def refuse_over(over: TFTensor, expected: str) -> None:
    """Raise a `tf.errors.InvalidArgumentError` for rows with too many tokens.

    Args:
        over: int32 tensor `(rows,)`, how many tokens each row has too many.
        expected: sentence that says what the inputs must be.
    """
    most = tf.reduce_max(tf.concat([over, [0]], 0))
    row = tf.argmax(tf.concat([over, [0]], 0))
    said = tf.strings.format(
        f"{expected} Received: {{}} tokens too many, in row {{}}.", (most, row)
    )
    tf.debugging.Assert(most <= 0, [said])
