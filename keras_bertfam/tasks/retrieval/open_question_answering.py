"""Answer questions from retrieved passages, as ORQA and REALM do."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.arguments import checked
from keras_bertfam.layers.data.pairs.questions import as_characters
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.heads.span_heads import NOWHERE, SpanScores
from keras_bertfam.tasks.finetuning.fine_tuning import (
    FineTuningTask,
    open_answers_report,
)
from keras_bertfam.tasks.losses import weights_of
from keras_bertfam.tasks.retrieval.marginals import (
    answer_marginal,
    check_normalization,
    span_log_probabilities,
)
from keras_bertfam.tasks.retrieval.open_question_answering_preprocessor import (
    OpenQuestionAnsweringPreprocessor,
)
from keras_bertfam.tasks.retrieval.passage_reader import (
    PassageReader,
    by_row,
    flat,
    rows_of,
)
from keras_bertfam.tasks.retrieval.passages_preprocessor import refusals_as_value_errors
from keras_bertfam.tasks.summary import states_of
from keras_bertfam.types import Config, Model, Tensor

_NONE = {
    "text": "",
    "probability": 0.0,
    "passage": None,
    "passage_id": -1,
    "start": -1,
    "end": -1,
}


class Places:
    """Find the places of rows' tokens in their passages.

    Args:
        places: dict of tensors, the second result of the preprocessor's `read`.
        passage_ids: int array `(batch, passages)`.
    """

    def __init__(self, places: dict[str, Any], passage_ids: np.ndarray) -> None:
        bounds = places["bounds"]
        splits = bounds.row_splits.numpy()[1:-1]
        self._passages = places["passages"].numpy()
        self._bounds = np.split(bounds.flat_values.numpy(), splits)
        self._first = places["first"].numpy()
        self.passage_ids = passage_ids

    def span(
        self, question: int, passage: int, begin: int, more: int
    ) -> tuple[str, int, int]:
        """Give the text of a span, and its place in the passage in characters.

        Args:
            question: int.
            passage: int, the index among the question's passages.
            begin: int, the position of the span's first token in the row.
            more: int, how many tokens follow.
        """
        row = question * self.passage_ids.shape[1] + passage
        content, bounds = self._passages[row], self._bounds[row]
        begin -= int(self._first[row])
        first, last = bounds[begin], bounds[begin + more]
        start, end = as_characters(content, int(first[0]), int(last[1]))
        return content.decode()[start:end], start, end


def found_answers(
    log_probabilities: np.ndarray,
    question: int,
    places: Places,
    passages: Sequence[Any],
    n_best: int,
) -> dict[str, Any]:
    """Collect the answers to a question; spans with the same text are one answer.

    Args:
        log_probabilities: float array `(passages, length, tokens)`, of spans.
        question: int, its number in the batch.
        places: `Places` of the batch.
        passages: sequence of all passages, indexed by their ids.
        n_best: int. How many spans are considered.

    Returns:
        A dict as from `OpenQuestionAnswering.predict`.
    """
    flat = log_probabilities.reshape(-1)
    count = min(n_best, flat.size)
    best = np.argpartition(-flat, count - 1)[:count]
    answers: dict[str, Any] = {}
    for place in best[np.argsort(-flat[best], kind="stable")]:
        if flat[place] <= NOWHERE / 2:
            break
        indices = np.unravel_index(place, log_probabilities.shape)
        column, begin, more = map(int, indices)
        text, start, end = places.span(question, column, begin, more)
        if not text:
            continue
        number = int(places.passage_ids[question, column])
        found = {
            "text": text,
            "probability": 0.0,
            "passage": passages[number],
            "passage_id": number,
            "start": start,
            "end": end,
        }
        answer = answers.setdefault(" ".join(text.lower().split()), found)
        answer["probability"] += float(np.exp(flat[place]))
    return _with_best(answers.values())


def _with_best(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Give the best answer to a question, with the list of all answers."""
    ordered = sorted(answers, key=lambda answer: -answer["probability"])
    with np.errstate(divide="ignore"):
        n_best = [
            {**answer, "score": float(np.log(answer["probability"]))}
            for answer in ordered or [_NONE]
        ]
    return {**n_best[0], "n_best": n_best}


@keras.saving.register_keras_serializable("keras_bertfam", name="ShareOfEach")
class UnweightedShare(keras.metrics.Mean):
    """The mean of a column of predictions; examples count once if their weight isn't 0.

    Args:
        column: int.
        name: str or `None`.
        dtype: see `keras.metrics.Metric`.
    """

    def __init__(
        self, column: int = 0, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.column = column

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        if sample_weight is not None:
            sample_weight = ops.cast(ops.not_equal(sample_weight, 0), self.dtype)
        super().update_state(y_pred[..., self.column], sample_weight)

    def get_config(self) -> Config:
        return {**super().get_config(), "column": self.column}


_QUESTIONS_AT_ONCE = 128


@keras.saving.register_keras_serializable("keras_bertfam")
class OpenQuestionAnswering(FineTuningTask, PassageReader):
    """Finds passages for a question, and the answer in them.

    Call `fit()` to train, `predict()` for answers, and `report()` for scores and
    errors.

    A retriever's index gives passages, and the reader scores their spans. The
    probability of an answer is the sum over all spans with its text: `p(y | x)` is the
    sum over passages `z` of `p(z | x) p(y | z, x)`. Here `p(z | x)` is the softmax of
    the inner products of vectors, with the weights of the step. `p(y | z, x)` is the
    part of the answer's spans in the softmax over all spans of the passage. Training
    needs only questions and answers; no passage is given.

    Args:
        backbone: a backbone, the reader.
        preprocessor: `OpenQuestionAnsweringPreprocessor`, or `None` for batches that
            already have passages.
        retriever: `keras_bertfam.tasks.DualEncoder`, from REALM's pre-training or
            trained by the inverse cloze task.
        normalization: `"passage"`, as in the paper: the probabilities of each passage's
            spans sum to 1. Or `"joint"`, as in the released code: one softmax over all
            spans of all passages, whose scores are the sums of the span's and the
            passage's.
        retrieval_weight: float. Weight of a second loss, `-log` of the probability of
            the passages that contain an answer. The released code has 1. Defaults to
            `0.0`, as in REALM's paper.
        train_passages: bool. Whether the retriever's tower of passages is trained. It
            needs `passage_rows` of the preprocessor, and `RefreshIndex` to renew the
            index. Defaults to `False`, as in both papers: passages keep their vectors
            of the index.
        max_answer_length: int. The most tokens of an answer; the preprocessor must have
            the same. Defaults to `10`.
        n_best: int. How many spans `predict()` considers. Defaults to `20`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors, as the preprocessor makes them: the reader's rows and
            `span_mask`, `(batch, passages, length)`; `query_token_ids` and others,
            `(batch, query_length)`; and `passage_vectors`, `(batch, passages, dim)`, or
            with `train_passages` `passage_token_ids` and others.

    Returns:
        Dict of float32 tensors: `span_scores`, `(batch, passages, length,
        max_answer_length)`, see `SpanScores`, and `passage_scores`, `(batch,
        passages)`. `log_probabilities` combines the two.

    `fit()` and `evaluate()` take questions and their answers, a string or a list of
    strings for each. A question whose passages contain none of its answers isn't
    counted in the loss. In the logs, `answers_found` is the share of questions with an
    answer in a passage, and `exact_match` the share whose likeliest span is an answer.
    `fit()` looks passages up with the weights that the search has at its start;
    afterwards the search gets the trained weights. `compile()` without arguments sets
    up the fine-tuning of the backbone's family with ORQA's rate, 1e-5.

    Raises:
        ValueError: for an argument out of its range, no `retriever`, or a preprocessor
            with other settings.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    retriever = keras_bertfam.tasks.DualEncoder(
        keras_bertfam.models.Backbone.from_preset("my_bert"),
        keras_bertfam.tasks.DualEncoderPreprocessor(tokenizer, sequence_length=32))
    passages = ["Jane Austen wrote Emma.", ("Paris", "It is in France.")]
    index = keras_bertfam.retrieval.Index.build(passages, retriever)
    preprocessor = keras_bertfam.tasks.OpenQuestionAnsweringPreprocessor(
        tokenizer, sequence_length=16, num_passages=2)
    preprocessor.search = keras_bertfam.tasks.PassageSearch(retriever, index)
    reader = keras_bertfam.models.Backbone.from_preset("my_bert")
    model = keras_bertfam.tasks.OpenQuestionAnswering(reader, preprocessor, retriever)
    model.fit(["Who wrote Emma?"], [["Jane Austen", "Austen"]])
    answer = model.predict("Who wrote Emma?")
    print(answer["text"], answer["probability"], answer["passage"])
    ```

    References: [Guu et al., 2020](https://arxiv.org/abs/2002.08909), sections 3.1 and
    3.2; [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 3, and the
    released code.
    """

    preprocessor_cls = OpenQuestionAnsweringPreprocessor
    label_kind = "span"
    usual_learning_rate = 1e-5
    fixed_arguments = ("train_passages", "max_answer_length")

    def __init__(
        self,
        backbone: Model,
        preprocessor: OpenQuestionAnsweringPreprocessor | None = None,
        retriever: Any = None,
        normalization: str = "passage",
        retrieval_weight: float = 0.0,
        train_passages: bool = False,
        max_answer_length: int = 10,
        n_best: int = 20,
        **kwargs: Any,
    ) -> None:
        check_normalization(normalization)
        if retrieval_weight < 0:
            raise ValueError(
                "`retrieval_weight` must be at least 0. Received: "
                f"retrieval_weight={retrieval_weight}."
            )
        check_at_least(1, max_answer_length=max_answer_length, n_best=n_best)
        wanted = {
            "passage_rows": train_passages,
            "max_answer_length": max_answer_length,
        }
        for name, value in wanted.items() if preprocessor else ():
            if getattr(preprocessor, name) != value:
                raise ValueError(
                    f"`preprocessor` must have {name}={value}, as the task has. "
                    f"Received: {name}={getattr(preprocessor, name)}."
                )
        super().__init__(backbone, preprocessor, retriever=retriever, **kwargs)
        self.normalization = normalization
        self.retrieval_weight = retrieval_weight
        self.train_passages = self.trains_passages = train_passages
        self.max_answer_length, self.n_best = max_answer_length, n_best
        self.head = SpanScores(
            max_answer_length,
            initializer=backbone.make_initializer(),
            dtype=backbone.dtype_policy,
            name="head",
        )
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        count = inputs["token_ids"].shape[1]
        rows = flat(rows_of(inputs))
        states = states_of(self.backbone, rows, training=training)
        scores = self.head(states, flat(inputs["span_mask"]))
        return {
            "span_scores": by_row(scores, count),
            "passage_scores": self.passage_scores(inputs, training),
        }

    def log_probabilities(self, outputs: dict[str, Tensor]) -> Tensor:
        """Compute `log p(z, s | x)` of each span of each passage.

        Args:
            outputs: dict of tensors, what the call gives.

        Returns:
            float32 tensor `(batch, passages, length, max_answer_length)`, -1e30 where
            there is no span.
        """
        return span_log_probabilities(
            outputs["passage_scores"], outputs["span_scores"], self.normalization
        )

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        targets = ops.cast(y, "bool")
        losses = -answer_marginal(self.log_probabilities(y_pred), targets)
        if self.retrieval_weight:
            prior = ops.log_softmax(y_pred["passage_scores"])
            right = answer_marginal(prior, ops.any(targets, axis=(2, 3)))
            losses = losses - self.retrieval_weight * right
        found = ops.any(targets, axis=(1, 2, 3))
        losses = ops.where(found, losses, 0.0)
        weights = ops.cast(found, losses.dtype) * weights_of(losses, sample_weight)
        loss = distribution.global_mean(ops.sum(losses * weights), ops.sum(weights))
        return loss + self.added_losses()

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        targets = ops.cast(y, "float32")
        size = int(np.prod(targets.shape[1:]))
        targets = ops.reshape(targets, (-1, size))
        spans = ops.reshape(self.log_probabilities(y_pred), (-1, size))
        best = ops.expand_dims(ops.argmax(spans, axis=1), 1)
        right = ops.take_along_axis(targets, best, axis=1)
        shares = ops.concatenate([ops.max(targets, axis=1, keepdims=True), right], 1)
        return super().compute_metrics(x, shares, shares, sample_weight)

    def default_loss(self) -> None:
        return None

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [
            UnweightedShare(0, name="answers_found"),
            UnweightedShare(1, "exact_match"),
        ]

    @checked
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        history = super().fit(x, y, batch_size, epochs, **kwargs)
        found = history.history.get("answers_found", [1.0])
        if not any(found):
            warnings.warn(
                "Nothing was learned: no question had an answer in the passages that "
                "were found for it. Answers must be in the passages of the index, "
                f"within the first {self._length()} tokens of a row.",
                stacklevel=2,
            )
        search = getattr(self.preprocessor, "search", None)
        if search is not None and not self.train_passages:
            search.adopt(search.index, None, search.step)
        return history

    def _length(self):
        return getattr(self.preprocessor, "sequence_length", "")

    @checked
    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Answer questions, and give the passages that contain the answers.

        Spans with the same text, upper or lower case, are one answer. Its probability
        is the sum of theirs.

        Args:
            x: a question, or a list of questions; or preprocessed rows, for which it
                returns arrays.
            batch_size: int, questions at a time. Defaults to `32`.
            **kwargs: arguments of `keras.Model.predict`.

        Returns:
            For each question a dict; for a single question, its dict. `text` is the
            answer as in the passage, `probability` its probability and `score` the
            logarithm. `passage`, a string or a tuple of title and text, contains the
            likeliest span; `passage_id` is its number in the index; `start` and `end`
            are the span's place in its text, in characters. `n_best` is a list of such
            dicts, the best first. If no passage has a span, `text` is `""` and
            `passage` is `None`.

        Raises:
            ValueError: without a `search`, or for a question that is too long.
        """
        if not self._takes_raw(x):
            return super().predict(x, batch_size=batch_size, **kwargs)
        single = isinstance(x, str)
        questions = self.preprocessor.as_tensors(x)
        answers = []
        for at in range(0, len(questions), _QUESTIONS_AT_ONCE):
            part = questions[at : at + _QUESTIONS_AT_ONCE]
            answers += self._answers(part, batch_size or 32, **kwargs)
        return answers[0] if single else answers

    def _answers(self, questions, batch_size, **kwargs):
        with refusals_as_value_errors():
            rows, places = self.preprocessor.read_in_graph(questions)
        rows = {name: value.numpy() for name, value in rows.items()}
        outputs = super().predict(rows, batch_size=batch_size, **kwargs)
        found = ops.convert_to_numpy(self.log_probabilities(outputs))
        passages = self.preprocessor.search.passages
        places = Places(places, rows["passage_ids"])
        return [
            found_answers(spans, number, places, passages, self.n_best)
            for number, spans in enumerate(found)
        ]

    def _report(self, x, labels, given, batch_size, worst):
        answers = self.predict(x, batch_size=batch_size, verbose=0)
        return open_answers_report(self, x, labels, answers, worst)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "normalization": self.normalization,
            "retrieval_weight": self.retrieval_weight,
            "train_passages": self.train_passages,
            "max_answer_length": self.max_answer_length,
            "n_best": self.n_best,
        }
