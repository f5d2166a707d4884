"""Make rows of texts with two marked spans, and labels of how they are related."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.labels import check_values
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.user_inputs import as_columns, as_strings
from keras_bertfam.serving import Signature, row_signatures, strings
from keras_bertfam.tasks.finetuning.text_classifier_preprocessor import (
    LabelledPreprocessor,
    names_of_labels,
)
from keras_bertfam.tasks.finetuning.words_preprocessor import checked_words
from keras_bertfam.tokenizers.pipeline_ops import word_prefix
from keras_bertfam.types import Model, TFDataset, TFTensor, Tokenizer

# The markers around the first and the second span.
MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
_SPANS = ("first", "second")


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class RelationClassifierPreprocessor(LabelledPreprocessor):
    """Makes rows of texts with markers around two spans of each.

    The four markers are new tokens, whose ids follow the tokenizer's, so that no text
    contains them. The parts of the text between markers are tokenised separately. One
    span may lie within the other, and either may come first. A text that is too long
    keeps the tokens nearest to a marker. If all tokens between the spans fit, they are
    kept first.

    Args:
        tokenizer: a tokenizer layer.
        sequence_length: int. The most tokens in a row, special ones and markers
            included, at least 12. Defaults to `128`.
        num_classes: int or `None`. See `TextClassifierPreprocessor`.
        label_names: sequence of strings or `None`: the classes in order. With them,
            labels may be strings.
        **kwargs: `layout`, `buckets` and `seed` of `TextClassifierPreprocessor`.

    Call arguments:
        x: dict of `text`, strings `(batch,)`, and `first` and `second`, ints `(batch,
            2)`: the character where each span begins, and the one after its end. With
            `words`, lists of words, in place of `text`, spans are counted in words. Or
            a list of such dicts, one for each example; or a single one.
        y: classes, ints or strings, `(batch,)`, or `None`.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`, as given. `x` is a dict of
        `token_ids` and `segment_ids`, int32 `(batch, length)`, `padding_mask`, bool of
        that shape, and `word_positions`, int32 `(batch, 2)`: the positions of the
        markers before the first and the second span.

    Raises:
        ValueError: for spans that are empty or outside of their text, unknown names in
            `x`, `packed`, and what `TextClassifierPreprocessor` refuses.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.RelationClassifierPreprocessor(
        tokenizer, label_names=["treats", "none"])
    x = {"text": ["Aspirin helps a headache."], "first": [[0, 7]], "second": [[16, 24]]}
    preprocessor(x, ["treats"])
    x = {"words": [["Aspirin", "helps", "me"]], "first": [[0, 1]], "second": [[2, 3]]}
    preprocessor(x, ["none"])
    ```

    References: [Baldini Soares et al., 2019](https://arxiv.org/abs/1906.03158), section
    3.2; [Beltagy et al., 2019](https://arxiv.org/abs/1903.10676), section 3.
    """

    single_rank = 1  # of `first`, the first of the names

    def __init__(
        self, tokenizer: Tokenizer, sequence_length: int = 128, **kwargs: Any
    ) -> None:
        super().__init__(tokenizer, sequence_length, **kwargs)
        if sequence_length < 12:
            raise ValueError(
                "`sequence_length` must be at least 12, for the markers and a token "
                f"beside each. Received: {sequence_length}."
            )
        if self.packed:
            raise ValueError(
                "`packed` must be `False` for relations: a text is a row. Received: "
                "packed=True."
            )
        self.new_tokens = (*self._layout.new_tokens, *MARKERS)

    def as_tensors(self, x: Any) -> Any:
        x = as_columns(x)
        if isinstance(x, tuple) and len(x) == 3:
            x = dict(zip(("text", *_SPANS), x, strict=True))
        given = {*x} if isinstance(x, dict) else None
        if given not in ({"text", *_SPANS}, {"words", *_SPANS}):
            received = sorted(given) if given is not None else type(x).__name__
            raise ValueError(
                "`x` must be a dict of `text` or `words`, `first` and `second`. "
                f"Received: {received}."
            )
        spans = {name: _as_span(x[name], name) for name in _SPANS}
        if "words" in x:
            return self._of_words(x["words"], spans)
        text = as_strings(x["text"], name="text")
        for name, span in spans.items():
            if span.shape.rank != text.shape.rank + 1:
                raise ValueError(
                    f"`{name}` must be a beginning and an end for each text. Received: "
                    f"shape={span.shape}, for texts of shape={text.shape}."
                )
            if tf.executing_eagerly():
                _checked_span(text, span, name)
        return {**spans, "text": text}

    def _of_words(self, words, spans):
        """Join words by spaces, and turn spans of words into spans of characters."""
        words = words.to_list() if isinstance(words, tf.RaggedTensor) else words
        if tf.is_tensor(words):
            words = [[w for w in row if w] for row in words.numpy().tolist()]
        single = bool(len(words)) and isinstance(words[0], (str, bytes))
        rows = [words] if single else words
        rows = [checked_words(row, k, "words") for k, row in enumerate(rows)]
        rows = [[tf.compat.as_str(word) for word in row] for row in rows]
        ends = [np.cumsum([len(word) + 1 for word in row]) - 1 for row in rows]
        found: dict[str, Any] = {}
        for name, span in spans.items():
            span = span.numpy().reshape(-1, 2)
            if len(span) != len(rows):
                raise ValueError(
                    f"`{name}` must have a span for each list of words. Received: "
                    f"{len(span)} for {len(rows)}."
                )
            for row, (begin, end) in enumerate(span.tolist()):
                if not 0 <= begin < end <= len(rows[row]):
                    raise ValueError(
                        f"`{name}` must be spans of words that aren't empty and end "
                        f"within their texts. Received: {[begin, end]}, for "
                        f"{len(rows[row])} words in row {row}."
                    )
            pairs = [
                (ends[k][begin] - len(rows[k][begin]), ends[k][end - 1])
                for k, (begin, end) in enumerate(span.tolist())
            ]
            found[name] = tf.constant(np.array(pairs, "int32").reshape(-1, 2))
        found["text"] = tf.constant([" ".join(row) for row in rows])
        return {name: v[0] for name, v in found.items()} if single else found

    @as_written
    def features(self, x: Any) -> dict[str, TFTensor]:
        parts, order = _split_at_spans(x)
        parts = tf.strings.strip(parts)
        there = tf.not_equal(parts, "")
        parts = tf.where(there, word_prefix(self.tokenizer) + parts, "")
        pieces = self.tokenize(parts)
        known = self.tokenizer.vocabulary_size() + len(self._layout.new_tokens)
        rows = tf.shape(order)[0]
        markers = ragged.from_lengths(
            tf.cast(tf.reshape(known + order, [-1]), pieces.dtype),
            tf.tile(tf.constant([1, 1, 1, 1, 0], tf.int64), [rows]),
        )
        ids = ragged.merge_inner(ragged.groups(ragged.concat([pieces, markers]), 5))
        row = self.lay_out([self._nearest(ids, known)])
        begin = [_position(row["token_ids"], known + k) for k in (0, 2)]
        return {**row, "word_positions": tf.stack(begin, 1)}

    def marked(self, x: Any) -> TFTensor:
        """Write the markers into texts, for people to read."""
        parts, order = _split_at_spans(x)
        names = tf.pad(tf.gather(MARKERS, order), [[0, 0], [0, 1]], constant_values="")
        both = tf.stack([tf.reshape(parts, tf.shape(names)), names], 2)
        return tf.strings.reduce_join(tf.reshape(both, [-1, 10]), 1)

    def _nearest(self, ids, markers):
        """Cut rows to the tokens that are nearest to a marker."""
        budget = self.sequence_length - self._layout.specials(1)
        sizes = tf.cast(ids.row_lengths(), tf.int32)
        count_cut(sizes > budget, "texts")
        dense = ids.to_tensor(-1)
        places = tf.range(tf.shape(dense)[1])
        marked = dense >= markers
        at = tf.reshape(tf.cast(tf.where(marked)[:, 1], tf.int32), [-1, 4])
        far = tf.reduce_min(tf.abs(places[None, :, None] - at[:, None]), -1)
        core = (places >= at[:, :1]) & (places <= at[:, 3:])
        fits = at[:, 3] - at[:, 0] < budget
        far = tf.where(core & fits[:, None], 0, far)
        far = tf.where(dense < 0, tf.int32.max, far)
        rank = tf.argsort(tf.argsort(far, axis=1, stable=True), axis=1)
        return ragged.keep_in_matrix(dense, (rank < budget) & (dense >= 0))

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        x = data.element_spec[0]
        if not isinstance(x, dict) or {*x} != {"text", *_SPANS}:
            raise ValueError(
                "`data` must have dicts of `text`, `first` and `second` in each "
                f"element. Received: {data.element_spec}."
            )
        return data


def _as_span(span, name):
    try:
        span = tf.convert_to_tensor(span)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be pairs of ints, a beginning and an end. Received: "
            f"{span!r}."
        ) from error
    if (
        not span.dtype.is_integer
        or span.shape.rank not in (1, 2)
        or span.shape[-1] != 2
    ):
        raise ValueError(
            f"`{name}` must be pairs of ints, a beginning and an end. Received: "
            f"shape={span.shape}, dtype={span.dtype.name}."
        )
    # A place that needs more than 32 bits is in no text.
    span = tf.clip_by_value(tf.cast(span, tf.int64), -1, 2**31 - 1)
    return tf.cast(span, tf.int32)


def _checked_span(text, span, name):
    """Check that spans aren't empty and lie within their texts. Works in a graph."""
    length = tf.strings.length(text, "UTF8_CHAR")
    begin, end = span[..., 0], span[..., 1]
    valid = (begin >= 0) & (begin < end) & (end <= length)
    expected = "spans of characters that aren't empty and end within their texts"
    span = check_values(span, end, valid, expected, name)
    begin, end = span[..., 0], span[..., 1]
    inside = tf.strings.substr(text, begin, end - begin, "UTF8_CHAR")
    valid = tf.not_equal(tf.strings.strip(inside), "")
    return check_values(span, end, valid, "spans that aren't spaces alone", name)


def _split_at_spans(x):
    """Cut texts where spans begin and end.

    Args:
        x: dict of tensors, `text`, `first` and `second`.

    Returns:
        Five parts of each text, one after the other, and int32 `(batch, 4)`: the marker
        that comes after each part except the last.
    """
    text = x["text"]
    length = tf.strings.length(text, "UTF8_CHAR")
    first, second = (_checked_span(text, x[name], name) for name in _SPANS)
    # Several markers at one place: a span's end comes before another's beginning. Of
    # two spans that begin there, the longer begins first; of two that end, the shorter
    # ends first.
    sizes = [first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]]
    longer = tf.cast(sizes[0] >= sizes[1], tf.int32)
    rank = tf.stack([3 - longer, longer, 2 + longer, 1 - longer], 1)
    at = tf.concat([first, second], 1)
    order = tf.argsort(at * 4 + rank, axis=1)
    at = tf.gather(at, order, batch_dims=1)
    begins = tf.pad(at, [[0, 0], [1, 0]])
    ends = tf.concat([at, length[:, None]], 1)
    texts = tf.repeat(text[:, None], 5, 1)
    parts = tf.strings.substr(texts, begins, ends - begins, "UTF8_CHAR")
    return tf.reshape(parts, [-1]), order


def _position(ids, token):
    """Find the place of a token in each row of a ragged tensor."""
    found = ids.to_tensor(-1)
    return tf.argmax(tf.equal(found, token), 1, output_type=tf.int32)


def relation_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `RelationClassifier`'s SavedModel."""
    names = tf.constant(names_of_labels(model))

    def classify(text, first, second):
        x = {"text": text, "first": first, "second": second}
        return name_outputs(model(preprocessor.encode(x), training=False))

    def name_outputs(outputs, mask=None):
        ids = tf.argmax(outputs, -1, output_type=tf.int32)
        return {
            "probabilities": model.probabilities(outputs),
            "label_ids": ids,
            "labels": tf.gather(names, ids),
        }

    inputs = {
        "text": strings("text"),
        **{name: tf.TensorSpec([None, 2], tf.int32, name=name) for name in _SPANS},
    }
    example = {"text": ["A text to start."], "first": [[0, 1]], "second": [[2, 6]]}
    rows = preprocessor({k: tf.constant(v) for k, v in example.items()})
    return {
        "serving_default": Signature(classify, inputs, example),
        **row_signatures(model, preprocessor, rows, name_outputs, **options),
    }
