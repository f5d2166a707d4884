"""Make rows of questions, and windows of the texts that hold the answers."""

import numbers
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pairs.questions import join_answers, make_windows
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import ready_to_iterate
from keras_bertfam.layers.data.user_inputs import as_columns, as_strings
from keras_bertfam.serving import Signature, row_signatures, strings
from keras_bertfam.tasks.finetuning.fine_tuning_preprocessor import (
    FineTuningPreprocessor,
)
from keras_bertfam.tokenizers.offsets import tokenize_with_offsets
from keras_bertfam.tokenizers.texts import to_utf8
from keras_bertfam.types import Config, Model, TFDataset, TFRagged, TFTensor, Tokenizer

_INPUTS = ("question", "context")
_NO_ANSWER, _NOT_FOUND = -1, -2
_STARTS_OF_NONE = (-1, 0)  # files give these beginnings to an answer that is ""
_NOT_THERE = (
    'Answers must be in their contexts at `answer_start`; missing_answers="skip" '
    "leaves out questions whose answers aren't."
)


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class SpanQuestionAnsweringPreprocessor(FineTuningPreprocessor):
    """Makes rows of questions and windows of their contexts.

    A context that is too long for a row is split into windows that overlap, one in each
    row. Questions are cut after `question_length` tokens. The target of a window has
    the positions of the answer's first and last token. Both are the position of `[CLS]`
    if there is no answer, or if the window doesn't hold all of it. With XLNet's
    tokenizer the context comes before the question.

    Args:
        tokenizer: `keras_bertfam.tokenizers.BertTokenizer`, or a byte-pair or
            SentencePiece tokenizer.
        sequence_length: int. The most tokens in a row, special ones included.
            Defaults to `384`.
        question_length: int. The most tokens of a question. Defaults to `64`.
        doc_stride: int. How many tokens after a window's beginning the next one begins.
            Defaults to `128`.
        missing_answers: `"error"` or `"skip"`. With `"skip"`, an answer that isn't at
            its `answer_start` gets weight 0, as in the released BERT.
        **kwargs: `layout`, `buckets` and `seed` of `TextClassifierPreprocessor`.

    Call arguments:
        x: dict of `question` and `context`, strings, lists of strings or string
            tensors `(batch,)`. An empty context gives a window without context tokens;
            an empty question is left out of the row.
        y: list of answers, or `None`. An answer is a dict of `text` and `answer_start`
            (in characters), or a dict of lists as in SQuAD, of which the first entry
            counts. An answer is missing from its context if the lists are empty, if
            `text` is `""` and `answer_start` -1 or 0, or if `is_impossible` is true. A
            `tf.data.Dataset` for `dataset()` has such a dict for each question.
        sample_weight: float tensor of shape `(batch,)`, or `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)` with a row for each window, in order.
        `x` is a dict of `token_ids` and `segment_ids`, int32 `(windows, length)`, and
        `padding_mask` and `span_mask` (tokens of the context), bool of that shape. With
        labels it also has `start_positions`, int32 `(windows,)`; without labels
        `start_mask`, bool `(windows, length)`: each token of the context is marked in
        the window that shows most context around it. `y` is int32 `(windows, 2)`.

    Raises:
        ValueError: if an answer isn't at its `answer_start`, for inputs that aren't
            strings, and for lengths that leave no room for a context.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    preprocessor = keras_bertfam.tasks.SpanQuestionAnsweringPreprocessor(tokenizer)
    x = {"question": ["Where?"], "context": ["The cat sat on a mat."]}
    preprocessor(x, [{"text": "a mat", "answer_start": 15}])
    ```

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), sections
    4.2 and 4.3, and the released code.
    """

    # A single question may have several windows, so the batch axis stays.
    single_rank = -1

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 384,
        question_length: int = 64,
        doc_stride: int = 128,
        missing_answers: Literal["error", "skip"] = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, **kwargs)
        room = sequence_length - self._layout.specials(2) - question_length
        if min(question_length, doc_stride, room) < 1:
            raise ValueError(
                "`question_length` and `doc_stride` must be positive, and leave room "
                f"for a context in a row. Received: sequence_length={sequence_length},"
                f" question_length={question_length}, doc_stride={doc_stride}."
            )
        if missing_answers not in ("error", "skip"):
            raise ValueError(
                '`missing_answers` must be "error" or "skip". '
                f"Received: {missing_answers!r}."
            )
        self.question_length = question_length
        self.doc_stride = doc_stride
        self.missing_answers = missing_answers
        self.windows_in_graph = self.in_graph(self.windows)

    @checked
    def lengths_for(self, sequence_length: int) -> Config:
        """Give the lengths for rows of another length, so that windows overlap.

        A question has a third of a row at most, and half of a window's tokens at least
        are in the next window, too.

        Args:
            sequence_length: int. Tokens in a row.

        Returns:
            Dict of `sequence_length`, `question_length` and `doc_stride`.
        """
        question = min(self.question_length, sequence_length // 3)
        room = sequence_length - self._layout.specials(2) - question
        stride = min(self.doc_stride, max(1, room // 2))
        return {
            "sequence_length": sequence_length,
            "question_length": question,
            "doc_stride": stride,
        }

    def as_tensors(self, x: Any) -> Any:
        x = as_columns(x)
        if not isinstance(x, dict) or set(x) != set(_INPUTS):
            received = sorted(x) if isinstance(x, dict) else type(x).__name__
            raise ValueError(
                f"`x` must be a dict of {' and '.join(_INPUTS)}. Received: {received}."
            )
        x = {name: tf.reshape(as_strings(x[name], name=name), [-1]) for name in _INPUTS}
        sizes = [int(tf.size(value)) for value in x.values()] if _eager(x) else [0, 0]
        if sizes[0] != sizes[1]:
            raise ValueError(
                "`question` and `context` must have the same length. Received: "
                f"{sizes[0]} and {sizes[1]}."
            )
        return x

    def as_labels(self, y: Any, x: Any) -> Any:
        contexts = as_strings(as_columns(x)["context"], name="context")
        if not tf.executing_eagerly():
            raise ValueError(
                "`y` can't be given in a graph: pass the `tf.data.Dataset` to "
                "`dataset()` instead of mapping the preprocessor over it."
            )
        contexts = to_utf8(tf.reshape(contexts, [-1])).numpy()
        contexts = [text.decode() for text in contexts]
        if isinstance(y, dict):  # of one answer, or of several, as columns
            y = [y] if len(contexts) == 1 else _rows(y)
        if isinstance(y, str) or not hasattr(y, "__len__"):
            raise ValueError(f"`y` must be a list of answers. Received: {y!r}.")
        if len(y) != len(contexts):
            raise ValueError(
                "`y` must have an answer for each question. "
                f"Received: {len(y)} for {len(contexts)}."
            )
        pairs = map(self._checked_answer, range(len(y)), y, contexts)
        texts, begins = zip(*pairs, strict=True)
        return {"text": tf.constant(texts), "start": tf.constant(begins, tf.int32)}

    def _checked_answer(self, number, answer, context):
        try:
            if "is_impossible" in answer and answer["is_impossible"]:
                return "", _NO_ANSWER
            text, start = answer["text"], answer["answer_start"]
            if not isinstance(text, str):
                if not len(text):
                    return "", _NO_ANSWER
                text, start = text[0], start[0]
        except (IndexError, KeyError, TypeError):
            text = start = None
        if not (isinstance(text, str) and isinstance(start, numbers.Integral)):
            raise ValueError(
                "`y` must be dicts of `text`, strings, and `answer_start`, integers. "
                f"Received: answer {number}, {answer!r}."
            )
        if not text and start in _STARTS_OF_NONE:
            return "", _NO_ANSWER
        if text and start >= 0 and context[start : start + len(text)] == text:
            return text, int(start)
        if self.missing_answers == "skip":
            return text, _NOT_FOUND
        raise ValueError(
            f"{_NOT_THERE} Received: answer {number}, {text!r}, which isn't at "
            f"character {start} of {context[:60]!r}..."
        )

    @as_written
    def from_dataset(self, data: TFDataset) -> TFDataset:
        if "start" in data.element_spec[1]:  # it comes from `from_arrays`
            return data
        return data.map(self._with_first_answer)

    def _with_first_answer(self, x, y, *weight):
        """Give a dataset's example its answers, in the form of `as_labels`."""
        texts, starts = (tf.reshape(y[k], [-1]) for k in ("text", "answer_start"))
        text = tf.concat([texts, [""]], 0)[0]
        start = tf.concat([tf.cast(starts, tf.int32), [_NO_ANSWER]], 0)[0]
        context = to_utf8(x["context"])
        length, size = (
            tf.strings.length(part, unit="UTF8_CHAR") for part in (context, text)
        )
        at = tf.clip_by_value(start, 0, length)
        there = tf.strings.substr(context, at, size, unit="UTF8_CHAR")
        none = tf.equal(size, 0) & tf.reduce_any(tf.equal(start, _STARTS_OF_NONE))
        if "is_impossible" in y:
            none |= tf.cast(tf.reshape(y["is_impossible"], []), tf.bool)
        text, start = tf.where(none, "", text), tf.where(none, _NO_ANSWER, start)
        found = tf.equal(at, start) & tf.equal(there, text) & (size > 0) | none
        if self.missing_answers == "skip":
            start = tf.where(found, start, _NOT_FOUND)
        else:
            received = [f"`y`: {_NOT_THERE} Received:", text, start, context]
            with tf.control_dependencies([tf.debugging.Assert(found, received)]):
                start = tf.identity(start)
        return x, {"text": text, "start": start}, *weight

    @as_written
    def windows(
        self, x: dict[str, TFTensor]
    ) -> tuple[dict[str, TFTensor], tuple[TFRagged, TFRagged]]:
        """Make windows, and the offsets that find answers in them. Works in a graph.

        Args:
            x: dict of `question` and `context`, string tensors `(batch,)`.

        Returns:
            A tuple of the result of `make_windows`, and two ragged int32 tensors
            `(batch, None)`: the bytes where the contexts' tokens start and end.
        """
        questions = self.tokenize(x["question"])
        long = questions.row_lengths() > self.question_length
        count_cut(long, "questions", "question_length")
        questions = questions[:, : self.question_length]
        contexts = to_utf8(x["context"])
        ids, starts, ends = tokenize_with_offsets(self.tokenizer, contexts)
        rows = make_windows(
            questions,
            ids,
            self.tokenizer,
            self._layout,
            self.sequence_length,
            self.doc_stride,
        )
        return rows, (starts, ends)

    def _featurize(self, x, y, sample_weight):
        windows, offsets = self.windows(x)
        row = {
            name: windows[name] for name in ("token_ids", "segment_ids", "span_mask")
        }
        if sample_weight is not None:
            sample_weight = self.target_weights(windows, sample_weight)
            if y is not None:
                found = tf.cast(y["start"] != _NOT_FOUND, tf.float32)
                sample_weight *= found
            sample_weight = tf.gather(sample_weight, windows["example"])
        if y is None:
            return {**row, "start_mask": windows["start_mask"]}, None, sample_weight
        positions = self._positions(to_utf8(x["context"]), y, windows, offsets)
        return {**row, "start_positions": positions[:, 0]}, positions, sample_weight

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if y is not None and sample_weight is None and self.missing_answers == "skip":
            sample_weight = tf.ones([len(y)])
        return super().call(x, y, sample_weight)

    @as_written
    def _positions(self, contexts, y, windows, offsets):
        """Find the answer's first and last tokens in each window."""
        starts, ends = offsets
        skipped = tf.strings.substr(
            contexts,
            tf.zeros_like(y["start"]),
            tf.maximum(y["start"], 0),
            unit="UTF8_CHAR",
        )
        begin = tf.strings.length(skipped)[:, None]
        end = begin + tf.strings.length(y["text"])[:, None]
        first = tf.reduce_sum(tf.cast(ends <= begin, tf.int32), 1)
        last = tf.reduce_sum(tf.cast(starts < end, tf.int32), 1) - 1
        answerable = (y["start"] >= 0) & (first <= last)
        first, last, answerable = (
            tf.gather(value, windows["example"]) for value in (first, last, answerable)
        )
        at, size = windows["first"], windows["size"]
        inside = answerable & (first >= at) & (last < at + size)
        shift = windows["context_at"] - at
        span = tf.stack([first + shift, last + shift], 1)
        return tf.where(inside[:, None], span, windows["cls_position"][:, None])

    @as_written
    def prediction_batches(
        self, windows: dict[str, TFTensor], batch_size: int
    ) -> tuple[TFDataset, np.ndarray]:
        """Make batches of windows of similar length, and the windows' places.

        Args:
            windows: the first part of the result of `windows`.
            batch_size: int.

        Returns:
            A `tf.data.Dataset` of rows for which the task predicts spans, and an int
            array: the place of each window in the dataset.
        """
        names = ("token_ids", "segment_ids", "span_mask", "start_mask")
        order = np.argsort(windows["token_ids"].row_lengths().numpy(), kind="stable")
        rows = {name: tf.gather(windows[name], order) for name in names}
        dataset = tf.data.Dataset.from_tensor_slices(rows).ragged_batch(batch_size)
        batches = ready_to_iterate(dataset.map(self.prediction_rows))
        return batches, np.argsort(order)

    def prediction_rows(self, rows: dict[str, TFRagged]) -> dict[str, TFTensor]:
        """Pad ragged rows in the form from which the task predicts spans."""
        names = ("token_ids", "segment_ids", "span_mask", "start_mask")
        return self.pad(({name: rows[name] for name in names}, None, None))[0]

    def answers(
        self,
        spans: dict[str, TFTensor],
        windows: dict[str, TFTensor],
        offsets: tuple[TFRagged, TFRagged],
        x: dict[str, TFTensor],
        count: int,
    ) -> dict[str, TFTensor]:
        """Find the texts of predicted spans; see `join_answers`."""
        return join_answers(spans, windows, offsets, to_utf8(x["context"]), count)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "question_length": self.question_length,
            "doc_stride": self.doc_stride,
            "missing_answers": self.missing_answers,
        }


def _rows(columns):
    """Turn a dict of columns into dicts."""
    values = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


def _eager(x):
    return all(hasattr(value, "numpy") for value in x.values())


def answer_signatures(
    model: Model, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    """Make the signatures of a `SpanQuestionAnswering`'s SavedModel."""

    def answer(question, context):
        x = {"question": question, "context": context}
        windows, offsets = preprocessor.windows(x)
        spans = model(preprocessor.prediction_rows(windows), training=False)
        n_best = preprocessor.answers(spans, windows, offsets, x, model.n_best)
        odds = model.null_odds(n_best["score"][:, 0], n_best["no_answer"])
        # A context without tokens holds no answer.
        none = n_best["start"][:, 0] < 0
        if model.null_threshold is not None:
            none |= odds > model.null_threshold
        return {
            "answer": tf.where(none, "", n_best["text"][:, 0]),
            "answer_start": tf.where(none, -1, n_best["start"][:, 0]),
            "answer_end": tf.where(none, -1, n_best["end"][:, 0]),
            "no_answer_odds": odds,
            "n_best_text": n_best["text"],
            "n_best_start": n_best["start"],
            "n_best_end": n_best["end"],
            "n_best_score": n_best["score"],
        }

    inputs = {"question": strings("question"), "context": strings("context")}
    example = {"question": ["Where?"], "context": ["A text to start with."]}
    windows, _ = preprocessor.windows({k: tf.constant(v) for k, v in example.items()})
    rows = preprocessor.prediction_rows(windows)
    return {
        "serving_default": Signature(answer, inputs, example),
        **row_signatures(
            model, preprocessor, rows, lambda spans, mask: spans, **options
        ),
    }
