"""Each task with each kind of tokenizer, made from the families' records."""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_bertfam import models, tasks, tokenizers
from keras_bertfam.presets.families import FAMILIES

TEXTS = ["the cat sat on the mat", "a dog and a bird met", "red fish, blue! It's (42)."]
WORDS = [text.split() for text in TEXTS]
QUESTIONS = {"question": ["who sat?"] * 3, "context": TEXTS}
ANSWERS = [
    {"text": text, "answer_start": start}
    for start, text in [(4, "cat"), (2, "dog"), (4, "fish")]
]
SPANS = {"first": [[4, 7], [14, 18], [0, 3]], "second": [[15, 18], [2, 5], [10, 14]]}
CHOICES = {"context": TEXTS, "choices": [["yes", "no"]] * 3}
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
# A family with each kind of tokenizer, whose backbone fine-tuning takes.
KINDS = ("bert", "roberta", "openai-gpt", "gpt2", "albert", "xlnet", "t5")
WITHOUT_MASKS = ("openai-gpt", "gpt2", "t5")
# Of each task to fine-tune on: its arguments, its preprocessor's, inputs and labels.
FINE_TUNING = {
    "TextClassifier": ({"num_classes": 2}, {}, TEXTS, [0, 1, 1]),
    "TextRegressor": ({}, {}, TEXTS, [0.0, 1.0, 0.5]),
    "TokenClassifier": (
        {"label_names": ["O", "B-X"]},
        {},
        WORDS,
        [[len(word) % 2 for word in row] for row in WORDS],
    ),
    "SpanQuestionAnswering": (
        {},
        {"question_length": 16, "doc_stride": 8},
        QUESTIONS,
        ANSWERS,
    ),
    "MultipleChoice": ({}, {}, CHOICES, [0, 1, 0]),
    "DependencyParser": (
        {"label_names": ["root", "dep"], "arc_dim": 8, "relation_dim": 6},
        {},
        WORDS,
        [[(k, int(k > 0)) for k in range(len(row))] for row in WORDS],
    ),
    "RelationClassifier": (
        {"num_classes": 2},
        {},
        {"text": TEXTS, **SPANS},
        [0, 1, 1],
    ),
    "TextEmbedder": ({}, {}, (TEXTS, TEXTS[::-1]), [1.0, 0.0, 0.5]),
    "CrossEncoder": ({}, {}, (TEXTS, TEXTS[::-1]), [1.0, 0.0, 0.5]),
}
# Of each task to pre-train with: the family of its backbone, `None` for that of the
# tokenizer, its arguments and its preprocessor's.
PRETRAINING = {
    "MaskedLM": ("bert", {}, {}),
    "MaskedLMSentencePair": ("bert", {}, {}),
    "MaskedAutoencoder": ("bert", {}, {}),
    "DenoisingAutoencoder": ("bert", {}, {}),
    "MaskedDiffusionLM": ("bert", {}, {}),
    "MaskedPermutedLM": ("bert", {}, {}),
    "SpanBoundaryLM": ("spanbert", {}, {}),
    "ReplacedTokenDetection": ("electra", {"generator_size": 0.5, "seed": 1}, {}),
    "Distiller": ("distilbert", {}, {}),
    "PermutationLM": ("xlnet", {}, {}),
    "CausalLM": ("gpt2", {}, {}),
    "RecurrentLM": ("transfo-xl", {}, {}),
    "TextToText": ("t5", {}, {}),
    "DualEncoder": (None, {"projection_dim": None}, {}),
    "LateInteraction": (None, {"projection_dim": 8}, {"query_length": 16}),
    "SparseEncoder": ("bert", {}, {}),
}
MORE = {"albert": {"embedding_dim": 8}, "electra": {"embedding_dim": 8}}
ELMO = {"num_layers": 2, "hidden_dim": 8, "cell_dim": 16, "embedding_dim": 4}
ELMO |= {"filters": [[1, 4], [2, 4]], "num_highways": 1}
LENGTH = 48


def cells():
    """Pairs of a task and a kind of tokenizer that go together."""
    masking = ("MaskedLM", "MaskedLMSentencePair", "SpanBoundaryLM", "PermutationLM")
    masking += ("ReplacedTokenDetection", "Distiller", "SparseEncoder")
    masking += ("MaskedAutoencoder", "MaskedDiffusionLM", "MaskedPermutedLM")
    return [
        (task, kind)
        for task in (*FINE_TUNING, *PRETRAINING)
        for kind in KINDS
        if task not in masking or kind not in WITHOUT_MASKS
        if task != "SparseEncoder" or kind != "xlnet"  # whose rows have three segments
        # GPT's vocabulary marks where words end, and T5's rows have no start.
        if task != "DenoisingAutoencoder" or kind not in ("openai-gpt", "t5")
    ]


@functools.cache
def tokenizer_of(kind):
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 8)
    if kind == "bert":
        return tokenizers.train_word_piece(documents, 60)
    if kind == "openai-gpt":
        return tokenizers.train_byte_pair(documents, 60, family="gpt")
    if kind in ("roberta", "gpt2"):
        return tokenizers.train_byte_pair(documents, 300, family=kind)
    return tokenizers.train_sentence_piece(documents, 50, family=kind)


def arguments_of(family, size):
    """The arguments of a family's backbone."""
    if family == "elmo":
        return {"vocabulary_size": size, **ELMO}
    settings = {"vocabulary_size": size, **SIZES, "initializer_range": 0.3}
    settings |= MORE.get(family, {})
    if family == "openai-gpt":
        settings["intermediate_dim"] = 64  # as `transformers` has it
    if family not in ("t5", "xlnet", "transfo-xl"):
        settings["max_sequence_length"] = 64
    return settings


def backbone_of(family, size, **kwargs):
    keras.utils.set_random_seed(0)
    settings = {**arguments_of(family, size), **kwargs}
    return getattr(models, FAMILIES[family].backbone)(**settings)


def preprocessing(task, kind):
    """The arguments of a task's preprocessor, without `layout`."""
    settings = FINE_TUNING[task][1] if task in FINE_TUNING else PRETRAINING[task][2]
    return {"tokenizer": tokenizer_of(kind), "sequence_length": LENGTH, **settings}


def preprocessor_of(task, kind, **kwargs):
    cls = getattr(tasks, f"{task}Preprocessor")
    return cls(**{**preprocessing(task, kind), **kwargs})


def parts_of(task, kind, **settings):
    """The arguments of a task, its parts among them; `settings` are its backbone's."""
    tokenizer = tokenizer_of(kind)
    size = tokenizer.vocabulary_size()
    if task in FINE_TUNING:
        family, arguments = kind, FINE_TUNING[task][0]
    else:
        family, arguments = PRETRAINING[task][0] or kind, PRETRAINING[task][1]
    backbone = backbone_of(family, size, **settings)
    if task == "Distiller":
        preprocessor = tasks.MaskedLMPreprocessor(tokenizer, LENGTH)
        teacher = tasks.MaskedLM(backbone_of("bert", size), preprocessor)
        student = tasks.MaskedLM(backbone, preprocessor)
        own = preprocessor_of(task, kind)
        own.adapt(tf.data.Dataset.from_tensor_slices(TEXTS))
        return {"student": student, "teacher": teacher, "preprocessor": own}
    preprocessor = preprocessor_of(task, kind)
    return {"backbone": backbone, "preprocessor": preprocessor, **arguments}


def make(task, kind, backbone=None, **kwargs):
    """A task with a preprocessor; `backbone` are other arguments of its backbone."""
    parts = parts_of(task, kind, **(backbone or {}))
    return getattr(tasks, task)(**{**parts, **kwargs})


def given_to(task):
    """What a task's preprocessor is called on: inputs and, if it takes them, labels."""
    if task in FINE_TUNING:
        return FINE_TUNING[task][2:]
    if task == "TextToText":
        return (TEXTS, TEXTS[::-1])
    if task == "MaskedLMSentencePair":
        return ((TEXTS, TEXTS[::-1]), [0, 1, 0])
    if task in ("DualEncoder", "LateInteraction", "SparseEncoder"):
        return ((TEXTS, TEXTS[::-1]), None)
    return (TEXTS,)


def rows_of(task, model):
    """What its preprocessor makes: inputs, labels and weights, as arrays."""
    if task == "SparseEncoder":  # whose texts have ids in place of labels
        rows = model.preprocessor.of_texts(given_to(task)[0])
    else:
        rows = model.preprocessor(*given_to(task))
    return keras.tree.map_structure(np.asarray, rows)


def outputs_of(model, rows):
    """What it computes of rows."""
    x, _, _ = keras.utils.unpack_x_y_sample_weight(rows)
    found = model(keras.tree.map_structure(keras.ops.convert_to_tensor, x))
    return [keras.ops.convert_to_numpy(y) for y in keras.tree.flatten(found)]
