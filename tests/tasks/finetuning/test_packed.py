"""Examples that share rows are trained as if each had its own."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from tests import tiny_fine_tuning as tiny

TEXTS = [" ".join(text.split()[:7]) for text in tiny.texts(12)[0]]
WEIGHTS = np.array([1, 2, 0.5, 1, 0, 1, 3, 1, 1, 2, 1, 1], "float32")
NUMBERS = np.linspace(-1, 1, 12).astype("float32")
CASES = {
    "classifier": ("TextClassifier", {"num_classes": 2}),
    "dense head": ("TextClassifier", {"num_classes": 2, "head_style": "roberta"}),
    "regressor": ("TextRegressor", {}),
    "tagger": ("TokenClassifier", {"num_classes": 3}),
    "embedder": ("TextEmbedder", {}),
    "embedder by cls": ("TextEmbedder", {"pooling": "cls", "normalize": False}),
}


def examples(name):
    """What a task's preprocessor takes to train on."""
    if name == "TokenClassifier":
        words = [text.split() for text in TEXTS]
        return words, [[len(word) % 3 for word in row] for row in words], WEIGHTS
    x = (TEXTS, TEXTS[::-1]) if name == "TextEmbedder" else TEXTS
    return x, np.arange(12) % 2 if name == "TextClassifier" else NUMBERS, WEIGHTS


def make(name, arguments=None, family="albert", **kwargs):
    """A model with shared layers and factorised tables, and no dropout."""
    if family != "xlnet":
        kwargs.setdefault("max_sequence_length", 48)
    backbone = tiny.make_backbone(family, initializer_range=0.2, **kwargs)
    preprocessor = getattr(tasks, f"{name}Preprocessor")(tiny.make_tokenizer(), 24)
    preprocessor.packed = True
    arguments = {**(arguments or {})}
    if name != "TextEmbedder":
        arguments["dropout"] = 0.0
    return getattr(tasks, name)(backbone, preprocessor=preprocessor, **arguments)


def step(model, batch, weights):
    """Loss and metric of a batch, and its gradient, which is a step of rate 1."""
    for variable, value in zip(model.trainable_variables, weights, strict=True):
        variable.assign(value)
    model.reset_metrics()
    logs = model.train_on_batch(*batch)
    moved = weights_of(model)
    return logs, [old - new for old, new in zip(weights, moved, strict=True)]


def weights_of(model):
    return [np.array(ops.convert_to_numpy(v.value)) for v in model.trainable_variables]


def _with_an_empty_row(part):
    return np.concatenate([part, np.zeros_like(part[:1])])


SLOW = ("dense head", "regressor", "tagger", "embedder by cls")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, marks=[pytest.mark.slow("release"), pytest.mark.any_backend])
        if c in SLOW
        else c
        for c in CASES
    ],
)
def test_loss_and_gradient_are_those_of_a_row_for_each(case):
    name, arguments = CASES[case]
    model = make(name, arguments)
    on_jax = keras.backend.backend() == "jax"
    model.compile(keras.optimizers.SGD(1.0), jit_compile=on_jax, run_eagerly=not on_jax)
    weights = weights_of(model)
    dataset = model.preprocessor.dataset
    # All in one batch, and an empty row besides, as the last of a pass may have.
    (batch,) = dataset(examples(name), 24).as_numpy_iterator()
    x, y, w = keras.tree.map_structure(_with_an_empty_row, batch)
    assert (x["sequence_ids"].max(1) == 0).any() and x["sequence_ids"].max() > 2
    (apart,) = dataset(examples(name), 12, training=False).as_numpy_iterator()
    assert "sequence_ids" not in apart[0]
    (logs, gradient), (expected_logs, expected) = (
        step(model, batch, weights) for batch in ((x, y, w), apart)
    )
    np.testing.assert_allclose(logs, expected_logs, atol=1e-5)
    assert max(np.abs(part).max() for part in expected) > 1e-3
    for part, expected_part in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(part, expected_part, atol=1e-5)


@pytest.mark.slow
def test_rows_may_have_room_for_any_number_of_sequences():
    """Batches of another shape, which TensorFlow traces with shapes left open."""
    model = make("TextClassifier", {"num_classes": 2}, num_layers=1)
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    ids = np.array([[2, 7, 3, 2, 8, 9, 3, 0]])
    x = {"token_ids": ids, "sequence_ids": np.array([[1, 1, 1, 2, 2, 2, 2, 0]])}
    losses = []
    for count in (2, 3, 5):
        x["sequence_starts"] = np.array([[0, 3, 0, 0, 0]])[:, :count]
        y, weights = np.array([[1, 0, 0, 0, 0]]), np.array([[1.0, 1, 0, 0, 0]])
        losses.append(model.train_on_batch(x, y[:, :count], weights[:, :count])[0])
    np.testing.assert_allclose(losses, losses[:1] * 3, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_packs_strings_and_evaluate_does_not():
    classes = {"label_names": ["no", "yes"]}
    model = make("TextClassifier", classes, "bert", num_layers=1)
    tiny.compiled(model, learning_rate=3e-2)
    texts, labels = tiny.texts(48)
    texts = [" ".join(text.split()[:5]) for text in texts]
    names = [model.label_names[k] for k in labels]
    shapes = set()
    call = model.call

    def watched(inputs, training=None):
        shapes.add((tuple(inputs["token_ids"].shape), "sequence_ids" in inputs))
        return call(inputs, training)

    model.call = watched
    fitted = model.fit(
        texts,
        names,
        batch_size=12,
        epochs=8,
        class_weight={"no": 2.0},
        validation_data=(texts, names),
        verbose=0,
    ).history
    assert fitted["loss"][-1] < 0.5 * fitted["loss"][0]
    assert fitted["val_accuracy"][-1] > 0.8
    ((batch, length),) = [shape for shape, packed in shapes if packed]
    assert batch < 12 and length == 24
    assert len(model.classify(texts[:3])) == 3


def test_xlnet_and_rows_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="`packed` must be .*XLNetBackbone"):
        make("TokenClassifier", {"num_classes": 2}, "xlnet", num_layers=1)
    sizes = {"num_layers": 1, "max_sequence_length": 32}
    with pytest.raises(ValueError, match="48 tokens, .*max_sequence_length=32"):
        make("TextEmbedder", **sizes)
    model = make("TextClassifier", {"num_classes": 2}, **sizes)
    model.preprocessor = tasks.TextClassifierPreprocessor(
        tiny.make_tokenizer(), 33, num_classes=2, packed=True
    )
    with pytest.raises(ValueError, match="33 tokens"):
        model.fit(["a"], [0])
