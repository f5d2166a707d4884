"""What the SavedModels of the fine-tuning tasks compute."""

import tensorflow as tf

from keras_bertfam.export.signatures import Signature, serving_signatures, strings
from keras_bertfam.tasks.multiple_choice import MultipleChoice
from keras_bertfam.tasks.text_classifier import TextClassifier
from keras_bertfam.tasks.text_embedder import TextEmbedder
from keras_bertfam.tasks.text_regressor import TextRegressor
from keras_bertfam.tasks.token_classifier import TokenClassifier


def _of_texts(model, preprocessor, name_outputs):
    """Signatures of a task that takes texts and pairs of texts."""

    def answer(x):
        return name_outputs(model(preprocessor.encode(x), training=False))

    text, pair = ["A text to start with."], ["And another one."]
    return {
        "serving_default": Signature(
            lambda text: answer(text), {"text": strings("text")}, {"text": text}
        ),
        "pairs": Signature(
            lambda text, text_pair: answer((text, text_pair)),
            {"text": strings("text"), "text_pair": strings("text_pair")},
            {"text": text, "text_pair": pair},
        ),
    }


def _label_outputs(model):
    """A function from a task's outputs to probabilities, numbers and names."""
    names = model.label_names or [str(k) for k in range(model.num_classes)]
    names = tf.constant(names)

    def name_outputs(outputs):
        ids = tf.argmax(outputs, -1, output_type=tf.int32)
        return {
            "probabilities": model.probabilities(outputs),
            "label_ids": ids,
            "labels": tf.gather(names, ids),
        }

    return name_outputs


@serving_signatures.register
def _(model: TextClassifier, preprocessor, **options):
    return _of_texts(model, preprocessor, _label_outputs(model))


@serving_signatures.register
def _(model: TextRegressor, preprocessor, **options):
    return _of_texts(model, preprocessor, lambda outputs: {"scores": outputs})


@serving_signatures.register
def _(model: TextEmbedder, preprocessor, **options):
    signatures = _of_texts(model, preprocessor, lambda x: {"embeddings": x})
    return {"serving_default": signatures["serving_default"]}


@serving_signatures.register
def _(model: TokenClassifier, preprocessor, **options):
    name_outputs = _label_outputs(model)

    def tag(words):
        # Without words there would be no axis to take the maximum along.
        width = tf.shape(words)[1]
        inputs = preprocessor.encode(words)
        named = name_outputs(model(inputs, training=False))
        missing = [[0, 0], [0, tf.maximum(0, width - tf.shape(named["label_ids"])[1])]]
        inside = tf.pad(inputs["word_mask"], missing)[:, :width]
        ids = tf.pad(named["label_ids"], missing)[:, :width]
        labels = tf.pad(named["labels"], missing, constant_values="")[:, :width]
        probabilities = tf.pad(named["probabilities"], [*missing, [0, 0]])[:, :width]
        return {
            "probabilities": tf.where(inside[..., None], probabilities, 0.0),
            "label_ids": tf.where(inside, ids, -1),
            "labels": tf.where(inside, labels, ""),
        }

    example = {"words": [["Words", "to", "start", "with"]]}
    return {"serving_default": Signature(tag, {"words": strings("words", 2)}, example)}


@serving_signatures.register
def _(model: MultipleChoice, preprocessor, **options):
    def choose(context, question, choices):
        x = {"context": context, "question": question, "choices": choices}
        logits = model(preprocessor.encode(x), training=False)
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
    return {"serving_default": Signature(choose, inputs, example)}
