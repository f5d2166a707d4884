import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.layers import BertTokenizer, train_word_piece
from keras_bertfam.layers.recurrent.memory import SegmentMemory
from keras_bertfam.models import XLNetBackbone
from keras_bertfam.tasks import (
    MaskedCrossentropy,
    PermutationLM,
    PermutationLMPreprocessor,
)

WORDS = "the a cat dog sat ran on in mat hat and saw by tree red blue ##s".split()
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_model(memory_length=0, batch_size=4, seed=3, data=None, tokenizer=None, **kw):
    keras.utils.set_random_seed(seed)
    tokenizer = tokenizer or BertTokenizer([*SPECIALS, ".", *WORDS], lowercase=True)
    settings = {"dropout": 0.0, "initializer_range": 0.1, **kw}
    backbone = XLNetBackbone(tokenizer.vocabulary_size(), 2, 2, 16, 24, **settings)
    options = {"sequence_length": 16, "reuse_length": 8, **(data or {})}
    preprocessor = PermutationLMPreprocessor(tokenizer, **options)
    return PermutationLM(
        backbone, preprocessor, memory_length=memory_length, batch_size=batch_size
    )


def dataset(model, texts, batch_size=4, **kwargs):
    documents = tf.data.Dataset.from_tensor_slices(texts)
    return model.preprocessor.dataset(documents, batch_size=batch_size, **kwargs)


def batches(model, texts, count, **kwargs):
    return [*dataset(model, texts, **kwargs).take(count).as_numpy_iterator()]


def weights_of(model):
    return [ops.convert_to_numpy(v) for v in model.weights]


def memory_of(model):
    states = [ops.convert_to_numpy(s).astype("float32") for s in model.memory.states]
    return np.stack(states), ops.convert_to_numpy(model.memory.seen).sum(1)


@pytest.mark.slow
def test_logits_and_loss_against_numpy(texts):
    model = make_model()
    x, y, weights = batches(model, texts, 1)[0]
    weights = weights * (np.arange(weights.shape[1]) > 0)
    logits = ops.convert_to_numpy(model(x)).astype("float64")
    assert logits.shape == (*y.shape, 23)
    states = ops.convert_to_numpy(
        model.backbone({k: v for k, v in x.items() if k != "continues"})[
            "sequence_output"
        ]
    )
    table = ops.convert_to_numpy(model.backbone.token_embedding.embeddings)
    bias = ops.convert_to_numpy(model.head.bias)
    np.testing.assert_allclose(logits, states @ table.T + bias, atol=1e-5)
    picked = np.take_along_axis(logits, y[..., None], -1)[..., 0]
    losses = np.log(np.exp(logits).sum(-1)) - picked
    expected = (weights * losses).sum() / weights.sum()
    assert model({**x, "labels": y}).shape == (*y.shape, 1, 2)  # scores in their place
    received = model.test_on_batch(x, y, weights, return_dict=True)
    np.testing.assert_allclose(received["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(received["perplexity"], np.exp(expected), rtol=1e-4)


@pytest.mark.slow("release")
def test_fit_learns_and_reports(texts):
    model = make_model(memory_length=12, data={"both_directions": False})
    model.compile(learning_rate=1e-2)
    history = model.fit(dataset(model, texts), epochs=5, verbose=0).history
    assert {"loss", "accuracy", "perplexity"} <= {*history}
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    perplexity = np.log(history["perplexity"])
    np.testing.assert_allclose(perplexity, history["loss"], rtol=0.02)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_real_text_gets_below_its_unigram_entropy():
    from keras_bertfam.corpus import python_documentation

    texts = python_documentation()[:24]
    tokenizer = train_word_piece(tf.data.Dataset.from_tensor_slices(texts), 150)
    options = {"alpha": 3, "max_words": 1, "span_unit": "token"}
    model = make_model(
        memory_length=16,
        batch_size=16,
        tokenizer=tokenizer,
        initializer_range=0.05,
        data={"sequence_length": 32, "reuse_length": 16, **options},
    )
    data = dataset(model, texts, batch_size=16, break_lines=False).take(50)
    targets = np.concatenate([y.ravel() for _, y, _ in data.as_numpy_iterator()])
    shares = np.bincount(targets) / len(targets)
    entropy = -np.sum(shares[shares > 0] * np.log(shares[shares > 0]))
    model.compile(learning_rate=1e-2, jit_compile=keras.backend.backend() == "jax")
    losses = model.fit(data, epochs=16, verbose=0).history["loss"]
    assert losses[-1] < entropy < losses[0]


@pytest.mark.slow
def test_memory_is_what_the_batch_before_computed(texts):
    model = make_model(memory_length=12)
    first, second, third = (x for x, *_ in batches(model, texts, 3))
    model(first)
    states, lengths = memory_of(model)
    assert not states[:, :, :4].any() and (lengths == 8).all()
    plain = {k: v for k, v in first.items() if k != "continues"}
    one = model.backbone(plain, memory_length=8, reuse_length=8)["memory"]
    for state, expected in zip(states, one, strict=True):
        np.testing.assert_allclose(
            state[:, 4:], ops.convert_to_numpy(expected), atol=1e-5
        )
    received = ops.convert_to_numpy(model(second))
    plain = {k: v for k, v in second.items() if k != "continues"}
    whole = model.backbone({**plain, "memory": one})["sequence_output"]
    expected = ops.convert_to_numpy(model.head(whole))
    np.testing.assert_allclose(received, expected, atol=1e-5)
    alone = ops.convert_to_numpy(model(plain))  # neither reads nor changes memory
    assert np.abs(alone - received).max() > 1e-4
    assert (memory_of(model)[1] == 12).all()
    # A row that doesn't continue begins anew, the others go on.
    fresh = {**third, "continues": np.array([True, False, True, True])}
    received = ops.convert_to_numpy(model(fresh))
    plain = {k: v for k, v in third.items() if k != "continues"}
    alone = ops.convert_to_numpy(model(plain))
    differs = np.abs(received - alone).max(axis=(1, 2)) > 1e-5
    np.testing.assert_array_equal(differs, [True, False, True, True])
    np.testing.assert_array_equal(memory_of(model)[1], [12, 8, 12, 12])


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_carries_memory_and_begins_epochs_without(texts):
    """Two epochs equal single steps, the memory emptied in between."""
    model, steps = make_model(memory_length=12), make_model(memory_length=12)
    for one in (model, steps):
        one.compile(optimizer=keras.optimizers.SGD(0.1))
    model.fit(dataset(model, texts), epochs=2, verbose=0)
    data = dataset(steps, texts)
    for _ in range(2):
        steps.memory.seen.assign(np.zeros((4, 12), "int32"))
        for x, y, w in data:
            steps.train_on_batch(x, y, w)
    for one, other in zip(weights_of(model), weights_of(steps), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    evaluation = dataset(model, texts, training=False)
    received = [model.evaluate(evaluation, verbose=0)[0] for _ in range(2)]
    np.testing.assert_allclose(*received, rtol=1e-5)  # each begins without, too
    before, _ = memory_of(model)
    model.predict(evaluation, verbose=0)
    np.testing.assert_array_equal(before, memory_of(model)[0])


@pytest.mark.slow
def test_evaluation_leaves_the_memory_as_it_was(texts):
    model = make_model(memory_length=12)
    model.compile(jit_compile=keras.backend.backend() == "jax", total_steps=9)
    (x, y, w), *_ = batches(model, texts, 1)
    model.train_on_batch(x, y, w)
    before = memory_of(model)
    assert before[1].max() > 0
    model.evaluate(dataset(model, texts, training=False).take(2), verbose=0)
    for one, other in zip(memory_of(model), before, strict=True):
        np.testing.assert_array_equal(one, other)


class Readout(keras.Model):
    """Logits by a layer of their own, so that only inputs reach the table."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.dense = keras.layers.Dense(backbone.vocabulary_size)
        self.dense.build((None, None, backbone.hidden_dim))
        self.compile(optimizer=keras.optimizers.SGD(1.0), loss=MaskedCrossentropy())

    def call(self, inputs):
        inputs = dict(inputs)
        if "before" in inputs:
            before = {"token_ids": inputs.pop("before")}
            inputs["memory"] = self.backbone(before, memory_length=4)["memory"]
        return self.dense(self.backbone(inputs)["sequence_output"])

    def changed_rows(self, x, y, weight=1.0):
        """Rows of the token table that a step of gradient descent changes."""
        table = self.backbone.token_embedding.embeddings
        before = ops.convert_to_numpy(table).copy()
        self.train_on_batch(x, np.array([[y]]), np.array([[weight]]))
        return {*np.flatnonzero((ops.convert_to_numpy(table) != before).any(axis=1))}


def test_gradients_that_must_be_zero():
    """Through the inputs, what a target doesn't see gets no gradient."""
    model = Readout(make_model().backbone)
    x = {
        "token_ids": np.array([[10, 11, 12, 13]]),
        "segment_ids": np.array([[0, 0, 1, 1]]),
        "perm_ranks": np.array([[3, 1, 0, 2]]),  # 3 -> 2 -> 4 -> 1
        "mask_positions": np.array([[3]]),
    }
    # The fourth sees the third and the second, not itself, not the first.
    assert model.changed_rows(x, 13, weight=0.0) == set()
    assert model.changed_rows(x, 13) == {11, 12}
    # The first in the order sees nothing.
    x["mask_positions"] = np.array([[2]])
    assert model.changed_rows(x, 12) == set()


@pytest.mark.slow
def test_no_gradient_flows_into_the_memory():
    model = Readout(make_model().backbone)
    x = {
        "before": np.array([[6, 7, 8, 9]]),
        "token_ids": np.array([[10, 11, 12, 13]]),
        "perm_ranks": np.array([[3, 1, 0, 2]]),
        "mask_positions": np.array([[1]]),
    }
    first, second = (
        ops.convert_to_numpy(model({**x, "before": ids}))
        for ids in (x["before"], x["before"] + 4)
    )
    assert np.abs(first - second).max() > 1e-5  # it is read
    assert model.changed_rows(x, 11) == {12}


@pytest.mark.slow
def test_round_trips(texts, tmp_path):
    model = make_model(memory_length=8)
    first, second = (x for x, *_ in batches(model, texts, 2))
    expected = ops.convert_to_numpy(model(first))
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    for other in (
        keras.saving.load_model(tmp_path / "model.keras"),
        PermutationLM.from_preset(str(tmp_path / "preset")),
    ):
        assert other.get_config() == model.get_config()
        assert not memory_of(other)[1].any()  # memory isn't saved
        np.testing.assert_allclose(
            ops.convert_to_numpy(other(first)), expected, atol=1e-5
        )
    larger = PermutationLM.from_preset(str(tmp_path / "preset"), batch_size=6)
    assert larger.memory.batch_size == 6
    encoder = XLNetBackbone.from_preset(str(tmp_path / "preset"))
    ids = {"token_ids": second["token_ids"]}
    np.testing.assert_allclose(
        ops.convert_to_numpy(encoder(ids)["sequence_output"]),
        ops.convert_to_numpy(model.backbone(ids)["sequence_output"]),
        atol=1e-5,
    )


def test_from_name():
    model = PermutationLM(XLNetBackbone(50, 1, 1, 8, 8))
    assert model.preprocessor is None and model.memory is None
    with pytest.raises(ValueError, match="xlnet_base_en_cased"):
        PermutationLM.from_preset("xlnet_base_cased", load_weights=False)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_mixed_precision_trains(texts):
    model = make_model(memory_length=8, dtype="mixed_bfloat16")
    model.compile(learning_rate=1e-2)
    losses = model.fit(dataset(model, texts), epochs=4, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


@pytest.mark.slow
@pytest.mark.any_backend
def test_raw_strings_can_be_fitted(texts):
    model = make_model()
    history = model.fit(texts, batch_size=5, epochs=1, verbose=0).history
    assert np.isfinite(history["loss"]).all()


def test_position_biases_decay_as_published():
    model = make_model()
    model.optimizer.build(model.trainable_variables)
    spared = {
        v.path.rsplit("/", 1)[-1]
        for v in model.trainable_variables
        if not model.optimizer._use_weight_decay(v)
    }
    assert spared == {"bias", "gamma", "beta", "output_bias"}


@pytest.mark.slow
def test_errors(texts):
    backbone = XLNetBackbone(50, 1, 1, 8, 8)
    with pytest.raises(ValueError, match="batch_size=None"):
        PermutationLM(backbone, memory_length=4, reuse_length=2)
    with pytest.raises(ValueError, match="reuse_length=None"):
        PermutationLM(backbone, memory_length=4, batch_size=2)
    with pytest.raises(ValueError, match="`mask_positions`.*token_ids"):
        PermutationLM(backbone)({"token_ids": np.ones((1, 3), "int32")})
    model = make_model(memory_length=4)
    x = batches(model, texts, 1)[0][0]
    with pytest.raises(ValueError, match="4 rows on each replica"):
        model({name: value[:2] for name, value in x.items()})


def test_memory_layer_alone():
    layer = SegmentMemory(2, 3, 4, 5)
    received = layer(np.array([True, False, True]))
    assert len(received["memory"]) == 2
    assert not ops.convert_to_numpy(received["memory_mask"]).any()
    assert SegmentMemory.from_config(layer.get_config()).width == 5


@pytest.mark.slow
@pytest.mark.any_backend
def test_padding_is_not_remembered(texts):
    model = make_model(memory_length=12)
    first, second = (x for x, *_ in batches(model, texts, 2))
    there = np.arange(16) < np.array([[3], [8], [12], [16]])
    found = []
    for padding in (0, 7):
        ids = np.where(there, first["token_ids"], padding)
        model({**first, "token_ids": ids, "padding_mask": there})
        assert memory_of(model)[1].tolist() == [3, 8, 8, 8]
        found.append(ops.convert_to_numpy(model(second)))
    np.testing.assert_allclose(*found, atol=1e-6)
