import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.corpus import python_documentation
from keras_bertfam.export import export_saved_model
from keras_bertfam.layers import BertTokenizer, train_word_piece
from keras_bertfam.models import EncoderBackbone, RobertaBackbone, SpanBertBackbone
from keras_bertfam.tasks import SpanBoundaryLM, SpanBoundaryLMPreprocessor

WORDS = "the a cat dog sat ran on in mat hat and saw by tree red blue".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS, "##s"]
SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
SIZE |= {"max_sequence_length": 32, "dropout": 0.0}


def make_model(
    tokenizer=None, backbone_cls=SpanBertBackbone, prepare=None, task=None, **kwargs
):
    keras.utils.set_random_seed(3)
    tokenizer = tokenizer or BertTokenizer(VOCABULARY)
    prepare = {"sequence_length": 24, "mask_selection_rate": 0.3, **(prepare or {})}
    preprocessor = SpanBoundaryLMPreprocessor(tokenizer, **prepare)
    backbone = backbone_cls(tokenizer.vocabulary_size(), **{**SIZE, **kwargs})
    return SpanBoundaryLM(backbone, preprocessor, **(task or {}))


def numpy_tree(tree):
    return tf.nest.map_structure(lambda x: x.numpy(), tree)


def batch(model, texts):
    return numpy_tree(model.preprocessor(texts, seed=[0, 1]))


def array(x):
    return ops.convert_to_numpy(x)


# === Data ===


@pytest.mark.slow
def test_elements(texts):
    preprocessor = make_model().preprocessor
    documents = tf.data.Dataset.from_tensor_slices(texts)
    x, y, w = preprocessor.dataset(documents, 4).element_spec
    assert {k: (v.shape.as_list(), v.dtype.name) for k, v in x.items()} == {
        "token_ids": ([4, 24], "int32"),
        "padding_mask": ([4, 24], "bool"),
        "mask_positions": ([4, 8], "int32"),
        "span_bounds": ([4, 8, 2], "int32"),
    }
    for values, dtype in ((y, "int32"), (w, "float32")):
        assert {k: (v.shape.as_list(), v.dtype.name) for k, v in values.items()} == {
            "masked_lm": ([4, 8], dtype),
            "span_boundary": ([4, 8], dtype),
        }
    # DOC-SENTENCES: no block holds two documents.
    blocks = [b["token_ids"].numpy() for b in preprocessor.pack(documents)]
    assert all((ids == 3).sum() == 1 for ids in blocks)


@pytest.mark.parametrize("skip", [False, True])
def test_targets_of_the_golden_case(skip):
    """Spans (0,1), (3,7) and (18,19) of 20 tokens: the outer two may be skipped."""
    chosen = np.array([0, 1, 3, 4, 5, 6, 7, 18, 19])
    preprocessor = make_model(
        prepare={
            "strategy": "given_spans",
            "mask_selection_rate": 1.0,
            "mask_selection_length": 11,
            "skip_special_boundaries": skip,
            "max_span_length": 4,
        }
    ).preprocessor
    ids = np.array([[2, *range(5, 21), 5, 6, 7, 8, 3, 0, 0]] * 2, "int32")
    span_ids = np.zeros_like(ids)
    span_ids[:, 1 + chosen] = 1
    preprocessor.strategy.only_spans = True
    x, y, w = numpy_tree(preprocessor.corrupt({"token_ids": ids, "span_ids": span_ids}))
    assert x["mask_positions"][0].tolist() == (1 + chosen).tolist() + [0, 0]
    assert x["span_bounds"][0, [0, 2, 7]].tolist() == [[1, 2], [4, 8], [19, 20]]
    assert w["masked_lm"][0].tolist() == [1] * 9 + [0, 0]
    outer = 0 if skip else 1
    # The fifth token of a span of five is beyond the table.
    expected = [outer] * 2 + [1] * 4 + [0] + [outer] * 2 + [0, 0]
    assert w["span_boundary"][0].tolist() == expected
    assert (y["masked_lm"] == y["span_boundary"]).all()
    assert y["masked_lm"][0, :9].tolist() == ids[0, 1 + chosen].tolist()


@pytest.mark.slow
def test_one_text(texts):
    preprocessor = make_model(prepare={"skip_special_boundaries": True}).preprocessor
    x, y, w = preprocessor(texts[0])
    assert x["span_bounds"].shape == (8, 2) and w["span_boundary"].shape == (8,)


# === Logits and loss ===


def numpy_span_boundary(model, states, x):
    """The logits by the definition, in numpy, from the states of all tokens."""
    head = model.span_boundary_head

    def dense_gelu_norm(x, dense, norm):
        x = x @ array(dense.kernel) + array(dense.bias)
        x = array(ops.gelu(x, approximate=False))
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-12)
        return x * array(norm.gamma) + array(norm.beta)

    table = array(model.backbone.token_embedding.embeddings)
    logits = np.zeros((*x["mask_positions"].shape, len(table)), "float32")
    for row, slot in np.ndindex(x["mask_positions"].shape):
        first, last = x["span_bounds"][row, slot]
        place = min(x["mask_positions"][row, slot] - first, head.max_span_length - 1)
        before, after = states[row, max(first - 1, 0)], states[row, last + 1]
        joined = np.concatenate([before, after, array(head.position_table)[place]])
        h = dense_gelu_norm(joined, head.joining_dense, head.joining_norm)
        h = dense_gelu_norm(h, head.dense, head.norm)
        logits[row, slot] = h @ table.T + array(head.bias)
    return logits


def crossentropy(logits, ids):
    shifted = logits - logits.max(-1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -np.take_along_axis(log, ids[..., None], -1)[..., 0]


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["per_token", "separate"])
def test_logits_and_loss_against_numpy(reduction, texts):
    model = make_model(
        prepare={"skip_special_boundaries": True, "max_span_length": 3},
        task={"reduction": reduction, "span_boundary_weight": 0.5, "position_dim": 5},
        num_layers=2,
    )
    rng = np.random.default_rng(0)
    for v in model.variables:  # biases and norms, too, must show
        v.assign(array(v) + rng.normal(0, 0.1, v.shape))
    x, y, w = batch(model, texts)
    outputs = {name: array(value) for name, value in model(x).items()}
    inputs = {"token_ids": x["token_ids"], "padding_mask": x["padding_mask"]}
    states = array(model.backbone(inputs)["sequence_output"])
    expected = numpy_span_boundary(model, states, x)
    np.testing.assert_allclose(outputs["span_boundary"], expected, atol=1e-4)
    alone = array(model({**inputs, "mask_positions": x["mask_positions"]})["masked_lm"])
    np.testing.assert_allclose(outputs["masked_lm"], alone, atol=1e-5)

    masked = crossentropy(alone, y["masked_lm"])[w["masked_lm"] == 1]
    spans = crossentropy(expected, y["span_boundary"])[w["span_boundary"] == 1]
    assert 0 < len(spans) < len(masked)
    count = len(masked) if reduction == "per_token" else len(spans)
    expected = masked.mean() + 0.5 * spans.sum() / count
    loss = model.compute_loss(x, y, outputs, w)
    np.testing.assert_allclose(float(loss), expected, atol=1e-4)
    model.compile(run_eagerly=True)
    logs = model.evaluate(x, y, sample_weight=w, batch_size=20, verbose=0)
    np.testing.assert_allclose(logs[0], expected, atol=1e-4)


@pytest.mark.slow
def test_each_part_of_the_model_learns(texts):
    """One step moves every trainable variable, and the pooler isn't one."""
    model = make_model()
    model.compile("sgd", run_eagerly=True)
    x, y, w = batch(model, texts)
    before = {v.path: array(v) for v in model.variables}
    model.train_on_batch(x, y, w)
    trained = {v.path for v in model.trainable_variables}
    for v in model.variables:
        moved = not np.array_equal(array(v), before[v.path])
        assert moved == (v.path in trained), v.path
    assert any("span_boundary_head/position_table" in path for path in trained)
    assert not any("pooler" in path for path in trained)


@pytest.mark.slow
@pytest.mark.parametrize("skipped", ["masked_lm", "span_boundary"])
def test_a_part_without_weight_gets_no_gradient(skipped, texts):
    model = make_model(task={"reduction": "separate"})
    model.compile("sgd", run_eagerly=True)
    x, y, w = batch(model, texts)
    w[skipped] = np.zeros_like(w[skipped])
    heads = {"masked_lm": model.head, "span_boundary": model.span_boundary_head}
    names = ("dense/kernel", "norm/gamma", "output_bias")
    own = [v for v in heads[skipped].weights if v.path.endswith(names)]
    before = [array(v) for v in own]
    assert np.isfinite(model.train_on_batch(x, y, w)).all()
    for variable, old in zip(own, before, strict=True):
        np.testing.assert_array_equal(array(variable), old)


@pytest.mark.slow
def test_errors(texts):
    model = make_model()
    x, y, w = batch(model, texts)
    del x["span_bounds"]
    with pytest.raises(ValueError, match="`span_bounds`.*'mask_positions'"):
        model.compute_loss(x, y, model(x), w)
    with pytest.raises(ValueError, match="`max_span_length`.*15.*Received: 4"):
        SpanBoundaryLM(model.backbone, model.preprocessor, max_span_length=4)
    with pytest.raises(ValueError, match="`reduction`.*'sum'"):
        SpanBoundaryLM(model.backbone, reduction="sum")
    with pytest.raises(ValueError, match="`max_span_length`.*0"):
        SpanBoundaryLMPreprocessor(BertTokenizer(VOCABULARY), max_span_length=0)


# === Training, trunks, saving ===


@pytest.fixture(scope="module")
def documentation():
    texts = [text for text in python_documentation() if len(text) < 4000][:10]
    documents = tf.data.Dataset.from_tensor_slices(texts)
    return documents, train_word_piece(documents, 300)


def fit(documentation, epochs, passes=1):
    documents, tokenizer = documentation
    model = make_model(tokenizer, hidden_dim=32)
    model.compile(learning_rate=1e-2, jit_compile=keras.backend.backend() == "jax")
    blocks = model.preprocessor.pack(documents).cache()
    # A pass takes longer to begin than its few steps.
    data = model.preprocessor.dataset(blocks.repeat(passes), batch_size=32)
    return blocks, model.fit(data, epochs=epochs, verbose=0).history


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_real_text_is_learnt(documentation):
    _, history = fit(documentation, epochs=4)
    for part in ("masked_lm", "span_boundary"):
        perplexity = history[f"{part}_perplexity"]
        assert perplexity[-1] < 0.8 * perplexity[0] and f"{part}_accuracy" in history
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_both_objectives_get_below_the_entropy_of_unigrams(documentation):
    blocks, history = fit(documentation, epochs=6, passes=10)
    counts = np.bincount(np.concatenate([b["token_ids"][1:-1] for b in blocks]))
    share = counts[counts > 0] / counts.sum()
    entropy = -np.sum(share * np.log(share))
    for part in ("masked_lm", "span_boundary"):
        assert np.log(history[f"{part}_perplexity"][-1]) < entropy - 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls, arguments",
    [
        pytest.param(
            RobertaBackbone,
            {"dtype": "mixed_bfloat16"},
            marks=[pytest.mark.slow("release"), pytest.mark.any_backend],
        ),
        (EncoderBackbone, {"embedding_dim": 8, "share": "all", "num_layers": 2}),
    ],
)
def test_other_trunks(cls, arguments, texts):
    model = make_model(backbone_cls=cls, **arguments)
    model.compile(learning_rate=1e-2, total_steps=10)
    x, y, w = batch(model, texts)
    losses = [model.train_on_batch(x, y, w)[0] for _ in range(8)]
    assert np.isfinite(losses).all() and losses[-1] < 0.95 * losses[0]
    outputs = model(x)
    assert {array(logits).dtype for logits in outputs.values()} == {np.dtype("float32")}
    assert outputs["span_boundary"].shape == (20, 8, len(VOCABULARY))
    assert [len(slots) for slots in model.fill_mask(["a [MASK] [MASK]"])] == [2]


@pytest.mark.slow
def test_round_trips(texts, tmp_path):
    model = make_model(task={"reduction": "separate", "span_boundary_weight": 0.5})
    x, _, _ = batch(model, texts[:2])
    expected = {name: array(value) for name, value in model(x).items()}
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    for other in (
        keras.saving.load_model(tmp_path / "model.keras"),
        SpanBoundaryLM.from_preset(str(tmp_path / "preset")),
    ):
        for name, value in other(x).items():
            np.testing.assert_allclose(array(value), expected[name], atol=1e-5)
        assert other.get_config() == model.get_config()
        assert other.reduction == "separate"
    backbone = SpanBertBackbone.from_preset(str(tmp_path / "preset"))
    assert isinstance(backbone, SpanBertBackbone)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow writes SavedModels"
)
@pytest.mark.slow
@pytest.mark.any_backend
def test_it_is_served_as_a_masked_lm(tmp_path):
    model = make_model()
    export_saved_model(model, str(tmp_path / "served"), top_k=2)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["token_ids"]
    texts = ["the [MASK] sat", "a cat"]
    received = served(token_ids=model.preprocessor.encode(texts)["token_ids"])
    (answer,) = model.fill_mask(texts[0], top_k=2)
    tokens = received["predicted_tokens"].numpy().tolist()
    assert tokens == [[[token.encode() for token, _ in answer]], [[b"", b""]]]
