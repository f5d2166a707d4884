"""Make rows of words, each with a head and a relation."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.labels import (
    NO_LABEL,
    check_values,
    class_numbers,
    have_labels,
    is_no_label,
)
from keras_bertfam.layers.data.user_inputs import as_label_tensor
from keras_bertfam.serving import Signature, row_signatures, strings
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import names_of_labels
from keras_bertfam.tasks.finetuning.words_preprocessor import (
    WordsPreprocessor,
    check_by_word,
    of_words,
)
from keras_bertfam.types import Model, TFDataset


@keras.saving.register_keras_serializable("keras_bertfam")
class DependencyParserPreprocessor(WordsPreprocessor):
    """Makes rows of words, each with its head and the relation to it.

    The task reads the state of each word's first piece, so there is one label, weight
    and output for each word. A sentence is a row. Words that begin beyond the row's end
    are cut; words whose heads are cut have weight 0. A word of which the tokenizer
    leaves nothing becomes a mask token.

    Args:
        tokenizer: a tokenizer layer. Byte-level ones get a space before each word.
        sequence_length: int. The most tokens in a row, special ones included.
            Defaults to `128`.
        num_classes: int or `None`: the number of relations. See
            `TextClassifierPreprocessor`.
        label_names: sequence of strings or `None`: the relations in order. With them,
            labels may have strings.
        **kwargs: `layout`, `buckets` and `seed` of `TextClassifierPreprocessor`.

    Call arguments:
        x: list of lists of words, a list of words, a ragged string tensor, or a
            dense one `(batch, words)` whose rows are filled up with `""`.
        y: for each sentence, a list with a pair `(head, relation)` for each word; or a
            tensor `(batch, words, 2)`, of strings if the relations are strings. `head`
            is the number of the word that it depends on, counted from 1, or 0 for a
            root, as in CoNLL-U. `relation` is an int or a string. A relation of -100
            means that a word has no label.
        sample_weight: float tensor of shape `(batch,)` or `(batch, words)`; in
            `fit()` also a list of lists like `y`.

    Returns:
        `x`, or with labels `(x, y, sample_weight)`. `x` is a dict of `token_ids` and
        `segment_ids`, int32 `(batch, length)`; `padding_mask`, bool; `word_positions`,
        int32 `(batch, words)`, the position of each word's first piece; `word_mask`,
        bool `(batch, words)`, whether there is a word; and, with labels, `word_heads`,
        int32 `(batch, words)`. `y`, int32 `(batch, words)`, has the numbers of the
        relations, and `sample_weight` is float32 of that shape.

    Raises:
        ValueError: for empty words, a sentence with more or fewer labels than words, a
            head outside of the sentence, a word that is its own head, `packed`, and
            what `TextClassifierPreprocessor` refuses.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.DependencyParserPreprocessor(
        tokenizer, label_names=["root", "nsubj", "obj"])
    preprocessor([["Ada", "wrote", "notes"]], [[(2, "nsubj"), (0, "root"), (2, "obj")]])
    ```

    Reference: [Dozat and Manning, 2016](https://arxiv.org/abs/1611.01734).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.packed:
            raise ValueError(
                "`packed` must be `False` for a parser: a sentence is a row. Received: "
                "packed=True."
            )

    def as_labels(self, y: Any, x: Any) -> Any:
        x = x.to_list() if isinstance(x, tf.RaggedTensor) else x
        y = y.to_list() if isinstance(y, tf.RaggedTensor) else y
        if not isinstance(y, (list, tuple)) or not isinstance(x, (list, tuple)):
            words, labels = self.as_tensors(x), as_label_tensor(y)
            expected = [*words.shape, 2]
            if not labels.shape.is_compatible_with(expected):
                raise ValueError(
                    "`y` must have a head and a relation for each word, in the shape "
                    f"{tuple(expected)}. Received: shape={labels.shape}."
                )
            if tf.executing_eagerly():
                given = tf.not_equal(words, "")
                sizes = tf.reduce_sum(tf.cast(given, tf.int32), -1, keepdims=True)
                sizes = ragged.keep(tf.broadcast_to(sizes, tf.shape(given)), given)
                heads, relations = self._numbers(ragged.keep(labels, given), sizes)
                places = tf.cumsum(tf.cast(given, tf.int32), axis=-1)
                self._check_own(heads, relations, ragged.keep(places, given))
            return labels
        nested = not all(isinstance(word, (str, bytes)) for word in x)
        x, y = (x, y) if nested else ([x], [y])
        check_by_word(x, y)
        heads, relations = [], []
        for row, labels in enumerate(y):
            for pair in labels:
                if not isinstance(pair, (list, tuple, np.ndarray)) or len(pair) != 2:
                    raise ValueError(
                        "`y` must have `(head, relation)` for each word. Received in "
                        f"row {row}: {pair!r}."
                    )
                heads.append(_as_head(pair[0], row))
                none = is_no_label(pair[1])
                relations.append(NO_LABEL if none else pair[1])
        names = [label for label in relations if isinstance(label, (str, bytes))]
        if names:
            relations = [str(r) if r == NO_LABEL else r for r in relations]
        flat = as_label_tensor(relations or [0], given=y)
        heads = tf.constant(heads or [0])
        if flat.dtype == tf.string:
            heads = tf.strings.as_string(heads)
        elif flat.dtype.is_integer:
            heads, flat = (tf.cast(part, tf.int64) for part in (heads, flat))
        else:
            class_numbers(flat, self.num_classes, self.label_names)
        pairs = tf.stack([heads, flat], axis=1)[: len(relations)]
        counts = [*map(len, y)]
        rows = [row for row, count in enumerate(counts) for _ in range(count)]
        sizes = tf.constant([counts[row] for row in rows], tf.int32)
        heads, relations = self._numbers(pairs, sizes, rows)
        places = [place for count in counts for place in range(1, count + 1)]
        self._check_own(heads, relations, tf.constant(places or [0]), rows)
        filled = tf.RaggedTensor.from_row_lengths(pairs, counts).to_tensor()
        filled = filled if len(rows) else tf.zeros([len(y), 1, 2], pairs.dtype)
        return filled if nested else filled[0]

    def _numbers(self, pairs, sizes, rows=None):
        """Turn pairs into heads and relations; -100 stands for none. Works in a graph.

        Args:
            pairs: tensor `(words, 2)` of all words of a batch.
            sizes: int32 tensor `(words,)`: how many words the sentence of each has.
            rows: list of the numbers of the words' sentences, for errors, or `None`.
        """
        heads, relations = pairs[:, 0], pairs[:, 1]
        labelled = have_labels(relations)
        if heads.dtype == tf.string:
            heads = tf.strings.to_number(heads, tf.int64)
        # Numbers that need 64 bits become numbers out of every range.
        heads = tf.clip_by_value(tf.cast(heads, tf.int64), -1, 2**31 - 1)
        heads = tf.cast(heads, tf.int32)
        fits = (heads >= 0) & (heads <= sizes)
        heads = check_values(
            heads,
            heads,
            fits | ~labelled,
            "heads that are 0 or the number of a word of their sentence",
            rows=rows,
        )
        given = ragged.keep(relations, labelled)
        if rows is not None and tf.executing_eagerly():
            rows = np.asarray(rows)[labelled.numpy()].tolist()
        numbers = class_numbers(given, self.num_classes, self.label_names, rows)
        at = tf.cast(tf.where(labelled), tf.int32)
        blank = tf.fill(tf.shape(heads), NO_LABEL)
        return heads, tf.tensor_scatter_nd_update(blank, at, numbers)

    def _check_own(self, heads, relations, places, rows=None):
        """Check that no word is its own head, and return the heads."""
        fits = tf.not_equal(heads, places) | tf.equal(relations, NO_LABEL)
        what = "heads that are other words"
        return check_values(heads, heads, fits, what, rows=rows)

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        rank = data.element_spec[0].shape.rank
        if rank != 1:
            raise ValueError(
                "`data` must have a sentence, words of the shape `(words,)`, in each "
                f"element: batches are made here. Received: {data.element_spec}."
            )
        return data.map(lambda *example: tuple(map(tf.convert_to_tensor, example)))

    def _featurize(self, x, y, sample_weight):
        if y is None:
            return super()._featurize(x, y, None)
        if sample_weight is None:
            sample_weight = tf.ones(tf.shape(x)[:1])
        given = tf.not_equal(x, "")
        pairs = of_words(y, given, "y")
        row_of = ragged.row_ids(pairs)
        sizes = tf.cast(tf.gather(pairs.row_lengths(), row_of), tf.int32)
        heads, relations = self._numbers(pairs.values, sizes)
        heads = self._check_own(heads, relations, 1 + _places(pairs))
        if sample_weight.shape.rank == 2:
            weights = of_words(sample_weight, given, "sample_weight").values
        else:
            weights = tf.gather(sample_weight, row_of)
        weights = tf.cast(weights, tf.float32)
        features = self.features(x)
        inside = features["word_mask"]
        seen = tf.reduce_sum(tf.cast(inside, tf.int32), 1)
        heads, relations, weights = (
            self._most(pairs.with_values(part)) for part in (heads, relations, weights)
        )
        # A word without a label, or with a head that was cut, isn't counted in the
        # loss.
        there = heads.flat_values <= tf.gather(seen, ragged.row_ids(heads))
        there &= tf.not_equal(relations.flat_values, NO_LABEL)
        kept = tf.cast(there & inside.flat_values, tf.float32)
        features["word_heads"] = heads.with_values(tf.where(there, heads.values, 0))
        targets = relations.with_values(tf.where(there, relations.values, 0))
        return features, targets, weights.with_values(weights.values * kept)


def _as_head(head, row):
    text = head.decode(errors="replace") if isinstance(head, bytes) else head
    if isinstance(text, str) and text.isdecimal():
        return int(text)
    if isinstance(head, (int, np.integer)) and not isinstance(head, bool):
        return int(head)
    raise ValueError(
        "`y` must have heads that are numbers of words, or 0. Received in row "
        f"{row}: {head!r}."
    )


def _places(rows):
    """Number the values of each row of a ragged tensor, from 0."""
    starts = tf.gather(rows.row_starts(), ragged.row_ids(rows))
    return tf.range(tf.shape(starts)[0]) - tf.cast(starts, tf.int32)


def parse_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `DependencyParser`'s SavedModel.

    Each word gets the head with the greatest score, so that heads may not form a tree.
    """
    names = tf.constant(names_of_labels(model))

    def parse(words):
        given = tf.not_equal(words, "")
        place = tf.cumsum(tf.cast(given, tf.int32), axis=1) - 1
        inputs = preprocessor.encode(words)
        outputs = model(inputs, training=False)
        found = name_outputs(outputs, inputs["word_mask"])
        count = tf.reduce_sum(tf.cast(inputs["word_mask"], tf.int32), 1)
        inside = given & (place < count[:, None])
        at = tf.where(inside, place, 0)
        return {
            "heads": tf.where(inside, tf.gather(found["heads"], at, batch_dims=1), -1),
            "relations": tf.where(
                inside, tf.gather(found["relations"], at, batch_dims=1), ""
            ),
        }

    def name_outputs(outputs, mask):
        heads = tf.argmax(outputs["arcs"], -1, output_type=tf.int32)
        numbers = tf.gather(outputs["relations"], heads, batch_dims=2)
        return {
            "heads": tf.where(mask, heads, -1),
            "relations": tf.where(mask, tf.gather(names, numbers), ""),
        }

    def name_rows(outputs, _):
        # A place without a word has -1e30 for all heads.
        return name_outputs(outputs, outputs["arcs"][..., 0] > -1e29)

    example = {"words": [["Words", "to", "start", "with"]]}
    rows = preprocessor(tf.constant(example["words"]))
    return {
        "serving_default": Signature(parse, {"words": strings("words", 2)}, example),
        **row_signatures(model, preprocessor, rows, name_rows, **options),
    }
