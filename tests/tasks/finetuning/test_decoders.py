"""GPT's fine-tuning: new tokens, the language model's loss beside, both orders."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam import models, tasks, tokenizers
from keras_bertfam.cli.finetuning_heads import make_model
from keras_bertfam.datasets.task_data import get_task
from tests.tiny_fine_tuning import compiled

SIZES = dict(num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=12)
TEXTS = ["a cat sat", "dogs ran", "a dog sat on a cat"]
PAIRS = (TEXTS, ["dogs", "a cat ran", "a"])


@functools.cache
def make_tokenizer(family="gpt"):
    documents = tf.data.Dataset.from_tensor_slices(TEXTS * 3)
    size = 40 if family == "gpt" else 280
    return tokenizers.train_byte_pair(documents, size, family=family)


def make_backbone(family="gpt", rows=0, **kwargs):
    keras.utils.set_random_seed(3)
    cls = models.GPTBackbone if family == "gpt" else models.GPT2Backbone
    size = make_tokenizer(family).vocabulary_size() + rows
    settings = {**SIZES, "dropout": 0.0, "max_sequence_length": 24}
    return cls(size, **{**settings, "initializer_range": 0.3, **kwargs})


def make(family="gpt", both_orders=False, **kwargs):
    preprocessor = tasks.TextClassifierPreprocessor(
        make_tokenizer(family), 16, both_orders=both_orders
    )
    settings = {"num_classes": 2, "dropout": 0.0, **kwargs}
    return compiled(
        tasks.TextClassifier(
            make_backbone(family), preprocessor=preprocessor, **settings
        )
    )


def array(x):
    return ops.convert_to_numpy(x)


def arrays(x):
    return {name: np.asarray(value) for name, value in x.items()}


def states_and_losses(model, x):
    """By NumPy each row's last state, and the mean cross-entropy of its tokens."""
    shape = x["token_ids"].shape
    ids, mask = (
        x[name].reshape(-1, shape[-1]) for name in ("token_ids", "padding_mask")
    )
    backbone = model.backbone
    states = backbone({"token_ids": ids, "padding_mask": mask})["sequence_output"]
    states = array(states)
    logits = states @ array(backbone.token_embedding.embeddings).T
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    picked = np.take_along_axis(shares[:, :-1], ids[:, 1:, None], -1)[..., 0]
    losses = -(np.log(picked) * mask[:, 1:]).sum(1) / mask[:, 1:].sum(1)
    last = states[np.arange(len(ids)), mask.sum(1) - 1]
    return last.reshape(shape[0], -1, 8), losses.reshape(shape[0], -1)


def losses_of_classes(logits, labels):
    log_sums = np.log(np.exp(logits).sum(-1))
    return log_sums - logits[np.arange(len(labels)), labels]


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", ["gpt", "gpt2"])
def test_rows_begin_part_and_end_with_new_tokens(family):
    tokenizer = make_tokenizer(family)
    size = tokenizer.vocabulary_size()
    start, delimiter, extract = range(size, size + 3)
    segments = [tf.ragged.constant(ids) for ids in ([[5, 6], []], [[7], [8, 9]])]
    for cls in (tasks.TextClassifierPreprocessor, tasks.MultipleChoicePreprocessor):
        preprocessor = cls(tokenizer, 16)
        assert preprocessor.lay_out(segments)["token_ids"].to_list() == [
            [start, 5, 6, delimiter, 7, extract],
            [start, delimiter, 8, 9, extract],
        ]
        rows = preprocessor.lay_out(segments[:1])["token_ids"].to_list()
        assert rows == [[start, 5, 6, extract], [start, extract]]
    # They are in no text.
    assert np.max(np.asarray(tokenizer("_start_ _classify_"))) < size


@pytest.mark.any_backend
def test_both_orders_are_rows_of_an_example():
    tokenizer = make_tokenizer()
    size = tokenizer.vocabulary_size()
    start, delimiter, extract = range(size, size + 3)
    preprocessor = tasks.TextClassifierPreprocessor(tokenizer, 10, both_orders=True)
    segments = [tf.ragged.constant(ids) for ids in ([[5, 6], []], [[7], [8, 9]])]
    ids = preprocessor.lay_out(segments)["token_ids"]
    assert ids.shape.as_list() == [2, 2, None] and ids.to_list() == [
        [[start, 5, 6, delimiter, 7, extract], [start, 7, delimiter, 5, 6, extract]],
        [[start, delimiter, 8, 9, extract], [start, 8, 9, delimiter, extract]],
    ]
    alone = preprocessor.lay_out(segments[:1])["token_ids"].to_list()
    assert alone == [[[start, 5, 6, extract]], [[start, extract]]]
    again = type(preprocessor).from_config(preprocessor.get_config())
    assert again.both_orders and again.new_tokens == preprocessor.new_tokens
    with pytest.raises(ValueError, match="`packed` must be `False`.*both_orders=True"):
        tasks.TextClassifierPreprocessor(tokenizer, both_orders=True, packed=True)


@pytest.mark.slow
def test_the_table_grows_by_rows_of_new_weights():
    backbone = make_backbone()
    backbone.freeze(layers=1)
    preprocessor = tasks.TextClassifierPreprocessor(make_tokenizer(), 16)
    model = tasks.TextClassifier(backbone, 2, preprocessor)
    grown, size = model.backbone, backbone.vocabulary_size
    assert (grown.vocabulary_size, backbone.vocabulary_size) == (size + 3, size)
    pairs = zip(backbone.weights, grown.weights, strict=True)
    for source, target in pairs:
        value = array(target)
        if "embeddings" in source.path and len(value) == size + 3:
            assert 0.1 < np.std(value[size:]) < 0.6
            value = value[:size]
        np.testing.assert_array_equal(value, array(source))
    trainable = [v.trainable for v in backbone.weights]
    assert [v.trainable for v in grown.weights] == trainable and not all(trainable)
    # A table with rows to spare stays.
    wide = make_backbone(rows=5)
    assert tasks.TextClassifier(wide, 2, preprocessor).backbone is wide
    quantized = make_backbone()
    quantized.quantize("int8")
    with pytest.raises(ValueError, match="`backbone` must have vocabulary_size="):
        tasks.TextClassifier(quantized, 2, preprocessor)


@pytest.mark.slow
@pytest.mark.parametrize(
    "both_orders",
    [
        pytest.param(
            False, marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
        True,
    ],
)
def test_loss_against_numpy(both_orders):
    model = make(both_orders=both_orders)
    assert model.lm_weight == 0.5
    x, y = arrays(model.preprocessor(PAIRS, None)), np.array([0, 1, 1])
    weights = np.array([1.0, 0.5, 0.0], "float32")
    states, tokens = states_and_losses(model, x)
    # The head reads the state of the last token, the sum of those of both orders.
    dense = model.head.logits
    logits = states.sum(1) @ array(dense.kernel) + array(dense.bias)
    each = losses_of_classes(logits, y) + 0.5 * tokens.mean(1)
    expected = (each * weights).sum() / weights.sum()
    loss, accuracy = model.evaluate(x, y, sample_weight=weights, verbose=0)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert accuracy == pytest.approx((logits.argmax(1) == y)[:2].mean())


@pytest.mark.slow
@pytest.mark.any_backend
def test_fits_and_saves(tmp_path):
    model = make(both_orders=True)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 16)
    pairs = (["a cat" if label else "dogs ran" for label in y], ["a"] * 16)
    x = arrays(model.preprocessor(pairs, None))
    model.compile(learning_rate=2e-2, jit_compile=keras.backend.backend() == "jax")
    losses = model.fit(x, y, batch_size=16, epochs=20, verbose=0).history["loss"]
    loss, accuracy = model.evaluate(x, y, verbose=0)
    assert accuracy > 0.9 and loss < losses[0] - 0.5
    # Orders don't count.
    logits = model.predict(x, verbose=0)
    turned = {name: value[:, ::-1] for name, value in x.items()}
    np.testing.assert_allclose(model.predict(turned, verbose=0), logits, atol=1e-4)
    folder = str(tmp_path / "preset")
    model.save_to_preset(folder)
    again = tasks.TextClassifier.from_preset(folder)
    assert again.preprocessor.both_orders and again.lm_weight == 0.5
    np.testing.assert_allclose(again.predict(pairs, verbose=0), logits, atol=1e-5)
    # Its weights go on as a language model, and to another task.
    with pytest.warns(UserWarning, match="and a backbone with rows for"):
        writer = tasks.CausalLM.from_preset(folder)
    size = make_tokenizer().vocabulary_size()
    assert writer({"token_ids": np.array([[1, 2]])}).shape == (1, 2, size + 3)
    other = tasks.MultipleChoice.from_preset(folder)
    assert other.backbone.vocabulary_size == size + 3


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_language_model_becomes_a_classifier_with_new_tokens(tmp_path):
    writer = tasks.CausalLM(
        make_backbone(), tasks.CausalLMPreprocessor(make_tokenizer(), 16)
    )
    writer.save_to_preset(str(tmp_path))
    model = tasks.TextClassifier.from_preset(str(tmp_path), num_classes=3)
    size = writer.backbone.vocabulary_size
    assert model.backbone.vocabulary_size == size + 3
    table = array(model.backbone.token_embedding.embeddings)
    kept = array(writer.backbone.token_embedding.embeddings)
    np.testing.assert_array_equal(table[:size], kept)
    assert model(arrays(model.preprocessor(TEXTS))).shape == (3, 3)
    for name, both in (("mrpc", True), ("rte", False)):
        model = make_model(get_task(name), str(tmp_path))
        assert model.preprocessor.both_orders == both


@pytest.mark.slow
@pytest.mark.any_backend
def test_each_choice_has_its_context_and_the_loss_of_its_tokens():
    preprocessor = tasks.MultipleChoicePreprocessor(make_tokenizer(), 16)
    model = compiled(
        tasks.MultipleChoice(make_backbone(), preprocessor, lm_weight=0.3, dropout=0.0)
    )
    x = {"context": ["a cat", "dogs"], "choices": [["sat", "ran", "on"]] * 2}
    rows, y = arrays(preprocessor(x)), np.array([2, 0])
    states, tokens = states_and_losses(model, rows)
    dense = model.head.logits
    logits = (states @ array(dense.kernel) + array(dense.bias))[..., 0]
    expected = (losses_of_classes(logits, y) + 0.3 * tokens.mean(1)).mean()
    loss, _ = model.evaluate(rows, y, verbose=0)
    assert loss == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(array(model(rows)), logits, atol=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_an_encoder_that_reads_from_left_to_right_is_read_at_the_end():
    backbone = models.BertBackbone(20, **SIZES, dropout=0.0, causal=True, pooler=False)
    model = tasks.TextClassifier(backbone, 2)
    assert model.lm_weight == 0
    ids = np.array([[1, 2, 3, 4], [1, 2, 4, 0]])
    x = {"token_ids": ids, "padding_mask": ids > 0}
    states = array(backbone(x)["sequence_output"])[[0, 1], [3, 2]]
    np.testing.assert_allclose(array(model(x)), array(model.head(states)), atol=1e-5)


def test_what_does_not_fit_is_refused():
    backbone, tokenizer = make_backbone(), make_tokenizer()
    packed = tasks.TextClassifierPreprocessor(tokenizer, 16, packed=True)
    with pytest.raises(ValueError, match="`packed` must be `False` where the last"):
        tasks.TextClassifier(backbone, 2, packed)
    for weight in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="`lm_weight` must be a finite number"):
            tasks.TextClassifier(backbone, 2, lm_weight=weight)
    encoder = models.BertBackbone(20, **SIZES)
    with pytest.raises(ValueError, match="`lm_weight`.*BertBackbone with causal=False"):
        tasks.MultipleChoice(encoder, lm_weight=0.5)
    model = tasks.TextClassifier(backbone, 2)
    with pytest.raises(ValueError, match="`lm_weight` must be given to the"):
        model.lm_weight = 0.1
    x = {"token_ids": np.ones((1, 4), int), "sequence_ids": np.ones((1, 4), int)}
    with pytest.raises(ValueError, match="`packed` must be `False` where the last"):
        model({**x, "sequence_starts": np.zeros((1, 1), int)})
