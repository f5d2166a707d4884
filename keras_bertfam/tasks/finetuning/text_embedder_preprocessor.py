"""Make rows of texts to embed, and of tuples of texts with or without labels."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.labels import (
    check_values,
    finite_numbers,
    one_each,
)
from keras_bertfam.layers.data.pairs.passages import refuse_too_long
from keras_bertfam.layers.data.pairs.segments import TRUNCATIONS, truncate_pair
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.rows.batches import (
    Batcher,
    batches_by_length,
    length_buckets,
)
from keras_bertfam.layers.data.user_inputs import (
    as_label_tensor,
    as_rows,
    as_strings,
    as_texts,
    check_equally_many,
    is_pairs,
)
from keras_bertfam.serving import Signature, text_signatures
from keras_bertfam.tasks.finetuning.packed_preprocessor import PackedPreprocessor
from keras_bertfam.types import Model, TFDataset, TFTensor

_SINGLE = (
    "`x` must be pairs if `y` has similarities: a tuple of two batches of texts, or a "
    "list of tuples of two texts. Received: single texts."
)
_ALONE = (
    "`x` must be tuples of texts if there is no `y`: `(queries, passages)`, "
    "`(queries, passages, negatives)`, or `(texts, texts)`, whose vectors dropout "
    "makes different. Received: single texts."
)
_TEXTS_AS_LABELS = (
    "`y` must be numbers. Received: strings. Give texts that belong together as one "
    "argument, a tuple: `fit((queries, passages))`."
)
# Ids of texts are below this bound, so that float32 holds them.
_ID_LIMIT = 2**24


def text_ids(x: Any) -> TFTensor:
    """Number texts, so that equal ones have equal numbers. Works in a graph.

    Args:
        x: tuple of string tensors `(batch,)`.

    Returns:
        int32 tensor `(batch, len(x))` of hashes: different texts rarely have equal
        numbers.
    """
    ids = tf.strings.to_hash_bucket_fast(tf.stack(x, axis=1), _ID_LIMIT)
    return tf.cast(ids, tf.int32)


def are_texts(spec: Any) -> bool:
    """Tell whether the elements of a dataset are tuples of texts, without labels."""
    parts = spec if isinstance(spec, tuple) else ()
    return len(parts) > 1 and all(
        getattr(part, "dtype", None) == tf.string for part in parts
    )


@keras.saving.register_keras_serializable("keras_bertfam")
class TextEmbedderPreprocessor(PackedPreprocessor):
    """Makes a row for each text, and for pairs of texts two rows to be compared.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. Defaults to `128`.
        **kwargs: `layout`, `buckets`, `seed`, `truncate` and `packed` of
            `TextClassifierPreprocessor`. The texts of a tuple share a packed row: for
            pairs it has `2 * sequence_length` tokens, for tuples of more texts more.

    Call arguments:
        x: string, list of strings or string tensor of shape `(batch,)`; or a tuple of
            several of them, or a list of tuples of strings: a query, the passage that
            belongs to it, and any number of negatives. KerasHub takes a tuple that is
            the only argument for `(x, y)`: pass `None` as `y` then.
        y: labels for the task's loss: similarities of pairs, numbers from -1 to 1 of
            shape `(batch,)`; numbers of the shape that another loss takes; or `None`.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`, as given. `x` is a dict of
        `token_ids` and `segment_ids`, int32 `(batch, length)`, or `(batch, texts,
        length)` for tuples, and `padding_mask`, bool of that shape. If tuples have no
        labels, `dataset` gives the ids of their texts, int32 `(batch, texts)`, as `y`.

    Raises:
        ValueError: for labels that aren't numbers, or similarities that aren't from -1
            to 1 (in a graph a `tf.errors.InvalidArgumentError`).

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.TextEmbedderPreprocessor(tokenizer)
    preprocessor((["A cat sits."], ["A cat is sitting."]), [0.96])
    ```
    """

    truncations = TRUNCATIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._columns = 2
        self._longest_row = 0
        self._expects_similarities = True
        self._prompts: tuple[str, str] | None = None
        self._labels_have_prompts = False
        super().__init__(*args, **kwargs)
        self._sizes_in_graph = self.in_graph(
            lambda texts: self.tokenize(texts).row_lengths()
        )

    @checked
    def expect(
        self,
        similarities: bool,
        prompts: tuple[str, str] | None,
        labels_have_prompts: bool,
    ) -> None:
        """Set what a task's loss takes.

        Args:
            similarities: bool. Whether labels must be similarities, from -1 to 1, and
                not any numbers.
            prompts: what comes before the first text of a tuple, and before the others;
                `None` for nothing.
            labels_have_prompts: bool. Whether tuples with labels get the prompts, too.
        """
        given = similarities, prompts, labels_have_prompts
        known = self._expects_similarities, self._prompts, self._labels_have_prompts
        if given != known:
            self._expects_similarities = similarities
            self._prompts, self._labels_have_prompts = prompts, labels_have_prompts
            self._call_in_graph = self.in_graph(self._call)  # which has the old ones

    def _with_prompts(self, x, labelled):
        """Put prompts before the texts of tuples."""
        put = self._labels_have_prompts or not labelled
        if self._prompts is None or not (put and isinstance(x, tuple)):
            return x
        query, *passages = x
        before, before_passages = self._prompts
        return (before + query, *(before_passages + each for each in passages))

    @contextlib.contextmanager
    def rows_up_to(self, longest: int) -> Iterator[None]:
        """Put a tuple's texts into one row in training datasets made in this context.

        A short query then isn't padded to the length of its passage.

        Args:
            longest: int. The most tokens in a row. If tuples may be longer, each text
                gets its own row.
        """
        self._longest_row = longest
        try:
            yield
        finally:
            self._longest_row = 0

    def features(self, x: Any) -> dict[str, TFTensor]:
        budget = self.sequence_length - self._layout.specials(1)
        columns = tf.nest.flatten(x)
        # The texts of a tuple are in one row.
        texts = tf.reshape(tf.stack(columns, 1), [-1])
        segments = truncate_pair([self.tokenize(texts)], budget, self.truncate)
        rows = self.lay_out(segments)
        if len(columns) == 1:
            return rows
        return {name: ragged.groups(x, len(columns)) for name, x in rows.items()}

    def as_tensors(self, x: Any) -> Any:
        return as_texts(x, most=None)

    def check_lengths(self, texts: Any) -> None:
        """Raise a `ValueError` for a text, of a list of strings, that is too long."""
        with tf.device("CPU:0"):
            sizes = self._sizes_in_graph(as_strings(texts, name="texts"))
            over = sizes.numpy() + self._layout.specials(1) - self.sequence_length
        refuse_too_long(over, self.sequence_length)

    def from_arrays(self, x: Any, y: Any, sample_weight: Any = None) -> TFDataset:
        texts = self._as_batch(x)
        self._columns = len(texts) if isinstance(texts, tuple) else 1
        if y is not None:
            return super().from_arrays(x, y, sample_weight)
        if self._columns == 1:
            raise ValueError(_ALONE)
        check_equally_many({"x": texts})
        if sample_weight is not None:
            sample_weight = self.as_weights(sample_weight)
            sample_weight = finite_numbers(sample_weight, "sample_weight")
        return as_rows(texts, tf.zeros([texts[0].shape[0], 0]), sample_weight)

    def takes_elements(self, spec: Any) -> bool:
        return are_texts(spec) or super().takes_elements(spec)

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        spec = data.element_spec
        if are_texts(spec):
            self._columns = len(spec)
            return data.map(lambda *texts: (texts, tf.zeros([0])))
        x = spec[0]
        self._columns = len(x) if isinstance(x, tuple) else 1
        return data.map(lambda x, y, *rest: (x, _as_numbers(y), *rest))

    def one_by_one(self, x: Any) -> tuple[TFTensor, int | None]:
        """Put all texts of tuples into one batch, example after example.

        Args:
            x: what the call takes, a batch.

        Returns:
            A string tensor, and the number of texts of each example; `None` for single
            texts.
        """
        texts = self._as_batch(x)
        if not isinstance(texts, tuple):
            return texts, None
        check_equally_many({"x": texts})
        with tf.device("CPU:0"):
            return tf.reshape(tf.stack(texts, axis=1), [-1]), len(texts)

    def of_texts(self, x: Any, sample_weight: Any = None) -> Any:
        """Make rows of tuples of texts, with the texts' ids as `y`.

        Args:
            x: tuple of string tensors `(batch,)`, or lists of strings.
            sample_weight: float tensor `(batch,)` or `None`.

        Returns:
            A tuple of the dict of rows, the ids, and the weights if given.
        """
        texts = self.as_tensors(x)
        with tf.device("CPU:0"):
            ids = text_ids(texts)
        if sample_weight is None:
            return self(x, None), ids
        rows = self(x, None)
        weights = finite_numbers(tf.convert_to_tensor(sample_weight), "sample_weight")
        return rows, ids, tf.cast(one_each(weights, "sample_weight"), tf.float32)

    def _featurize(self, x, y, sample_weight):
        ids = None
        if y is not None and y.shape.rank == 2 and y.shape[1] == 0:
            # `from_arrays` and `from_dataset` stand for no labels by this.
            ids, y = text_ids(x), None
        # Equal texts have equal ids, whatever comes before them.
        x = self._with_prompts(x, y is not None)
        x, y, sample_weight = super()._featurize(x, y, sample_weight)
        return x, y if ids is None else ids, sample_weight

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        similarities = y.shape.rank in (0, 1) or y.shape[1:] == [1]
        if similarities and x is not None and x["token_ids"].shape.rank == 2:
            raise ValueError(_SINGLE)
        numbers = finite_numbers(one_each(y) if similarities else y)
        if not (similarities and self._expects_similarities):
            return numbers
        valid = tf.abs(numbers) <= 1
        return check_values(numbers, y, valid, "cosines, numbers from -1 to 1")

    def as_labels(self, y: Any, x: Any) -> Any:
        y = _as_numbers(as_label_tensor(y))
        if y.shape.rank == 1 and not is_pairs(x):
            raise ValueError(_SINGLE)
        return self.targets(None, y)

    def pad(
        self, example: tuple[Any, Any, Any], buckets: list[int] | None = None
    ) -> tuple[Any, Any, Any]:
        if buckets is None and "sequence_starts" in example[0]:
            buckets = self._tuple_lengths()
        x, y, sample_weight = super().pad(example, buckets)
        # Ragged rows lose the static number of texts when they are gathered.
        texts = {
            name: tf.ensure_shape(value, [value.shape[0], self._columns, None])
            for name, value in x.items()
            if value.shape.rank == 3 and value.shape[1] is None
        }
        return {**x, **texts}, y, sample_weight

    def batcher(self, examples: TFDataset, batch_size: int) -> Batcher:
        if self.packed or not self._share_rows():
            return super().batcher(examples, batch_size)
        return lambda chunks, seed: batches_by_length(
            chunks.map(self._tuples, **PARALLEL), batch_size, seed
        )

    def _share_rows(self):
        return self._columns > 1 and self.row_length <= self._longest_row

    def _tuples(self, x, y, sample_weight):
        """Make one row for each tuple, in the form of a packed row with one example."""
        x = dict(self.as_sequences(x, y, sample_weight))
        y, sample_weight = (x.pop(name) for name in ("y", "sample_weight"))
        column = x.pop("column")
        x["sequence_ids"] = column.with_flat_values(column.flat_values + 1)
        x["sequence_starts"] = x.pop("text_starts")
        return x, y, sample_weight

    def _tuple_lengths(self):
        buckets = self.buckets and [size * self._columns for size in self.buckets]
        return length_buckets(buckets, self.row_length)

    def lengths(self) -> list[int]:
        return self._tuple_lengths() if self._share_rows() else super().lengths()

    @property
    def row_length(self) -> int:
        return self._columns * self.sequence_length

    def as_sequences(
        self, x: dict[str, TFTensor], y: TFTensor, sample_weight: TFTensor
    ) -> dict[str, TFTensor]:
        if x["token_ids"].shape.rank == 2:
            x = {name: ragged.groups(value, 1) for name, value in x.items()}
        texts = x["token_ids"].shape[1]
        sizes = x["token_ids"].values.row_lengths()
        column = tf.repeat(tf.range(tf.size(sizes)) % texts, sizes)
        lengths = tf.reshape(tf.cast(sizes, tf.int32), [-1, texts])
        parts = {name: ragged.merge_inner(value) for name, value in x.items()}
        return {
            **parts,
            "column": parts["token_ids"].with_flat_values(column),
            "text_starts": tf.cumsum(lengths, axis=1, exclusive=True),
            "y": y,
            "sample_weight": sample_weight,
        }

    def as_example(self, rows: dict[str, TFTensor]) -> tuple[Any, TFTensor, TFTensor]:
        x, y, sample_weight = super().as_example(rows)
        tuples, starts = x["sequence_ids"], x["sequence_starts"]
        inside = x.pop("text_starts")
        # The texts of the first pair are 1 and 2, those of the second 3 and 4, ...
        column = x.pop("column")
        texts = tf.where(tuples > 0, inside.shape[-1] * (tuples - 1) + 1 + column, 0)
        both = {
            "sequence_ids": texts,
            "sequence_starts": starts[..., None] + inside,
        }
        return {**x, **both}, y, sample_weight


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SparseEncoderPreprocessor(TextEmbedderPreprocessor):
    """Makes rows as `TextEmbedderPreprocessor` does, with one text in each.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. Defaults to `256`.
        **kwargs: `layout`, `buckets`, `seed` and `truncate` of
            `TextClassifierPreprocessor`.

    Raises:
        ValueError: for `packed=True`.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.SparseEncoderPreprocessor(tokenizer)
    preprocessor((["Who purrs?"], ["A cat."]), None)
    ```
    """

    def __init__(
        self, tokenizer: Any, sequence_length: int = 256, **kwargs: Any
    ) -> None:
        super().__init__(tokenizer, sequence_length, **kwargs)
        refuse_packed(self.packed)


def refuse_packed(packed: bool) -> None:
    """Raise a `ValueError` for packed rows of a `SparseEncoder`."""
    if packed:
        raise ValueError(
            "`packed` must be `False` for a `SparseEncoder`, whose rows have one text "
            "each. Received: packed=True."
        )


def _as_numbers(y):
    if y.dtype == tf.string:
        raise ValueError(_TEXTS_AS_LABELS)
    return tf.cast(y, tf.float32)


def vector_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of an encoder's SavedModel, also of kinds with prompts."""
    signatures = text_signatures(
        model, preprocessor, lambda x: {"embeddings": x}, options, False
    )
    plain = signatures["serving_default"]

    def behind(prompt):
        return lambda text: plain.function(text=tf.strings.join([prompt, text]))

    if model.prompts:
        for name, kind in (("queries", "query"), ("passages", "passage")):
            function = behind(model.prompt_of(kind))
            signatures[name] = dataclasses.replace(plain, function=function)
    return signatures
