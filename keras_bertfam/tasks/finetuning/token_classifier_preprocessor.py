"""Make rows of words with a label each."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.labels import (
    NO_LABEL,
    class_numbers,
    have_labels,
    is_no_label,
)
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.user_inputs import as_label_tensor, as_rows
from keras_bertfam.serving import Signature, row_signatures, strings
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import names_of_labels
from keras_bertfam.tasks.finetuning.words_preprocessor import (
    BY_WORD,
    WordsPreprocessor,
    check_by_word,
    checked_words,
    filled_up,
    of_words,
)
from keras_bertfam.tokenizers.pipeline_ops import word_prefix
from keras_bertfam.types import Model, TFDataset, TFTensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TokenClassifierPreprocessor(WordsPreprocessor):
    """Makes rows of words, which are labelled at their first pieces.

    The task reads the state of each word's first piece, so there is one label, weight
    and output for each word. `dataset()`, and so `fit()` and `evaluate()`, split a
    sentence that is longer than a row into parts; every word begins within the row of
    its part. A call makes one row for each sentence, and words that begin beyond its
    end have weight 0. A word of which the tokenizer leaves nothing becomes a mask
    token.

    Args:
        tokenizer: a tokenizer layer. Byte-level ones get a space before each word.
        sequence_length: int. The most tokens in a row, special ones included.
            Defaults to `128`.
        num_classes: int or `None`. See `TextClassifierPreprocessor`.
        label_names: sequence of strings or `None`: the classes in order, such as
            `["O", "B-PER", "I-PER"]`. With them, labels may be strings.
        **kwargs: `layout`, `buckets`, `seed` and `packed` of
            `TextClassifierPreprocessor`.

    Call arguments:
        x: list of lists of words, a list of words, a ragged string tensor, or a
            dense one `(batch, words)` whose rows are filled up with `""`.
        y: labels, ints or strings, in the shape of `x`. Labels of `""` are ignored. A
            label of -100, also as a string, means that a word has none: its weight is
            0.
        sample_weight: float tensor of shape `(batch,)` or `(batch, words)`; in
            `fit()` also a list of lists like `y`.

    Returns:
        `x`, or with labels `(x, y, sample_weight)`. `x` is a dict of `token_ids` and
        `segment_ids`, int32 `(batch, length)`; `padding_mask`, bool; `word_positions`,
        int32 `(batch, words)`, the position of each word's first piece; and
        `word_mask`, bool `(batch, words)`, whether there is a word. `y` is int32 and
        `sample_weight` float32, both `(batch, words)`.

    Raises:
        ValueError: for empty words, rows with more or fewer labels than words, and what
            `TextClassifierPreprocessor` refuses.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.TokenClassifierPreprocessor(
        tokenizer, label_names=["O", "B-PER", "I-PER"])
    preprocessor([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]])
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section
    5.3.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._begins_in_graph = self.in_graph(self._begins)
        self._cut_in_graph = self.in_graph(self._cut)

    def as_labels(self, y: Any, x: Any) -> Any:
        if isinstance(x, tf.RaggedTensor):
            x = x.to_list()
        if isinstance(y, tf.RaggedTensor):
            y = y.to_list()
        if not isinstance(y, (list, tuple)) or not isinstance(x, (list, tuple)):
            words = self.as_tensors(x)
            labels = _in_shape_of(words, as_label_tensor(y))
            if tf.executing_eagerly():
                given = have_labels(labels) & tf.not_equal(words, "")
                given = ragged.keep(labels, given)
                class_numbers(given, self.num_classes, self.label_names)
            return labels
        nested = not all(isinstance(word, (str, bytes)) for word in x)
        x, y = (x, y) if nested else ([x], [y])
        check_by_word(x, y)
        flat = [label for labels in y for label in labels]
        if any(isinstance(label, (str, bytes)) for label in flat):
            y = [[_NONE if is_no_label(tag) else tag for tag in tags] for tags in y]
            flat = [label for labels in y for label in labels]
        if flat:
            labels = as_label_tensor(flat, given=y)
            if labels.shape.rank != 1:
                raise ValueError(
                    "`y` must have one label for each word. Received: labels of the "
                    f"shape {labels.shape[1:]}."
                )
            rows = [row for row, labels in enumerate(y) for _ in labels]
            kept = have_labels(labels).numpy()
            rows = [row for row, keep in zip(rows, kept, strict=True) if keep]
            labels = ragged.keep(labels, kept)
            class_numbers(labels, self.num_classes, self.label_names, rows)
        blank = "" if flat and isinstance(flat[0], (str, bytes)) else 0
        filled = tf.convert_to_tensor(filled_up(y, blank))
        return filled if nested else filled[0]

    def fitting_parts(
        self, sentences: Sequence[Sequence[str]], whole: bool = False
    ) -> tuple[list[list[str]], list[int]]:
        """Split sentences into parts whose words all begin within a row.

        Args:
            sentences: list of lists of words.
            whole: bool. Whether words must also end within the row.

        Returns:
            A tuple of the parts that have words, in order, and the number of each
            part's sentence.

        Raises:
            ValueError: for what isn't words, or with `whole` a word of more tokens
                than a row has.
        """
        checked = [
            checked_words(words, row, "sentences")
            for row, words in enumerate(sentences)
        ]
        flat = [word for words in checked for word in words]
        if not flat:
            return [], []
        counts = [len(words) for words in checked]
        words = ragged.from_lengths(flat, counts)
        with tf.device("CPU:0"):
            begins, sizes = self._begins_in_graph(words, tf.constant(whole))
        owner_of = words.value_rowids().numpy()
        longest = int(np.argmax(sizes))
        if whole and sizes[longest] > self._budget:
            raise ValueError(
                f"`sentences` must have words of at most {self._budget} tokens, the "
                "room that special tokens leave in a row. Received in row "
                f"{owner_of[longest]}: {flat[longest][:40]!r}, a word of "
                f"{sizes[longest]}."
            )
        at = np.flatnonzero(begins)
        parts = [flat[a:b] for a, b in itertools.pairwise([*at, len(flat)])]
        return parts, owner_of[at].tolist()

    def _sizes(self, words):
        """Count the tokens of each word, at least one."""
        pieces = self.tokenize(word_prefix(self.tokenizer) + words)
        return tf.maximum(pieces.row_lengths(), 1)

    def _begins(self, words, whole):
        """Find the words that begin a part, and the sizes of words, as flat tensors.

        A part takes words while there is room for a word's first token, or with `whole`
        for all its tokens.
        """
        sizes = words.with_values(tf.cast(self._sizes(words.flat_values), tf.int32))
        columns = tf.transpose(sizes.to_tensor(0))
        columns = tf.pad(columns, [[0, 1], [0, 0]])  # `scan` needs an initial value

        def take(state, size):
            used, _ = state
            begins = used + tf.where(whole, size, 1) > self._budget
            return tf.where(begins, 0, used) + size, begins

        full = tf.fill(
            tf.shape(columns)[1:], self._budget
        )  # a new sentence begins a new part
        _, begins = tf.scan(take, columns, (full, full > 0))
        given = tf.sequence_mask(words.row_lengths(), tf.shape(columns)[0])
        return ragged.keep(tf.transpose(begins), given), sizes.flat_values

    def _cut(self, x, y, sample_weight=None):
        """Reduce a dense batch of sentences to one part of each."""
        given = tf.not_equal(x, "")
        words, others = ragged.keep_in_matrix(x, given), [of_words(y, given, "y")]
        if sample_weight is not None and sample_weight.shape.rank == 1:
            weights = tf.gather(sample_weight, ragged.row_ids(words))
            others.append(words.with_values(weights))
        elif sample_weight is not None:
            others.append(of_words(sample_weight, given, "sample_weight"))
        begins, _ = self._begins(words, False)
        number = tf.cumsum(tf.cast(begins, tf.int64)) - 1
        count = tf.reduce_sum(tf.cast(begins, tf.int64))
        return tuple(
            ragged.from_row_ids(part.flat_values, number, count).to_tensor()
            for part in (words, *others)
        )

    def from_arrays(self, x: Any, y: Any, sample_weight: Any = None) -> TFDataset:
        rows = super().from_arrays(x, y, sample_weight)
        with tf.device("CPU:0"):
            (batch,) = rows.batch(len(rows))
            parts = self._cut_in_graph(*batch)
        if not len(parts[0]):
            raise ValueError("`x` must have words. Received: none.")
        rows = as_rows(*parts)
        rows.has_parts = True
        return rows

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        if getattr(data, "has_parts", False):
            return data
        rank = data.element_spec[0].shape.rank
        if rank != 1:
            raise ValueError(
                "`data` must have a sentence, words of the shape `(words,)`, in each "
                f"element: batches are made here. Received: {data.element_spec}."
            )
        dense = data.map(lambda *example: tuple(map(tf.convert_to_tensor, example)))
        batches = dense.padded_batch(_TOGETHER).map(self._cut, **PARALLEL)
        return batches.unbatch()

    def targets(self, x: Any, y: TFTensor) -> TFTensor:
        labels = self._most(y)
        return labels.with_values(
            class_numbers(labels.values, self.num_classes, self.label_names)
        )

    # Packed rows have a label at every token; weights mark the words.
    max_sequences = None

    def as_sequences(
        self, x: dict[str, TFTensor], y: TFTensor, sample_weight: TFTensor
    ) -> dict[str, TFTensor]:
        ids, inside = x["token_ids"], x["word_mask"].flat_values
        places = x["word_positions"] + tf.cast(ids.row_starts(), tf.int32)[:, None]
        at = ragged.keep(places.flat_values, inside)[:, None]

        def by_token(words):
            blank = tf.zeros_like(ids.flat_values, words.dtype)
            values = ragged.keep(words.flat_values, inside)
            return ids.with_flat_values(tf.tensor_scatter_nd_update(blank, at, values))

        rest = {name: value for name, value in x.items() if name not in BY_WORD}
        return {**rest, "y": by_token(y), "sample_weight": by_token(sample_weight)}

    def _featurize(self, x, y, sample_weight):
        if y is not None and sample_weight is None:
            sample_weight = tf.ones(tf.shape(x)[:1])
        given = tf.not_equal(x, "")
        if sample_weight is not None and sample_weight.shape.rank == 2:
            sample_weight = of_words(sample_weight, given, "sample_weight")
        if y is not None:
            y = of_words(y, given, "y")
            labelled = have_labels(y.flat_values)
            if isinstance(sample_weight, tf.RaggedTensor):
                weights = sample_weight.flat_values
            else:
                weights = tf.gather(sample_weight, ragged.row_ids(y))
            weights = tf.cast(weights, tf.float32) * tf.cast(labelled, tf.float32)
            sample_weight = y.with_values(weights)
            first = self.label_names[0] if y.dtype == tf.string else 0
            first = tf.cast(first, y.dtype)
            y = y.with_values(tf.where(labelled, y.flat_values, first))
        return super()._featurize(x, y, sample_weight)


_NONE = str(NO_LABEL)
_TOGETHER = 64  # how many sentences of a dataset are split together


def _in_shape_of(words, labels):
    if not labels.shape.is_compatible_with(words.shape):
        raise ValueError(
            "`y` must have a label for each word, the shape of `x`, "
            f"{words.shape}. Received: shape={labels.shape}."
        )
    return labels


def tag_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `TokenClassifier`'s SavedModel."""
    names = tf.constant(names_of_labels(model))

    def tag(words):
        given = tf.not_equal(words, "")
        place = tf.cumsum(tf.cast(given, tf.int32), axis=1) - 1

        def unfinished(done, _):
            return tf.reduce_any(given & (place >= done[:, None]))

        def next_row(done, probabilities):
            """Label the next words of each sentence, as many as a row holds."""
            at = place - done[:, None]
            inputs = preprocessor.encode(tf.where(at >= 0, words, ""))
            outputs = model.probabilities(model(inputs, training=False))
            count = tf.reduce_sum(tf.cast(inputs["word_mask"], tf.int32), 1)
            now = given & (at >= 0) & (at < count[:, None])
            found = tf.gather(outputs, tf.where(now, at, 0), batch_dims=1)
            probabilities = tf.where(now[..., None], found, probabilities)
            return done + count, probabilities

        none = tf.zeros(tf.shape(words)[:1], tf.int32)
        empty = tf.zeros([*tf.unstack(tf.shape(words)), model.num_classes])
        _, probabilities = tf.while_loop(unfinished, next_row, (none, empty))
        return name_labels(probabilities, given)

    def name_labels(probabilities, given):
        ids = tf.argmax(probabilities, -1, output_type=tf.int32)
        return {
            "probabilities": probabilities,
            "label_ids": tf.where(given, ids, -1),
            "labels": tf.where(given, tf.gather(names, ids), ""),
        }

    def name_tokens(outputs, mask):
        return name_labels(model.probabilities(outputs), mask)

    example = {"words": [["Words", "to", "start", "with"]]}
    rows = preprocessor(tf.constant(example["words"]))
    return {
        "serving_default": Signature(tag, {"words": strings("words", 2)}, example),
        **row_signatures(model, preprocessor, rows, name_tokens, **options),
    }
