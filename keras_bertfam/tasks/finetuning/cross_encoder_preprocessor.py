"""Make rows of queries with passages, and labels of how relevant these are."""

from typing import Any

import keras
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.labels import check_values, finite_numbers
from keras_bertfam.layers.data.pairs.segments import truncated_lengths
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.user_inputs import as_label_tensor, as_strings
from keras_bertfam.serving import Signature, row_signatures, strings
from keras_bertfam.tasks.finetuning.fine_tuning_preprocessor import (
    FineTuningPreprocessor,
)
from keras_bertfam.types import Model, TFDataset, TFTensor

# The label of an empty place in a list: queries may have unequal numbers of passages.
GAP = -1e30


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class CrossEncoderPreprocessor(FineTuningPreprocessor):
    """Makes a row of tokens for each passage of a query: the query, then the passage.

    If a row is too long, the longer of the two texts, mostly the passage, loses its
    end.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. The most tokens in a row, special ones included.
            Defaults to `256`.
        **kwargs: `layout`, `buckets` and `seed` of `TextClassifierPreprocessor`.

    Call arguments:
        x: queries and passages, in one of these forms:

            - a tuple of queries, strings `(batch,)`, and passages: strings `(batch,)`,
              one for each query, or `(batch, passages)`, a list for each;
            - a tuple of three or more batches of strings: queries, passages that are
              relevant, and passages that aren't;
            - a list of tuples of a query and a passage, or its passages.

            Lists of unequal lengths are filled up with `""`, whose labels don't count.
            With labels, the first passage of a list must not be empty. KerasHub takes a
            tuple that is the only argument for `(x, y)`: pass `None` as `y` then.
        y: numbers `(batch,)`, for lists `(batch, passages)`; or `None`.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`, as given. `x` is a dict of
        `token_ids` and `segment_ids`, int32 `(batch, passages, length)`, and
        `padding_mask`, bool of that shape; `y` is float32 `(batch, passages)`. A single
        passage counts as a list of one.

    Raises:
        ValueError: for inputs that aren't strings; for labels that aren't one number
            for each passage, in the range of the task's loss.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.CrossEncoderPreprocessor(tokenizer)
    preprocessor((["Who purrs?"], [["A cat.", "A dog."]]), [[1.0, 0.0]])
    ```

    Reference: [Nogueira and Cho, 2019](https://arxiv.org/abs/1901.04085), section 3.
    """

    summary = True

    def __init__(
        self, tokenizer: Any, sequence_length: int = 256, **kwargs: Any
    ) -> None:
        super().__init__(tokenizer, sequence_length, **kwargs)
        self._loss: Any = None

    def expect_labels_of(self, loss: Any) -> None:
        """Say which loss the labels are for; its range is then checked.

        Args:
            loss: a `RankingLoss`; another loss takes any numbers.
        """
        self._loss = loss if hasattr(loss, "label_range") else None
        self._call_in_graph = self.in_graph(self._call)  # which has the old range

    def as_tensors(self, x: Any) -> tuple[TFTensor, TFTensor]:
        query, *passages = _columns(x)
        query = as_strings(query, name="queries")
        rank = query.shape.rank
        if len(passages) > 1:
            columns = [as_strings(each, rank or 1, "passages") for each in passages]
            return query, tf.stack(columns, axis=-1)
        of_each = as_strings(passages[0], rank + 1, "passages")
        if of_each.shape.rank == rank:
            of_each = of_each[..., None]
        if of_each.shape[-1] == 0:
            raise ValueError("A query must have at least one passage. Received: none.")
        return query, of_each

    def features(self, x: tuple[TFTensor, TFTensor]) -> dict[str, Any]:
        query, passages = x
        rows, number = tf.unstack(tf.shape(passages))
        # Two queries of two passages each: rows 0, 0, 1, 1 of the queries' tokens.
        queries = tf.gather(self.tokenize(query), tf.repeat(tf.range(rows), number))
        segments = [queries, self.tokenize(tf.reshape(passages, [-1]))]
        segments = _cut(segments, self.sequence_length - self._layout.specials(2))
        size = passages.shape[1] or tf.cast(number, tf.int64)
        return {
            name: ragged.groups(value, size)
            for name, value in self.lay_out(segments).items()
        }

    def _featurize(self, x, y, sample_weight):
        x = self.as_tensors(x)  # a dataset gives its elements without batching them
        y = None if y is None else self._labels(x[1], y)
        return super()._featurize(x, y, sample_weight)

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        return y

    def as_labels(self, y: Any, x: Any) -> Any:
        query, passages = self.as_tensors(x)
        y = as_label_tensor(y)
        if query.shape.rank:
            return self._labels(passages, y)
        return self._labels(passages[None], y[None])[0]

    def _labels(self, passages, y):
        """Check the labels, one for each passage, and mark those of empty places."""
        if y.shape.rank == 1:
            y = y[:, None]
        if y.shape.rank != 2 or not y.shape.is_compatible_with(passages.shape):
            raise ValueError(
                "`y` must be a number for each passage, of the shape "
                f"{tuple(passages.shape)}. Received: shape {tuple(y.shape)}."
            )
        numbers, gaps = finite_numbers(y), tf.equal(passages, "")
        text = tf.broadcast_to(~gaps[:, :1], tf.shape(y))
        check = "labels of lists whose first passage has text"
        numbers = check_values(numbers, y, text, check)
        numbers = tf.where(gaps, GAP, numbers)
        if self._loss is None:
            return numbers
        least, most = self._loss.label_range(passages.shape[1] == 1)
        valid = gaps | ((numbers >= least) & (numbers <= most))
        expected = f"numbers from {least:g} to {most:g}, the range of {self._loss.name}"
        return check_values(numbers, y, valid, expected)

    def from_arrays(self, x: Any, y: Any, sample_weight: Any = None) -> TFDataset:
        """Make an unbatched dataset. Without labels the first passage is relevant.

        Raises:
            ValueError: without labels, unless `x` has three or more batches of strings,
                and as the call.
        """
        if y is None and len(_columns(x)) > 2:
            _, passages = self.as_tensors(x)
            y = tf.one_hot(tf.zeros_like(passages[:, 0], tf.int32), passages.shape[1])
        return super().from_arrays(x, y, sample_weight)

    def has_lists(self, x: Any) -> bool:
        """Tell whether queries have lists of passages in the inputs of a call."""
        query, *passages = _columns(x)
        rank = as_strings(query, name="queries").shape.rank
        return len(passages) > 1 or as_strings(passages[0], rank + 1).shape.rank > rank

    def one_by_one(
        self, x: tuple[TFTensor, TFTensor], y: TFTensor
    ) -> tuple[tuple[TFTensor, TFTensor], TFTensor]:
        """Repeat a query for each of its passages, and leave out empty places.

        Args:
            x: what `as_tensors` gives, a batch.
            y: what `as_labels` gives, a batch.

        Returns:
            A tuple of queries and passages, and the labels: string tensors and a float
            tensor `(count,)`.
        """
        query, passages = x
        there = tf.not_equal(passages, "")
        queries = tf.repeat(query, tf.math.count_nonzero(there, axis=1))
        return (queries, passages[there]), y[there]


def _columns(x):
    """Turn a list of pairs into a tuple of columns; refuse other inputs."""
    if isinstance(x, list) and x and isinstance(x[0], tuple):
        if any(not isinstance(each, tuple) or len(each) != len(x[0]) for each in x):
            raise ValueError(
                "`x` must be tuples of a query and its passages, all of the same "
                f"length. Received: {x[:3]!r}."
            )
        x = tuple(map(list, zip(*x, strict=True)))
    if not isinstance(x, tuple) or len(x) < 2:
        raise ValueError(
            "`x` must be a tuple of queries and passages, or a list of such tuples. "
            f"Received: {x!r:.200}."
        )
    return x


def _cut(segments, budget):
    """Cut the ends off pairs as the library `tokenizers` does for cross-encoders.

    For example, texts of 9 and 12 tokens and room for 13 leave 6 and 7: the longer text
    keeps the odd token. BERT's own code, like other tasks here, gives it to the first
    text.
    """
    first, second = (tf.cast(x.row_lengths(), tf.int32) for x in segments)
    count_cut(first + second > budget)
    ours, theirs = truncated_lengths(first, second, budget)
    odd = (ours > theirs) & (ours < first) & (theirs < second) & (first <= second)
    odd = tf.cast(odd, tf.int32)
    return [
        ragged.head(segments[0], ours - odd),
        ragged.head(segments[1], theirs + odd),
    ]


def score_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `CrossEncoder`'s SavedModel."""

    def named(outputs, mask=None):
        return {"scores": model.activate(outputs)}

    def score(query, passage):
        rows = preprocessor.encode((query, passage))
        return named(model(rows, training=False)[:, 0])

    example = {"query": ["A question?"], "passage": ["A text that may answer it."]}
    rows = preprocessor((example["query"], example["passage"]), None)
    rows = {name: value[:, 0] for name, value in rows.items()}
    inputs = {"query": strings("query"), "passage": strings("passage")}
    return {
        "serving_default": Signature(score, inputs, example),
        **row_signatures(model, preprocessor, rows, named, **options),
    }
