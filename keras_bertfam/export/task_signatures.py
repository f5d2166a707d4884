"""Signatures of the SavedModels of fine-tuning tasks."""

from typing import Any

import tensorflow as tf

from keras_bertfam.export.signatures import (
    Signature,
    row_signatures,
    serving_signatures,
    strings,
)
from keras_bertfam.tasks.finetuning.multiple_choice import MultipleChoice
from keras_bertfam.tasks.finetuning.span_question_answering import SpanQuestionAnswering
from keras_bertfam.tasks.finetuning.text_classifier import TextClassifier, TextRegressor
from keras_bertfam.tasks.finetuning.text_embedder import TextEmbedder
from keras_bertfam.tasks.finetuning.token_classifier import TokenClassifier
from keras_bertfam.tasks.retrieval.dual_encoder import DualEncoder


def _text_signatures(model, preprocessor, name_outputs, options, pairs=True):
    """Make the signatures of a task that takes texts, or pairs of texts."""

    def answer(x):
        return name_outputs(model(preprocessor.encode(x), training=False))

    text, pair = ["A text to start with."], ["And another one."]
    signatures = {
        "serving_default": Signature(
            lambda text: answer(text), {"text": strings("text")}, {"text": text}
        )
    }
    if pairs:
        signatures["pairs"] = Signature(
            lambda text, text_pair: answer((text, text_pair)),
            {"text": strings("text"), "text_pair": strings("text_pair")},
            {"text": text, "text_pair": pair},
        )
    rows = preprocessor(tf.constant(text))
    by_ids = row_signatures(
        model, preprocessor, rows, lambda x, mask: name_outputs(x), **options
    )
    return signatures | by_ids


def _names_of_labels(model):
    return model.label_names or [str(k) for k in range(model.num_classes)]


def _label_outputs(model):
    """Make a function from a task's outputs to probabilities, numbers and names."""
    names = tf.constant(_names_of_labels(model))

    def name_outputs(outputs):
        ids = tf.argmax(outputs, -1, output_type=tf.int32)
        return {
            "probabilities": model.probabilities(outputs),
            "label_ids": ids,
            "labels": tf.gather(names, ids),
        }

    return name_outputs


@serving_signatures.register
def _(model: TextClassifier, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    return _text_signatures(model, preprocessor, _label_outputs(model), options)


@serving_signatures.register
def _(model: TextRegressor, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    return _text_signatures(
        model, preprocessor, lambda outputs: {"scores": outputs}, options
    )


@serving_signatures.register
def _(model: TextEmbedder, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    return _text_signatures(
        model, preprocessor, lambda x: {"embeddings": x}, options, False
    )


@serving_signatures.register
def _(model: DualEncoder, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    def queries(text):
        rows = preprocessor.encode_texts("query", text)
        return {"embeddings": model.query_vectors(rows)}

    def passages(title, text):
        rows = preprocessor.encode_texts("passage", (title, text))
        return {"embeddings": model.passage_vectors(rows)}

    text, title = ["A text to start with."], ["Its title"]
    return {
        "serving_default": Signature(
            queries, {"text": strings("text")}, {"text": text}
        ),
        "passages": Signature(
            passages,
            {"title": strings("title"), "text": strings("text")},
            {"title": title, "text": text},
        ),
    }


@serving_signatures.register
def _(
    model: TokenClassifier, preprocessor: Any, **options: Any
) -> dict[str, Signature]:
    names = tf.constant(_names_of_labels(model))

    def tag(words):
        given = tf.not_equal(words, "")
        place = tf.cumsum(tf.cast(given, tf.int32), axis=1) - 1

        def unfinished(done, _):
            return tf.reduce_any(given & (place >= done[:, None]))

        def next_row(done, probabilities):
            """Label as many more words of each sentence as a row holds."""
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


@serving_signatures.register
def _(model: MultipleChoice, preprocessor: Any, **options: Any) -> dict[str, Signature]:
    def choose(context, question, choices):
        x = {"context": context, "question": question, "choices": choices}
        return name_choices(model(preprocessor.encode(x), training=False))

    def name_choices(logits, mask=None):
        return {
            "probabilities": tf.nn.softmax(logits),
            "choice": tf.argmax(logits, -1, output_type=tf.int32),
        }

    count = preprocessor.num_choices or 2
    inputs = {
        "context": strings("context"),
        "question": strings("question"),
        "choices": strings("choices", 2),
    }
    example = {
        "context": ["A text to start with."],
        "question": ["Which one?"],
        "choices": [["This one."] * count],
    }
    rows = preprocessor({k: tf.constant(v) for k, v in example.items()})
    return {
        "serving_default": Signature(choose, inputs, example),
        **row_signatures(model, preprocessor, rows, name_choices, **options),
    }


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
        **row_signatures(
            model, preprocessor, rows, lambda spans, mask: spans, **options
        ),
    }
