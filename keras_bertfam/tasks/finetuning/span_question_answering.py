"""Find answers that are spans of a text, as in SQuAD 1.1 and 2.0."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam import distribution
from keras_bertfam.analysis.report import answer_report
from keras_bertfam.arguments import checked
from keras_bertfam.layers.heads.span_heads import (
    ConditionalSpanHead,
    SpanHead,
    TransformedSpanHead,
    best_conditional_spans,
    best_spans,
)
from keras_bertfam.metrics.squad import answer_texts, best_null_threshold, right_texts
from keras_bertfam.presets.converting.heads import Counterpart
from keras_bertfam.tasks import summary
from keras_bertfam.tasks.finetuning.fine_tuning import (
    FineTuningTask,
    report_title,
    texts_of,
)
from keras_bertfam.tasks.finetuning.merging import merged_lists
from keras_bertfam.tasks.finetuning.span_question_answering_preprocessor import (
    SpanQuestionAnsweringPreprocessor,
    answer_signatures,
)
from keras_bertfam.tasks.losses import token_crossentropy
from keras_bertfam.tasks.summary import with_question_global
from keras_bertfam.types import Config, Model, Tensor, Tokenizer

_QUESTIONS_AT_ONCE = 1024


@keras.saving.register_keras_serializable("keras_bertfam")
class SpanQuestionAnswering(FineTuningTask):
    """Finds the answer to a question in a text, with any backbone of the library.

    Call `fit()` to train, `predict()` for answers, `report()` for scores and errors,
    and `tune_null_threshold()` if questions may have no answer.

    An encoder-decoder gets question and context on both sides, and the head reads its
    decoder's states.

    Args:
        backbone: a backbone.
        preprocessor: `SpanQuestionAnsweringPreprocessor`, or `None` for data that
            is preprocessed already.
        end_head: `"independent"` (BERT: each token has a logit of being the first, and
            one of being the last), or `"conditional"` (XLNet, ELECTRA: the last token
            given the first, and a logit of having no answer); see
            `ConditionalSpanHead`.
        null_threshold: float or `None`. `predict()` answers `""` if the odds of having
            no answer are above it. `None` means that every question has an answer, as
            in SQuAD 1.1. See `tune_null_threshold`.
        max_answer_length: int. The most tokens of an answer. Defaults to `30`.
        n_best: int. How many answers `predict()` gives. Defaults to `20`.
        **kwargs: arguments of `keras.Model`.

    Call arguments:
        inputs: dict of tensors: those of the backbone, or `token_ids` and
            `padding_mask` for an encoder-decoder. Optionally `span_mask`, bool `(batch,
            length)`: the tokens of the context; `start_positions`, int `(batch,)`,
            which the conditional head needs for training; and `start_mask`, bool
            `(batch, length)`, which asks for spans: they begin in it and end in
            `span_mask`.

    Returns:
        Without `start_mask`, a dict of `start_logits`, float32 `(batch, length)`; with
        the independent head or `start_positions` also `end_logits` of that shape; with
        the conditional head also `no_answer`, float32 `(batch,)`. With `start_mask`, a
        dict of `starts` and `ends`, int32 `(batch, n_best)`, `scores`, float32 of that
        shape, and `no_answer`: the score of the first token (for XLNet the last), or
        the conditional head's logit.

    `fit()` and `evaluate()` take dicts of `question` and `context` and lists of
    answers, see `SpanQuestionAnsweringPreprocessor`. `compile()` without arguments sets
    up BERT's fine-tuning: AdamW at 5e-5 with 10 % linear warm-up and linear decay. The
    loss is the mean cross-entropy of the two positions. The conditional head adds half
    the binary cross-entropy of having no answer.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), sections 4.2, 4.3;
        [Yang et al., 2019](https://arxiv.org/abs/1906.08237); [Clark et al.,
        2020](https://arxiv.org/abs/2003.10555).

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    backbone = keras_bertfam.models.BertBackbone.from_preset(
        "bert_tiny_en_uncased", load_weights=False)
    preprocessor = keras_bertfam.tasks.SpanQuestionAnsweringPreprocessor(tokenizer)
    model = keras_bertfam.tasks.SpanQuestionAnswering(backbone, preprocessor)
    x = {"question": ["Where?"], "context": ["The cat sat on a mat."]}
    model.fit(x, [{"text": "a mat", "answer_start": 15}])
    model.predict(x)[0]["text"]
    ```
    """

    preprocessor_cls = SpanQuestionAnsweringPreprocessor
    data_kind = "question_answering"
    pipeline = "question-answering"
    text_columns = ("question", "context")
    counterpart = Counterpart("ForQuestionAnswering", {"span": "head"})
    serving_signatures = answer_signatures
    merged = staticmethod(merged_lists)
    label_kind = "place"
    one_row_each = False  # and not the examples, but one row for each window
    has_global_tokens = True
    extra_inputs = ("span_mask", "start_mask")
    fixed_arguments = ("end_head",)

    def __init__(
        self,
        backbone: Model,
        preprocessor: SpanQuestionAnsweringPreprocessor | None = None,
        end_head: str = "independent",
        null_threshold: float | None = None,
        max_answer_length: int = 30,
        n_best: int = 20,
        **kwargs: Any,
    ) -> None:
        check_end_head(end_head)
        counts = {"max_answer_length": max_answer_length, "n_best": n_best}
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"`{name}` must be positive. Received: {value}.")
        # This token stands for no answer.
        none = "last" if summary.summary_token(backbone) == "last" else "first"
        summary.check_layout(preprocessor, none)
        super().__init__(backbone, preprocessor, **kwargs)
        self.end_head, self._none = end_head, none
        self.null_threshold = null_threshold
        self.max_answer_length, self.n_best = max_answer_length, n_best
        self.head = make_span_head(end_head, backbone)
        self.head.build((None, None, backbone.hidden_dim))
        self.built = True
        self.compile_by_default()

    @classmethod
    def default_preprocessor(
        cls, tokenizer: Tokenizer, backbone: Model
    ) -> SpanQuestionAnsweringPreprocessor:
        usual = cls.preprocessor_cls(tokenizer)
        most = backbone.max_sequence_length
        if most is None or most >= usual.sequence_length:
            return usual
        return cls.preprocessor_cls(tokenizer, **usual.lengths_for(most))

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        inputs = dict(inputs)
        names = ("span_mask", "start_mask", "start_positions")
        extra = {name: inputs.pop(name, None) for name in names}
        inputs = with_question_global(
            self.backbone, inputs, extra["span_mask"], self.preprocessor
        )
        states = summary.states_of(self.backbone, inputs, training=training)
        cls = summary.token_positions(inputs, self._none)
        logits = self._logits(states, cls, **extra)
        if extra["start_mask"] is None:
            return logits
        return self._spans(states, cls, logits, extra["start_mask"], extra["span_mask"])

    def _logits(self, states, cls, span_mask, start_mask, start_positions):
        if self.end_head == "independent":
            start, end = self.head(states)
            return {"start_logits": start, "end_logits": end}
        start = self.head(states)
        if span_mask is not None:
            places = ops.arange(ops.shape(states)[1], dtype="int32")
            seen = ops.cast(span_mask, "bool") | (places == cls)
            start = ops.where(seen, start, -1e30)
        no_answer = self.head.no_answer_logit(states, start, cls)
        logits = {"start_logits": start, "no_answer": no_answer}
        if start_positions is not None:
            given = self.head.end_logits(states, ops.expand_dims(start_positions, 1))
            logits["end_logits"] = given[:, 0]
        return logits

    def _spans(self, states, cls, logits, start_mask, span_mask):
        masks = [ops.cast(mask, "bool") for mask in (start_mask, span_mask)]
        sizes = self.n_best, self.max_answer_length
        start = logits["start_logits"]
        if self.end_head == "conditional":
            no_answer = logits["no_answer"]
            spans = best_conditional_spans(self.head, states, start, masks, *sizes)
        else:
            end = logits["end_logits"]
            no_answer = ops.take_along_axis(start + end, cls, axis=1)[:, 0]
            spans = best_spans(start, end, *masks, *sizes)
        names = ("starts", "ends", "scores")
        return {**dict(zip(names, spans, strict=True)), "no_answer": no_answer}

    def inputs_of(self, columns: Sequence[Sequence[Any]]) -> Any:
        return dict(zip(("question", "context"), columns, strict=True))

    def answers(self, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        yield from self.told(self.predict(self.inputs_of(columns), verbose=0))

    def told(self, answers: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Turn what `merged` gives into answers, in the form that `predict` writes."""
        for answer in answers:
            found = {name: answer[name] for name in ("start", "end", "score")}
            yield {"answer": answer["text"], **found}

    def default_loss(self) -> None:
        return None

    def own_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Tensor:
        losses = 0.5 * sum(
            token_crossentropy(y[:, k], y_pred[name])
            for k, name in enumerate(("start_logits", "end_logits"))
        )
        if self.end_head == "conditional":
            cls = summary.token_positions(x, self._none)[:, 0]
            target = ops.cast(ops.cast(y[:, 0], "int32") == cls, "float32")
            logit = y_pred["no_answer"]
            losses += 0.5 * (ops.softplus(logit) - target * logit)
        weights = ops.ones_like(losses)
        if sample_weight is not None:
            weights = weights * ops.cast(sample_weight, losses.dtype)
        loss = distribution.global_mean(ops.sum(losses * weights), ops.sum(weights))
        return loss + self.added_losses()

    @checked
    def predict(
        self, x: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Answer questions.

        Args:
            x: dict of `question` and `context`, strings or lists of strings; or
                preprocessed rows, for which it returns arrays.
            batch_size: int, windows at a time. Defaults to `32`.
            **kwargs: arguments of `keras.Model.predict`.

        Returns:
            For each question a dict; for a single question, its dict. `text` is the
            answer exactly as in the context, `""` for no answer. `start` and `end` are
            its place in characters, -1 for no answer. `score` is its score.
            `no_answer_odds` is the score of having no answer; with the independent
            head, minus the score of the best answer. `n_best` is a list of dicts of
            `text`, `start`, `end`, `score` and `probability`, the best first. It has an
            entry for no answer if there is a `null_threshold`.
        """
        if not self._takes_raw(x):
            return super().predict(x, batch_size=batch_size, **kwargs)
        single = isinstance(x, dict) and isinstance(x.get("question"), str)
        x = self.preprocessor.as_tensors(x)
        answers = []
        for at in range(0, len(x["question"]), _QUESTIONS_AT_ONCE):
            part = {
                name: text[at : at + _QUESTIONS_AT_ONCE] for name, text in x.items()
            }
            answers += self._answers(part, batch_size or 32, **kwargs)
        return answers[0] if single else answers

    def _answers(self, x, batch_size, **kwargs):
        windows, offsets = self.preprocessor.windows_in_graph(x)
        batches, places = self.preprocessor.prediction_batches(windows, batch_size)
        spans = super().predict(batches, **kwargs)
        spans = {name: value[places] for name, value in spans.items()}
        found = self.preprocessor.answers(spans, windows, offsets, x, self.n_best)
        found = {name: value.numpy() for name, value in found.items()}
        return [self._described(*row) for row in zip(*found.values(), strict=True)]

    def null_odds(self, best_score: Any, no_answer: Any) -> Any:
        """Compute the odds of no answer, which are compared with `null_threshold`."""
        conditional = self.end_head == "conditional"
        return no_answer if conditional else no_answer - best_score

    def _described(self, texts, starts, ends, scores, no_answer):
        found = zip(texts, starts, ends, scores.tolist(), strict=True)
        n_best = [
            {"text": text.decode(), "start": int(a), "end": int(b), "score": score}
            for text, a, b, score in found
            if a >= 0
        ]
        none = {"text": "", "start": -1, "end": -1, "score": float(no_answer)}
        odds = float("inf")
        if n_best:
            odds = float(self.null_odds(n_best[0]["score"], no_answer))
        best = n_best[0] if n_best else none
        if self.null_threshold is not None or not n_best:
            n_best = sorted([*n_best, none], key=lambda answer: -answer["score"])
            best = none if odds > (self.null_threshold or 0.0) else best
        scores = np.array([answer["score"] for answer in n_best])
        shares = np.exp(scores - scores.max())
        for answer, share in zip(n_best, shares / shares.sum(), strict=True):
            answer["probability"] = float(share)
        chosen = {name: best[name] for name in ("text", "start", "end", "score")}
        return {**chosen, "no_answer_odds": odds, "n_best": n_best}

    @checked
    def tune_null_threshold(
        self,
        x: dict[str, Any],
        y: Sequence[dict[str, Any]],
        batch_size: int = 32,
        metric: str = "f1",
        answers: list[dict[str, Any]] | None = None,
    ) -> tuple[float, float]:
        """Set `null_threshold` to the best value for questions with known answers.

        Args:
            x: dict of `question` and `context`.
            y: list of answers: dicts as in SQuAD, with a list `text`.
            batch_size: int.
            metric: `"f1"` or `"exact_match"`.
            answers: the result of `predict(x)`, to save a second call; or `None`.

        Returns:
            A tuple of the score reached, in percent, and the threshold.
        """
        if answers is None:
            answers = self.predict(x, batch_size=batch_size, verbose=0)
        texts = answer_texts(answers)
        odds = [answer["no_answer_odds"] for answer in answers]
        score, self.null_threshold = best_null_threshold(y, texts, odds, metric)
        return score, self.null_threshold

    def _report(self, x, labels, given, batch_size, worst):
        answers = self.predict(x, batch_size=batch_size, verbose=0)
        given = [given] if isinstance(given, dict) else given
        y = [{"text": right_texts(each)} for each in given]
        title = report_title(self, len(y), "questions")
        return answer_report(title, texts_of(x), y, answers, worst)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "end_head": self.end_head,
            "null_threshold": self.null_threshold,
            "max_answer_length": self.max_answer_length,
            "n_best": self.n_best,
        }


END_HEADS = {"independent": SpanHead, "conditional": ConditionalSpanHead}


def check_end_head(end_head: str) -> None:
    """Raise a `ValueError` for a name that isn't in `END_HEADS`."""
    if end_head not in END_HEADS:
        raise ValueError(
            f"`end_head` must be one of {sorted(END_HEADS)}. Received: {end_head!r}."
        )


def make_span_head(end_head: str, backbone: Model) -> SpanHead:
    """Make a head of the kind that the backbone's family has.

    Args:
        end_head: a key of `END_HEADS`.
        backbone: a backbone.

    Returns:
        A layer that isn't built.
    """
    style, layers = getattr(backbone.record, "head_style", None), {}
    cls: Any = END_HEADS[end_head]
    if style is not None and style.tokens and end_head == "independent":
        cls, layers = TransformedSpanHead, style.layers(backbone)
    return cls(
        **layers,
        initializer=backbone.make_initializer(),
        dtype=backbone.dtype_policy,
        name="head",
    )
