"""What the SavedModel of a question answering task computes."""

from typing import Any

import tensorflow as tf

from keras_bertfam.export.signatures import (
    Signature,
    of_rows,
    serving_signatures,
    strings,
)
from keras_bertfam.tasks.finetuning.span_question_answering import SpanQuestionAnswering


@serving_signatures.register
def _(
    model: SpanQuestionAnswering, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    def answer(question, context):
        x = {"question": question, "context": context}
        windows, offsets = preprocessor.windows(x)
        spans = model(preprocessor.prediction_rows(windows), training=False)
        n_best = preprocessor.answers(spans, windows, offsets, x, model.n_best)
        odds = model.null_odds(n_best["score"][:, 0], n_best["no_answer"])
        # A context without a token holds no answer.
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
        **of_rows(model, preprocessor, rows, lambda spans, mask: spans, **options),
    }
