"""Make rows of queries and passages: in pairs, from documents, or one by one."""

import math
import numbers
from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.labels import finite_numbers, one_each
from keras_bertfam.layers.data.pairs.passages import (
    PAIRS,
    DocumentPairRows,
    TitledRows,
    refuse_too_long,
)
from keras_bertfam.layers.data.pairs.segments import get_layout
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import PARALLEL, ready_to_iterate
from keras_bertfam.layers.data.rows.batches import checked_buckets, length_buckets
from keras_bertfam.layers.data.user_inputs import (
    as_strings,
    as_texts,
    check_equally_many,
    map_given,
    rows_by_size,
)
from keras_bertfam.tasks.text_preprocessor import PackingPreprocessor
from keras_bertfam.tokenizers.pipeline_ops import tokenize
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, TFDataset, TFTensor, Tokenizer

_SIDES = ("query", "passage")
_NAMES = ("query", "passage", "title")


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class DualEncoderPreprocessor(PackingPreprocessor):
    """Makes rows of queries and of passages for `DualEncoder`.

    `dataset` makes pairs from raw documents for `fit`, in the way that `pairs` names. A
    call makes rows from given pairs.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. Tokens of a passage, special ones and its title's
            included. Defaults to `288`.
        query_length: int or `None`. Tokens of a query, special ones included. Defaults
            to `64`, or `sequence_length` if that is less.
        mask_rate: float in [0, 1] or `None`. For the inverse cloze task: the share of
            blocks from which the query is removed. Defaults to `0.9`.
        titles: bool. Whether the first line of a document is its title. Each passage
            then begins with it: `[start] title [end] block [end]`. Defaults to `False`.
        documents_at_once: int. How many documents are tokenised together. Defaults to
            `256`.
        seed: int. Decides every order, query and coin. Defaults to `0`.
        pairs: how a query and a passage are made from a block of a document. A block
            has as many sentences as fit into a row. Defaults to `"inverse_cloze"`.

            - `"inverse_cloze"`: a sentence of the block, and the block without it, or
              for the share `1 - mask_rate` the whole block;
            - `"crops"`: two runs of the block's tokens, as Contriever has them;
            - `"neighbours"`: the block's sentences up to a place that is drawn, and
              those that follow;
            - `"titles"`: the first line of the document, and the block.

            Queries of crops and neighbours are long, so they need a larger
            `query_length`.
        crop_rates: two floats in (0, 1] or `None`. For crops: the least and the
            greatest share of a block's tokens. Defaults to `(0.1, 0.5)`.
        deletion_rate: float in [0, 1] or `None`. For crops: the share of their tokens
            that is left out. Defaults to `0.1`.
        buckets: sequence of ints or `None`. A batch of given pairs is padded to the
            least of these lengths into which it fits, separately for queries and
            passages. `None` means a full row, a half, a quarter and an eighth, but at
            least 8. `[]` pads to full rows, as `dataset` does.

    Call arguments:
        x: a tuple of queries and passages, or a dict of `query`, `passage` and, if
            there are any, `title`. Queries are a list of strings or a string tensor
            `(batch,)`. So are passages and titles; or they are `(batch, count)`, where
            the first passage of a row answers the query and the others are hard
            negatives, which may also be further columns of the tuple. A single pair has
            no batch axis, and neither has its result.
            KerasHub takes a tuple that is the only argument for `(x, y)`: pass `None`
            as `y` then.
        y: `None`.
        sample_weight: numbers, one for each query, or `None`.

    Returns:
        `(x, y, sample_weight)`: a dict of `query_token_ids` and `query_segment_ids`,
        int32 `(batch, length)`, `query_padding_mask`, bool of that shape, and the same
        of `passage`, `(batch, length)`, or `(batch, count, length)`; int32 zeros
        `(batch,)`: which passage of a row answers; and float32 weights `(batch,)`.
        Texts longer than `query_length` and `sequence_length` are cut. A single pair is
        padded to these lengths.

    Raises:
        ValueError: if an argument is out of its range, or belongs to another way of
            `pairs`.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.DualEncoderPreprocessor(
        tokenizer, sequence_length=128)
    batches = preprocessor.dataset(documents, batch_size=32)
    ```

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 4;
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section 3; crops:
        [Izacard et al., 2021](https://arxiv.org/abs/2112.09118), section 3.1, and its
        released code; neighbours: [Neelakantan et al., 2022](
        https://arxiv.org/abs/2201.10005), section 2.1.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 288,
        query_length: int | None = None,
        mask_rate: float | None = None,
        titles: bool = False,
        documents_at_once: int = 256,
        seed: int = 0,
        pairs: Literal[
            "inverse_cloze", "crops", "neighbours", "titles"
        ] = "inverse_cloze",
        crop_rates: Sequence[float] | None = None,
        deletion_rate: float | None = None,
        buckets: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, seed, **kwargs)
        if query_length is None:
            query_length = min(64, sequence_length)
        if query_length < 3:
            raise ValueError(
                f"`query_length` must be at least 3. Received: {query_length}."
            )
        if pairs == "titles" and titles:
            raise ValueError(
                '`titles` must be `False` with pairs="titles": a passage that '
                "begins with its query teaches nothing. Received: titles=True."
            )
        self.query_length = query_length
        self.pairs = pairs
        settings = _settings_of(
            pairs,
            mask_rate=mask_rate,
            crop_rates=crop_rates,
            deletion_rate=deletion_rate,
        )
        self.mask_rate = settings.get("mask_rate")
        self.crop_rates = settings.get("crop_rates")
        self.deletion_rate = settings.get("deletion_rate")
        self.titles = titles
        self.buckets = checked_buckets(buckets, sequence_length)
        self.documents_at_once = documents_at_once
        self._layout = get_layout(None, tokenizer)
        self.start_last = self._layout.start_last
        self.new_tokens = self._layout.new_tokens
        self.layout = self._layout.name
        self._pairs_in_graph = self.in_graph(self._pairs)
        self._sizes_in_graph = self.in_graph(self._sizes)
        self.build_if_ready()

    def rows_of(self, kind: str) -> TitledRows:
        """Give the layout of rows for a kind of texts.

        Args:
            kind: `"query"` or `"passage"`.

        Raises:
            ValueError: for another kind.
        """
        if kind not in _SIDES:
            raise ValueError(f"`kind` must be one of {_SIDES}. Received: {kind!r}.")
        length = self.query_length if kind == "query" else self.sequence_length
        return TitledRows(self.tokenizer, self._layout, length)

    def make_rows(self) -> DocumentPairRows:
        return DocumentPairRows(
            self.rows_of("query"),
            self.rows_of("passage"),
            self.pairs,
            {name: getattr(self, name) for name in PAIRS[self.pairs]},
            self.titles,
            self.documents_at_once,
        )

    def example(
        self, rows: dict[str, TFTensor], corrupted: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], TFTensor, TFTensor]:
        x = dict(rows)
        weight = x.pop("weight")
        return x, tf.zeros_like(weight, tf.int32), weight

    def corrupt(self, rows: dict[str, TFTensor], seed: TFTensor | None = None) -> Any:
        return self.example(rows, {})

    def call(
        self, x: Any, y: Any = None, sample_weight: Any = None, seed: Any = None
    ) -> Any:
        with tf.device("CPU:0"):
            texts, single = _as_texts(x)
            # The rank is fixed: a graph traced for several ranks doesn't know it.
            shape = texts["passage"].shape
            if y is not None:
                y = self.targets([y] if single else y, shape)
            flat = {n: tf.reshape(x, [-1]) for n, x in texts.items()}
            rows = self._pairs_in_graph(flat, single)
            if shape.rank == 2:
                for name in (n for n in rows if n.startswith("passage")):
                    width = tf.shape(rows[name])[1]
                    rows[name] = tf.reshape(rows[name], [-1, shape[1], width])
            weight = tf.ones(tf.shape(texts["query"]))
            if sample_weight is not None:
                given = finite_numbers(
                    tf.convert_to_tensor(sample_weight), "sample_weight"
                )
                if tf.executing_eagerly() and not single:
                    check_equally_many({"x": texts, "sample_weight": given})
                weight *= tf.cast(one_each(given, "sample_weight"), tf.float32)
        example = self.example({**rows, "weight": weight}, {})
        if y is not None:
            example = (example[0], y, example[2])
        return map_given(lambda value: value[0], example) if single else example

    def targets(self, y: Any, shape: tf.TensorShape) -> TFTensor:
        """Check `y`, and turn it into a tensor.

        Args:
            y: the labels of a call.
            shape: shape of the passages, `(batch,)` or `(batch, count)`.

        Raises:
            ValueError: for any `y`, unless a subclass uses it.
        """
        raise ValueError(
            "`y` must be None: `x` has the passages that answer its queries. "
            f"Received: {type(y).__name__}."
        )

    def _pairs(self, texts, single):
        # The caller batches single pairs, so all get the same length.
        buckets = {kind: None if single else self._buckets(kind) for kind in _SIDES}
        titles = {"query": None, "passage": texts.get("title")}
        sides = {
            kind: self._laid_out(kind, texts[kind], titles[kind], buckets[kind])
            for kind in _SIDES
        }
        return {f"{s}_{n}": x for s, rows in sides.items() for n, x in rows.items()}

    def count_shapes(self) -> int:
        """Count the shapes that batches of given pairs may have."""
        buckets = (self._buckets(kind) for kind in _SIDES)
        return math.prod(1 if sizes is None else len(sizes) for sizes in buckets)

    def _buckets(self, kind):
        """List the lengths of rows; `None` if there is one."""
        length = self.rows_of(kind).sequence_length
        if self.buckets is None:
            sizes = [-(-length // parts) for parts in (8, 4, 2)]
            fitting = [size for size in sizes if size >= 8]
        else:
            fitting = [size for size in self.buckets if size < length]
        return length_buckets(fitting, length) if fitting else None

    def _laid_out(self, kind, texts, titles=None, buckets=None):
        ids = tokenize(self.tokenizer, to_utf8(texts))
        rows = self.rows_of(kind)
        sizes = tf.cast(ids.row_lengths(), tf.int32)
        beside, over = tf.zeros_like(sizes), False
        if titles is not None:
            titles = tokenize(self.tokenizer, to_utf8(titles))
            beside = tf.cast(titles.row_lengths(), tf.int32)
            over = beside > rows.title_length
            beside = tf.minimum(beside, rows.title_length)
        if kind == "query":
            count_cut(sizes > rows.room(beside), "queries", "query_length")
        else:
            count_cut(over | (sizes > rows.room(beside)), "passages")
        return rows(ids, titles, buckets)

    def _sizes(self, texts):
        ids = tokenize(self.tokenizer, to_utf8(texts))
        return tf.cast(ids.row_lengths(), tf.int32)

    def encode_texts(self, kind: str, texts: Any) -> dict[str, TFTensor]:
        """Make rows of queries or passages. Works in a graph.

        Args:
            kind: `"query"` or `"passage"`.
            texts: string tensor `(batch,)`, or for passages a tuple of two, titles and
                texts.

        Returns:
            A dict of `token_ids`, `segment_ids` and `padding_mask`, `(batch, length)`.
            The length is that of a bucket for the longest row.

        Raises:
            ValueError: for another kind.
        """
        titles, texts = texts if isinstance(texts, tuple) else (None, texts)
        buckets = length_buckets(None, self.rows_of(kind).sequence_length)
        return self._laid_out(kind, texts, titles, buckets)

    @as_written
    def batches(
        self, kind: str, texts: Any, batch_size: int, too_long: str
    ) -> tuple[TFDataset, np.ndarray]:
        """Make batches of texts of similar length, for `DualEncoder.encode`.

        Args:
            kind: `"query"` or `"passage"`.
            texts: list of strings, or for passages of tuples of title and text.
            batch_size: int.
            too_long: `"error"` or `"cut"`: refuse or cut texts that don't fit.

        Returns:
            A `tf.data.Dataset` of dicts, and an int array: the index of each text in
            it.

        Raises:
            ValueError: for inputs that aren't texts, or texts that are too long.
        """
        given = as_texts(texts)
        if kind == "query" and isinstance(given, tuple):
            raise ValueError(
                '`texts` must be strings if `kind` is "query". Received: pairs.'
            )
        if too_long == "error":
            self._check_lengths(given, self.rows_of(kind))
        rows, places = rows_by_size(given)

        def encode(*parts):
            row = self.encode_texts(kind, parts if len(parts) == 2 else parts[0])
            return {f"{kind}_{name}": x for name, x in row.items()}

        with self.counted("encoding", len(places)):
            batches = rows.batch(batch_size).map(encode, **PARALLEL)
        return ready_to_iterate(batches), places

    def _check_lengths(self, given, rows_of):
        titles, texts = given if isinstance(given, tuple) else (None, given)
        with tf.device("CPU:0"):
            sizes = self._sizes_in_graph(texts)
            beside = tf.zeros_like(sizes)
            if titles is not None:
                beside = tf.minimum(self._sizes_in_graph(titles), rows_of.title_length)
            over = (sizes - rows_of.room(beside)).numpy()
        refuse_too_long(over, rows_of.sequence_length)

    def get_config(self) -> Config:
        rates = self.crop_rates
        return {
            **super().get_config(),
            "query_length": self.query_length,
            "pairs": self.pairs,
            "mask_rate": self.mask_rate,
            "crop_rates": None if rates is None else list(rates),
            "deletion_rate": self.deletion_rate,
            "titles": self.titles,
            "documents_at_once": self.documents_at_once,
            "buckets": self.buckets,
        }


def _settings_of(pairs, **given):
    """Fill in the settings of a way of making pairs; refuse other ways' settings.

    Another way's setting with its default value is dropped: saved configs may have it.
    """
    if pairs not in PAIRS:
        raise ValueError(f"`pairs` must be one of {[*PAIRS]}. Received: {pairs!r}.")
    rates = given["crop_rates"]
    if rates is not None:
        rates = tuple(rates) if np.iterable(rates) else (rates,)
        two = len(rates) == 2 and all(isinstance(x, numbers.Real) for x in rates)
        if not two or not 0 < rates[0] <= rates[1] <= 1:
            raise ValueError(
                "`crop_rates` must be two numbers in (0, 1], the lesser first. "
                f"Received: {rates!r}."
            )
        given["crop_rates"] = tuple(map(float, rates))
    defaults = {name: value for way in PAIRS.values() for name, value in way.items()}
    for name, value in given.items():
        if name not in PAIRS[pairs] and value not in (None, defaults[name]):
            raise ValueError(
                f"`{name}` must be `None` with pairs={pairs!r}. Received: {value!r}."
            )
    return {
        name: default if given[name] is None else given[name]
        for name, default in PAIRS[pairs].items()
    }


def _as_texts(x):
    """Turn queries, passages and titles into string tensors; tell if it is one pair."""
    if isinstance(x, tuple) and len(x) > 2:
        passages = [as_strings(column, 1, "passage") for column in x[1:]]
        x = x[0], tf.stack(passages, axis=-1)
    given = dict(zip(_NAMES, x, strict=False)) if isinstance(x, tuple) else x
    if not isinstance(given, dict) or not {"query", "passage"} <= {*given} <= {*_NAMES}:
        raise ValueError(
            "`x` must be a tuple of queries and passages, or a dict of `query`, "
            "`passage` and optionally `title`. Give documents to `dataset`. Received: "
            f"{sorted(given) if isinstance(given, dict) else type(x).__name__}."
        )
    query = as_strings(given["query"], 1, "query")
    single = query.shape.rank == 0
    others = [name for name in _NAMES if name in given and name != "query"]
    texts = {n: as_strings(given[n], 1 if single else 2, n) for n in others}
    texts = {"query": query, **texts}
    if single:
        texts = {name: value[None] for name, value in texts.items()}
    shapes = {name: value.shape for name, value in texts.items()}
    shape = shapes["passage"]
    if (shapes["query"].rank, shape[1:].is_fully_defined()) != (1, True) or not (
        shapes["query"].is_compatible_with(shape[:1])
        and shapes.get("title", shape).is_compatible_with(shape)
    ):
        raise ValueError(
            "`x` must have a query for each passage, or for each row of passages, and "
            f"as many titles as passages. Received: shapes {shapes}."
        )
    return texts, single
