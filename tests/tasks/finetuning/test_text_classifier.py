import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.tasks import (
    MaskedLM,
    MaskedLMPreprocessor,
    TextClassifier,
    TextClassifierPreprocessor,
    TextRegressor,
    TextRegressorPreprocessor,
)
from tests import tiny_fine_tuning as tiny

TEXTS = ["the cat sat", "a dog", ""]


def make(family="bert", labels=("no", "yes"), num_layers=1, **kwargs):
    layout = "xlnet" if family == "xlnet" else None
    preprocessor = TextClassifierPreprocessor(tiny.make_tokenizer(), 16, layout=layout)
    settings = {"dtype": kwargs.pop("dtype")} if "dtype" in kwargs else {}
    backbone = tiny.make_backbone(family, num_layers=num_layers, **settings)
    model = TextClassifier(
        backbone, preprocessor=preprocessor, label_names=labels, **kwargs
    )
    return tiny.compiled(model)


def outputs(model, texts=TEXTS):
    """The outputs for texts, without compiling anything."""
    x = {k: np.asarray(v) for k, v in model.preprocessor(texts, None).items()}
    return ops.convert_to_numpy(model(x, training=False))


@pytest.mark.slow
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_gives_logits_of_what_its_head_reads(family):
    # All tokens vote in EuroBERT's other heads, see test_hf_eurobert.py.
    style = {"head_style": "eurobert_bos"} if family == "eurobert" else {}
    model = make(family, num_layers=2, **style)
    x = {k: np.asarray(v) for k, v in model.preprocessor(TEXTS).items()}
    logits = ops.convert_to_numpy(model(x))
    assert logits.shape == (3, 2) and logits.dtype == "float32"
    if family == "longformer":  # what the task says itself
        x["global_positions"] = np.zeros((3, 1), "int32")
    states = model.backbone(x, return_pooled=False)["sequence_output"]
    last = x["padding_mask"].sum(1) - 1 if family == "xlnet" else np.zeros(3, int)
    state = ops.convert_to_numpy(states)[np.arange(3), last]
    if model.reads_pooler:
        state = model.backbone.pooler(ops.expand_dims(state, 1))
    expected = ops.convert_to_numpy(model.head(ops.convert_to_tensor(state)))
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_the_heads_are_those_published():
    heads = {f: make(f).head for f in ("bert", "roberta", "electra", "distilbert")}
    assert heads["bert"].dense is None and heads["bert"].dropout == 0.1
    assert heads["roberta"].activation == "tanh" and heads["roberta"].input_dropout
    assert heads["electra"].activation == "gelu" and heads["electra"].input_dropout
    assert heads["distilbert"].activation == "relu"
    assert (heads["distilbert"].dropout, heads["distilbert"].input_dropout) == (0.2, 0)
    assert make(head_style="linear", dropout=0.3).head.dropout == 0.3


def test_only_what_the_loss_reaches_is_trained():
    linear = make(head_style="linear")
    pooler = {id(v) for v in linear.backbone.pooler.variables}
    assert not pooler & {id(v) for v in linear.trainable_variables}
    bert = make()
    assert {id(v) for v in bert.backbone.pooler.variables} <= {
        id(v) for v in bert.trainable_variables
    }
    xlnet = make("xlnet")
    query = xlnet.backbone.query_embedding.embeddings
    assert id(query) not in {id(v) for v in xlnet.trainable_variables}


@pytest.mark.slow
def test_fit_evaluate_and_predict_take_raw_strings():
    model = make()
    texts, labels = tiny.texts(40)
    names = [("no", "yes")[label] for label in labels]
    model.compile(learning_rate=3e-2, jit_compile=keras.backend.backend() == "jax")
    history = model.fit(
        texts,
        names,
        batch_size=8,
        epochs=6,
        validation_data=(texts, labels),
        verbose=0,
    ).history
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= {*history}
    assert history["val_accuracy"][-1] > 0.9
    evaluated = model.evaluate(texts, labels, batch_size=16, verbose=0)
    np.testing.assert_allclose(evaluated[1], history["val_accuracy"][-1], atol=1e-6)
    logits = model.predict(texts, batch_size=16, verbose=0)
    assert logits.shape == (40, 2)
    right = np.mean(logits.argmax(-1) == labels)
    np.testing.assert_allclose(right, evaluated[1], atol=1e-6)
    padded = model.predict(model.preprocessor(texts), batch_size=40, verbose=0)
    np.testing.assert_allclose(logits, padded, atol=1e-5)
    some = model.predict(texts, batch_size=16, steps=2, verbose=0)
    np.testing.assert_allclose(some, padded[:32], atol=1e-5)
    answers = model.classify(TEXTS)
    assert all(abs(sum(p for _, p in answer) - 1) < 1e-5 for answer in answers)
    assert [answer[0][0] for answer in model.classify(texts[:8])] == names[:8]


@pytest.mark.slow
@pytest.mark.any_backend
def test_batched_data_is_taken_as_it_comes():
    model = make()
    texts, labels = tiny.texts(16)
    pairs = (texts, texts[::-1])
    data = tf.data.Dataset.from_tensor_slices((pairs, labels)).batch(8)
    expected = np.mean([float(n) for n in labels])
    model.compile(learning_rate=1e-9, jit_compile=keras.backend.backend() == "jax")
    assert np.isfinite(model.fit(data, verbose=0).history["loss"]).all()
    assert 0 < expected < 1
    answers = model.classify((texts[:3], texts[3:6]))
    assert len(answers) == 3
    listed = [*zip(texts[:3], texts[3:6], strict=True)]
    assert model.classify(listed) == answers
    history = model.fit(listed, labels[:3], verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.slow
@pytest.mark.any_backend
def test_nothing_is_traced_again_for_each_batch():
    """The preprocessor is a layer that batches made elsewhere never reach."""
    preprocessor = TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    model = TextClassifier(tiny.make_backbone(), 2, preprocessor)
    assert all(layer.built for layer in model._flatten_layers())


@pytest.mark.slow
def test_class_weights_of_raw_strings():
    model = make(dropout=0.0)
    texts, labels = tiny.texts(16)
    model.compile(learning_rate=1e-9, jit_compile=keras.backend.backend() == "jax")
    one = [i for i, label in enumerate(labels) if label]
    weighted = model.fit(
        texts, labels, batch_size=16, class_weight={0: 0.0, 1: 1.0}, verbose=0
    ).history["loss"][0]
    kept = outputs(model, [texts[i] for i in one])
    expected = np.mean(np.log(np.exp(kept).sum(-1)) - kept[:, 1])
    np.testing.assert_allclose(weighted, expected, rtol=1e-3)
    named = model.preprocessor.weights_of_classes(["no", "yes"], {"no": 0, "yes": 5})
    assert named == [0.0, 5.0]
    batches = tf.data.Dataset.from_tensors((texts, [["no", "yes"][k] for k in labels]))
    of_names = {"no": 0.0, "yes": 1.0}
    model.fit(batches, class_weight=of_names, verbose=0)  # in Keras's own way
    for data in ((texts, labels), (batches,)):
        for wrong, message in (
            ({"maybe": 1.0}, "below 2.*'maybe'"),
            ("balanced", "a dict.*'balanced'"),
            ([1.0, 2.0], r"a dict.*\[1.0, 2.0\]"),
            ({"no": "1"}, "finite numbers"),
        ):
            with pytest.raises(ValueError, match=f"`class_weight` must .*{message}"):
                model.fit(*data, class_weight=wrong)
    with pytest.raises(ValueError, match="can't both"):
        model.fit(texts, labels, sample_weight=[1.0] * 16, class_weight={0: 1.0})


@pytest.mark.slow
def test_weights_are_of_the_loss_not_of_the_metrics():
    model = make(dropout=0.0)
    texts, labels = tiny.texts(17)  # the last batch is filled up
    model.compile(learning_rate=1e-9, jit_compile=keras.backend.backend() == "jax")
    right = np.mean(outputs(model, texts).argmax(-1) == labels)
    options = {"batch_size": 8, "verbose": 0}
    history = model.fit(texts, labels, class_weight={0: 50.0, 1: 0.01}, **options)
    assert history.history["accuracy"][0] == pytest.approx(right)
    weights = np.linspace(0.1, 9.0, 17)
    results = model.evaluate(texts, labels, sample_weight=weights, **options)
    assert results[1] == pytest.approx(right)
    metric = model.default_metrics()[0]
    other = type(metric).from_config(metric.get_config())
    other.update_state([0, 1, 1], np.eye(2)[[0, 1, 0]], [2.0, 0.5, 0.0])
    assert float(other.result()) == 1.0


def test_defaults_of_compile():
    model = make()
    model.compile()
    assert isinstance(model.optimizer, keras.optimizers.AdamW)
    schedule = model.optimizer._learning_rate
    assert (schedule.peak_learning_rate, schedule.warmup_steps) == (5e-5, 0.1)
    assert model.optimizer.epsilon == 1e-8
    assert make(dtype="float16").optimizer.epsilon == 1e-6  # 1e-8 would be 0
    logits, y = np.array([[2.0, 0.0], [0.0, 1.0]], "float32"), np.array([0, 0])
    expected = np.mean(np.log(np.exp(logits).sum(1)) - logits[:, 0])
    received = model.compute_loss(None, y, ops.convert_to_tensor(logits))
    np.testing.assert_allclose(ops.convert_to_numpy(received), expected, rtol=1e-5)


@pytest.mark.slow
def test_softmax_gives_probabilities_and_the_same_loss():
    logits = make()
    model = make(activation="softmax")
    model.set_weights(logits.get_weights())
    received = outputs(model)
    np.testing.assert_allclose(received.sum(-1), 1, atol=1e-6)
    expected = np.exp(outputs(logits))
    np.testing.assert_allclose(
        received, expected / expected.sum(-1, keepdims=True), atol=1e-6
    )
    y = np.array([0, 1, 0])
    losses = [
        float(ops.convert_to_numpy(m.compute_loss(None, y, outputs(m))))
        for m in (model, logits)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.slow
def test_round_trips(tmp_path):
    model = make()
    expected = outputs(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    assert other.label_names == ["no", "yes"]
    preset = str(tmp_path / "preset")
    model.save_to_preset(preset)
    other = TextClassifier.from_preset(preset)
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    assert other.get_config() == model.get_config()
    other = TextClassifier.from_preset(preset, label_names=("no", "yes"))
    np.testing.assert_allclose(outputs(other), expected, atol=1e-6)
    assert TextClassifier.from_config(model.get_config()).num_classes == 2
    for arguments in ({"label_names": ["yes", "no"]}, {"num_classes": 5}):
        with pytest.warns(UserWarning, match=rf"head .* new.*`{[*arguments][0]}` out"):
            new = TextClassifier.from_preset(preset, **arguments)
    assert outputs(new).shape == (3, 5) and new.label_names is None


@pytest.mark.slow
def test_the_preset_of_another_task_becomes_a_classifier(tmp_path):
    tokenizer = tiny.make_tokenizer()
    pretrained = MaskedLM(tiny.make_backbone(), MaskedLMPreprocessor(tokenizer, 16))
    pretrained.save_to_preset(str(tmp_path))
    model = TextClassifier.from_preset(str(tmp_path), num_classes=3)
    assert isinstance(model.preprocessor, TextClassifierPreprocessor)
    assert outputs(model).shape == (3, 3)
    np.testing.assert_array_equal(
        *(ops.convert_to_numpy(m.backbone.weights[0]) for m in (model, pretrained))
    )


@pytest.mark.slow
def test_rows_are_no_longer_than_the_backbone_takes(tmp_path):
    pretrained = MaskedLM(
        tiny.make_backbone(max_sequence_length=12),
        MaskedLMPreprocessor(tiny.make_tokenizer(), 12),
    )
    pretrained.save_to_preset(str(tmp_path))
    model = TextClassifier.from_preset(str(tmp_path), num_classes=2)
    assert model.preprocessor.sequence_length == 12
    assert outputs(model, ["the cat " * 20]).shape == (1, 2)


@pytest.mark.slow
@pytest.mark.any_backend
def test_validation_split_holds_out_the_last_examples():
    model = make()
    texts, labels = tiny.texts(40)
    options = {"batch_size": 8, "validation_split": 0.2, "verbose": 0}
    history = model.fit(texts, labels, **options).history
    assert model.optimizer.iterations.numpy() == 4
    assert model.optimizer._learning_rate.total_steps == 4
    expected = model.evaluate(texts[32:], labels[32:], verbose=0, return_dict=True)
    assert history["val_loss"][0] == pytest.approx(expected["loss"], rel=1e-4)
    with pytest.raises(ValueError, match="`validation_split`.*Received: 1.0, for 40"):
        model.fit(texts, labels, validation_split=1.0)


def test_errors():
    backbone = tiny.make_backbone()
    preprocessor = TextClassifierPreprocessor(tiny.make_tokenizer(), num_classes=3)
    with pytest.raises(ValueError, match="num_classes.*positive"):
        TextClassifier(backbone)
    with pytest.raises(ValueError, match="the preprocessor's, 3. Received: 2"):
        TextClassifier(backbone, 2, preprocessor)
    with pytest.raises(ValueError, match="`head_style`.*'gpt5'"):
        TextClassifier(backbone, 2, head_style="gpt5")
    with pytest.raises(ValueError, match="`activation`.*'relu'"):
        TextClassifier(backbone, 2, activation="relu")
    with pytest.raises(ValueError, match="preprocessor"):
        TextClassifier(backbone, 2).classify("the")
    model = make()
    with pytest.raises(ValueError, match=r"in \[0, num_classes=2\).*9"):
        model.fit(["a", "the"], [0, 9])
    with pytest.raises(ValueError, match="`y` must be the labels of `x`"):
        model.fit(["a", "the"])
    with pytest.raises(ValueError, match="equally many.*x of 2, y of 1"):
        model.fit(["a", "the"], [1])
    with pytest.raises(ValueError, match="equally many.*x of 1 and 2, y of 1"):
        model.fit((["a"], ["a", "the"]), [1])
    with pytest.raises(
        ValueError, match="`x` must be a batch.*single example.*the cat"
    ):
        model.predict("the cat")
    assert model.classify([]) == []


@pytest.mark.slow
@pytest.mark.any_backend
def test_regression():
    preprocessor = TextRegressorPreprocessor(tiny.make_tokenizer(), 16)
    model = TextRegressor(tiny.make_backbone(num_layers=1), preprocessor)
    tiny.compiled(model, learning_rate=3e-2)
    texts, labels = tiny.texts(32)
    pairs = (texts, ["a"] * 32)
    y = [3.0 * label for label in labels]
    history = model.fit(pairs, y, batch_size=8, epochs=6, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0] and "rmse" in history
    predicted = model.predict(pairs, batch_size=16, verbose=0)
    assert predicted.shape == (32,)
    loss, rmse = model.evaluate(pairs, y, batch_size=16, verbose=0)
    np.testing.assert_allclose(loss, np.mean((predicted - y) ** 2), rtol=1e-4)
    np.testing.assert_allclose(rmse, np.sqrt(loss), rtol=1e-4)
    other = TextRegressor.from_config(model.get_config())
    assert other.get_config() == model.get_config()
