"""Each family with each task, by what a user does: made from the families' records."""

import contextlib
import functools
import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks, tokenizers
from keras_bertfam.export import export_saved_model
from keras_bertfam.presets.families import FAMILIES

TEXTS = ["the cat sat on the mat", "a dog and a bird met", "red fish, blue! It's (42)."]
WORDS = [text.split() for text in TEXTS]
QUESTIONS = {"question": ["who sat?"] * 3, "context": TEXTS}
ANSWERS = [(4, "cat"), (2, "dog"), (4, "fish")]
SPANS = {"first": [[4, 7], [14, 18], [0, 3]], "second": [[15, 18], [2, 5], [10, 14]]}
CHOICES = {"context": TEXTS, "choices": [["yes", "no"]] * 3}
# Of each task: its arguments, those of its preprocessor, and inputs with labels.
TASKS = {
    "TextClassifier": ({"num_classes": 2}, {}, TEXTS, np.array([0, 1, 1])),
    "TextRegressor": ({}, {}, TEXTS, np.array([0.0, 1.0, 0.5], "float32")),
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
        [{"text": text, "answer_start": start} for start, text in ANSWERS],
    ),
    "MultipleChoice": ({}, {}, CHOICES, np.array([0, 1, 0])),
    "DependencyParser": (
        {"label_names": ["root", "dep"], "arc_dim": 8, "relation_dim": 6},
        {},
        WORDS,
        [[(k, "dep" if k else "root") for k in range(len(row))] for row in WORDS],
    ),
    "RelationClassifier": (
        {"num_classes": 2},
        {},
        {"text": TEXTS, **SPANS},
        np.array([0, 1, 1]),
    ),
    "TextEmbedder": ({}, {}, (TEXTS, TEXTS[::-1]), np.array([1, 0, 0.5], "float32")),
    "CrossEncoder": ({}, {}, (TEXTS, TEXTS[::-1]), np.array([1, 0, 0.5], "float32")),
}
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
MORE = {
    "albert": {"embedding_dim": 8},
    "electra": {"embedding_dim": 8},
    "longformer": {"attention_window": 8},
    # As `transformers` has them.
    "openai-gpt": {"intermediate_dim": 64},
    "xlm": {"intermediate_dim": 64},
}
# Families with Transformer blocks and texts; the others take their own inputs.
NAMES = [
    name
    for name, record in FAMILIES.items()
    if record.transformers and record.tokenizer != "words"
]


def trained(name):
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 8)
    kind = FAMILIES[name].tokenizer
    form = {"openai-gpt": "gpt", "longformer": "roberta", "xlm": "roberta"}
    form = form.get(name, name).removesuffix("-xl")
    form = form.removesuffix("-decoder")
    if kind == "word_piece":
        form = name if name == "mpnet" else "bert"
        return tokenizers.train_word_piece(documents, 60, family=form)
    if kind == "byte_pair":
        size = 60 if form == "gpt" else 300
        return tokenizers.train_byte_pair(documents, size, family=form)
    return tokenizers.train_sentence_piece(documents, 50, family=form)


@functools.cache
def parts(name):
    tokenizer = trained(name)
    settings = {**SIZES, **MORE.get(name, {})}
    if name not in ("t5", "xlnet"):
        settings["max_sequence_length"] = 64
    keras.utils.set_random_seed(0)
    cls = getattr(models, FAMILIES[name].backbone)
    return cls(tokenizer.vocabulary_size(), **settings).get_config(), cls, tokenizer


def cells():
    """A family with each task; some of them are for CI."""
    for (i, name), (j, task) in itertools.product(enumerate(NAMES), enumerate(TASKS)):
        marks = [pytest.mark.slow("release")]
        if (i + j) % (2 * len(TASKS)) == 0 and name not in ("bart", "t5"):
            marks = [pytest.mark.slow]
        yield pytest.param(name, task, marks=marks)


def flat(outputs):
    """What was predicted: numbers and texts by themselves, in their order."""
    if isinstance(outputs, dict):
        outputs = [outputs[key] for key in sorted(outputs)]
    if isinstance(outputs, list | tuple):
        return [leaf for each in outputs for leaf in flat(each)]
    if isinstance(outputs, np.ndarray):
        return outputs.astype("float64").ravel().tolist()
    return [outputs]


def same(found, expected):
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, str):
            assert one == other
        else:
            assert one == pytest.approx(other, abs=1e-4)


def check_served(signature, task, asked, expected):
    """A SavedModel says what `predict` says."""
    given = asked if isinstance(asked, dict) else {"text": asked}
    if task in ("TokenClassifier", "DependencyParser"):
        given = {"words": tf.ragged.constant(asked).to_tensor("")}
    if task == "CrossEncoder":
        given = dict(zip(("query", "passage"), asked, strict=True))
    if task == "MultipleChoice":
        given = {**given, "question": [""] * len(TEXTS)}
    found = signature(**{name: tf.constant(value) for name, value in given.items()})
    found = {name: value.numpy() for name, value in found.items()}
    if task in ("TextRegressor", "CrossEncoder", "TextEmbedder"):
        same(found["embeddings" if task == "TextEmbedder" else "scores"], expected)
    elif task == "SpanQuestionAnswering":
        texts = [text.decode() for text in found["answer"].ravel()]
        assert texts == [answer["text"] for answer in expected]
    elif task == "TokenClassifier":
        for row, logits, words in zip(found["label_ids"], expected, asked, strict=True):
            best = logits.argmax(-1)[: len(words)].tolist()
            assert row.tolist() == best + [-1] * (len(row) - len(words))
    elif task == "DependencyParser":
        for row, arcs, words in zip(
            found["heads"], expected["arcs"], asked, strict=True
        ):
            best = arcs.argmax(-1)[: len(words)].tolist()
            assert row.tolist() == best + [-1] * (len(row) - len(words))
    else:
        odds = np.exp(expected) / np.exp(expected).sum(-1, keepdims=True)
        same(found["probabilities"], odds)


def made(name, task):
    """A family's task with a tokenizer of its kind, inputs and labels."""
    config, cls, tokenizer = parts(name)
    arguments, settings, x, y = TASKS[task]
    preprocessor = getattr(tasks, f"{task}Preprocessor")(
        tokenizer, sequence_length=48, layout=FAMILIES[name].layout.name, **settings
    )
    backbone = cls.from_config(config)
    model = getattr(tasks, task)(backbone, preprocessor=preprocessor, **arguments)
    return model, x, y


@pytest.mark.parametrize(("name", "task"), list(cells()))
def test_what_a_user_does(name, task, tmp_path):
    model, x, y = made(name, task)
    model.compile(learning_rate=1e-3, jit_compile=keras.backend.backend() == "jax")
    history = model.fit(x, y, batch_size=3, verbose=0).history
    assert all(np.isfinite(value).all() for value in history.values())
    model.evaluate(x, y, batch_size=3, verbose=0)
    asked = x[0] if task == "TextEmbedder" else x
    expected = model.predict(asked, verbose=0)
    if hasattr(model, "report"):
        assert model.report(x, y)

    model.save_to_preset(str(tmp_path / "preset"))
    again = type(model).from_preset(str(tmp_path / "preset"))
    same(again.predict(asked, verbose=0), expected)

    try:
        model.export_to_transformers(str(tmp_path / "theirs"))
    except ValueError as error:
        assert re.search("`transformers` has no .* of this kind", str(error))
    else:
        back = type(model).from_preset(str(tmp_path / "theirs"))
        ids, theirs = (t.preprocessor.tokenizer(TEXTS) for t in (model, back))
        assert theirs.to_list() == ids.to_list()

    if keras.backend.backend() == "tensorflow":
        export_saved_model(model, str(tmp_path / "served"))
        loaded = tf.saved_model.load(str(tmp_path / "served"))
        check_served(loaded.signatures["serving_default"], task, asked, expected)


WRITERS = {"bart": "TextToText", "t5": "TextToText"}
WRITERS |= dict.fromkeys(("openai-gpt", "gpt2", "modernbert-decoder"), "CausalLM")


def said(model, task):
    """What a pre-trained model writes, or puts in place of a mask."""
    if task != "MaskedLM":
        return model.generate(["the cat sat"], 12)
    mask = model.preprocessor.tokenizer.mask_token
    [[best]] = model.fill_mask([f"the cat {mask} on the mat"], top_k=3)
    return [token for token, _ in best]


@pytest.mark.slow("release")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "xlnet"])
def test_what_is_pretrained(name, tmp_path):
    config, cls, tokenizer = parts(name)
    task = WRITERS.get(name, "MaskedLM")
    preprocessor = getattr(tasks, f"{task}Preprocessor")(tokenizer, 16)
    model = getattr(tasks, task)(cls.from_config(config), preprocessor)
    model.compile(learning_rate=1e-3, jit_compile=keras.backend.backend() == "jax")
    if task == "TextToText":
        model.fit(TEXTS, TEXTS, batch_size=3, verbose=0)
    else:
        documents = tf.data.Dataset.from_tensor_slices(TEXTS * 8)
        history = model.fit(preprocessor.dataset(documents, batch_size=2), verbose=0)
        assert np.isfinite(history.history["loss"]).all()
    expected = said(model, task)
    model.save_to_preset(str(tmp_path / "preset"))
    again = type(model).from_preset(str(tmp_path / "preset"))
    assert said(again, task) == expected
    # ELECTRA's GELU has another form there.
    differs = pytest.warns(UserWarning, match="has the erf form in `transformers`")
    with differs if name == "electra" else contextlib.nullcontext():
        model.export_to_transformers(str(tmp_path / "theirs"))
        back = type(model).from_preset(str(tmp_path / "theirs"))
    assert said(back, task) == expected
    if keras.backend.backend() == "tensorflow":
        export_saved_model(model, str(tmp_path / "served"))
        assert tf.saved_model.load(str(tmp_path / "served")).signatures
