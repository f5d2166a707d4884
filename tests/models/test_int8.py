"""Exports for ONNX in 8 bits, and what makes such files fast."""

import collections

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.export import Int8Settings
from keras_bertfam.models import exported, int8, onnx_graphs
from tests import every_task, tiny_dual_encoder
from tests import tiny_fine_tuning as tiny

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

WIDTH, ROWS = 8, 20


def session(path):
    import onnxruntime

    return onnxruntime.InferenceSession(str(path))


def kinds_in(path):
    return collections.Counter(node.op_type for node in onnx.load(path).graph.node)


def write_graph(path, seed, opset=onnx_graphs.OPSET, beta=True, axes=None):
    """A table, two products with a norm as TensorFlow writes it between them."""
    rng = np.random.default_rng(seed)
    wide = rng.normal(size=(WIDTH, WIDTH))
    wide[0] *= 200  # one row takes all of a column's 8 bits
    constants = {
        "table": rng.normal(size=(ROWS, WIDTH)),
        "fine": rng.normal(size=(WIDTH, WIDTH)),
        "wide": wide,
        "gamma": rng.normal(size=(1, 1, WIDTH)),
        "beta": rng.normal(size=(1, 1, WIDTH)),
        "epsilon": np.array(1e-3),
    }
    nodes = [
        ("Gather", "table ids", "x"),
        ("MatMul", "x fine", "y"),
        ("GlobalAveragePool", "y", "mean"),
        ("Sub", "y mean", "centered"),
        ("Mul", "centered centered", "squares"),
        ("GlobalAveragePool", "squares", "variance"),
        ("Add", "variance epsilon", "more"),
        ("Sqrt", "more", "root"),
        ("Reciprocal", "root", "one_by_root"),
        ("Mul", "one_by_root gamma", "scale"),
        ("Neg", "mean", "negated"),
        ("Mul", "y scale", "scaled"),
        ("Mul", "negated scale", "moved"),
        ("Add", "moved beta", "moved_more"),
        ("Add", "scaled moved_more", "normed"),
        ("MatMul", "normed wide", "z"),
    ]
    if not beta:
        del constants["beta"], nodes[-3]
        nodes[-2] = ("Add", "scaled moved", "normed")
    helper, kinds = onnx.helper, onnx.TensorProto
    made = [helper.make_node(kind, a.split(), [b], b) for kind, a, b in nodes]
    for node in made if axes is not None else []:
        if node.op_type == "GlobalAveragePool":
            node.op_type = "ReduceMean"
            node.attribute.append(helper.make_attribute("axes", axes))
    graph = helper.make_graph(
        made,
        "graph",
        [helper.make_tensor_value_info("ids", kinds.INT32, ["batch", "length"])],
        [helper.make_tensor_value_info("z", kinds.FLOAT, ["batch", "length", WIDTH])],
        [onnx.numpy_helper.from_array(np.float32(x), k) for k, x in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def ids(seed):
    rng = np.random.default_rng(seed)
    return {"ids": rng.integers(0, ROWS, (5, 7)).astype("int32")}


@pytest.mark.parametrize("beta", [True, False])
def test_a_norm_is_one_operation(beta, tmp_path, seed):
    path = str(tmp_path / "a.onnx")
    write_graph(path, seed, beta=beta)
    (expected,) = session(path).run(None, ids(seed))
    onnx_graphs.fuse_norms(path)
    assert kinds_in(path) == {"Gather": 1, "MatMul": 2, "LayerNormalization": 1}
    (received,) = session(path).run(None, ids(seed))
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-3)
    write_graph(path, seed, opset=15)
    onnx_graphs.fuse_norms(path)
    assert "LayerNormalization" not in kinds_in(path)


@pytest.mark.parametrize("axes", [[-1], [2], [1], [1, 2]])
def test_a_mean_over_other_axes_is_no_norm(axes, tmp_path, seed):
    path = str(tmp_path / "a.onnx")
    write_graph(path, seed, axes=axes)
    (expected,) = session(path).run(None, ids(seed))
    onnx_graphs.fuse_norms(path)
    assert ("LayerNormalization" in kinds_in(path)) == (axes in ([-1], [2]))
    (received,) = session(path).run(None, ids(seed))
    np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("leave_out", [(), ["^z$"], 1])
def test_what_is_rounded(static, leave_out, tmp_path, seed):
    path, written = str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")
    write_graph(path, seed)
    rows = [ids(seed), ids(seed + 1)]
    settings = Int8Settings(rows, static, per_channel=False, leave_out=leave_out)
    int8.quantize(path, written, rows, settings)
    dtypes = {x.name: x.data_type for x in onnx.load(written).graph.initializer}
    kept = {name for name in ("table", "fine", "wide") if name in dtypes}
    # Products of the wide weights are by far the coarsest.
    assert kept == ({"wide"} if leave_out else set())
    (expected,), (received,) = (session(x).run(None, rows[0]) for x in (path, written))
    error = np.linalg.norm(received - expected) / np.linalg.norm(expected)
    assert 1e-4 < error < 0.05


def test_what_cannot_be_rounded(tmp_path, seed):
    path = str(tmp_path / "a.onnx")
    write_graph(path, seed)
    for settings, message in (
        (Int8Settings(leave_out=["attention"]), "the names .'x', 'y', 'z'"),
        (Int8Settings(leave_out=["^[xyz]$"]), "must leave at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            int8.quantize(path, str(tmp_path / "b.onnx"), [], settings)
    assert [*tmp_path.iterdir()] == [tmp_path / "a.onnx"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"static": True}, "`texts` must be given"),
        ({"leave_out": 2}, "`texts` must be given"),
        ({"leave_out": -1}, "`leave_out` must be"),
        ({"leave_out": "table"}, "`leave_out` must be"),
        ({"leave_out": True}, "`leave_out` must be"),
    ],
)
def test_settings_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        Int8Settings(**arguments)


@pytest.mark.parametrize(
    ("format", "quantize", "message"),
    [
        ("litert", "int8", "`quantize` must be `None` for a format"),
        ("onnx", "int4", '`quantize` must be `None`, "int8" or'),
        ("onnx", Int8Settings(["a text"]), "`texts` must be a dict of arrays"),
        (
            "onnx",
            Int8Settings({"token_ids": np.ones((1, 4))}),
            "must have at least one row",
        ),
    ],
)
def test_what_export_refuses_before_it_begins(format, quantize, message, tmp_path):
    model = tiny.make_backbone(num_layers=1)
    with pytest.raises(ValueError, match=message):
        model.export(str(tmp_path / "a.onnx"), format=format, quantize=quantize)
    assert not [*tmp_path.iterdir()]


def classifier(cls, num_languages=0, **kwargs):
    preprocessor = getattr(tasks, f"{cls}Preprocessor")(tiny.make_tokenizer())
    backbone = tiny.make_backbone(activation="gelu", num_languages=num_languages)
    return getattr(tasks, cls)(backbone, preprocessor=preprocessor, **kwargs)


MODELS = {
    "encoder": lambda: tiny.make_backbone(activation="gelu"),
    "classifier": lambda: classifier("TextClassifier", num_classes=2),
    "tagger": lambda: classifier("TokenClassifier", num_classes=3),
    "embedder": lambda: classifier("TextEmbedder"),
}


@pytest.mark.parametrize(
    ("cls", "texts"),
    [
        ("TextClassifier", ["a cat"]),
        ("TokenClassifier", [["a", "cat"]]),
        ("TextEmbedder", ["a cat"]),
    ],
)
def test_rows_of_texts_have_no_language(cls, texts):
    arguments = {} if cls == "TextEmbedder" else {"num_classes": 2}
    model = classifier(cls, num_languages=2, **arguments)
    (rows,) = int8.rows_of(model, texts, model.input_signature())
    assert (rows["language_ids"] == np.full_like(rows["token_ids"], -1)).all()


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("name", MODELS)
def test_of_models(name, tmp_path):
    """In 8 bits they answer about the same, with a float table where asked for it."""
    pytest.importorskip("tf2onnx")
    model, texts = MODELS[name](), tiny.texts(8)[0]
    if name == "tagger":
        texts = [text.split() for text in texts]
    rng = np.random.default_rng(0)
    shape, specs = (4, 9), model.input_signature()
    inputs = {
        "token_ids": rng.integers(5, 20, shape).astype("int32"),
        "padding_mask": np.ones(shape, bool),
        "segment_ids": np.zeros(shape, "int32"),
    }
    inputs = {key: inputs[key] for key in specs}
    if name == "encoder":
        texts = inputs
    path = tmp_path / "a.onnx"
    path.write_text("old")
    leave_out = 1 if name == "embedder" else ["token_embedding"]
    settings = Int8Settings(texts, name == "classifier", leave_out=leave_out)
    model.export(path, "onnx", verbose=False, quantize=settings)
    assert [*tmp_path.iterdir()] == [path]
    received = session(path).run(None, inputs)
    expected = keras.tree.flatten(model(inputs, training=False))
    for one, other in zip(received, map(ops.convert_to_numpy, expected), strict=True):
        if other.dtype.kind == "f":
            error = np.linalg.norm(one - other) / np.linalg.norm(other)
            # Random rows have states beyond the ranges of the texts.
            assert 0 < error < (0.3 if settings.static else 0.1)
    weights = [x for x in onnx.load(path).graph.initializer if len(x.dims) == 2]
    kinds = collections.Counter(x.data_type for x in weights)
    assert kinds[onnx.TensorProto.INT8] > 4


@pytest.mark.slow
@pytest.mark.any_backend
def test_onnx_runtime_finds_norms_and_gelus(tmp_path):
    pytest.importorskip("tf2onnx")
    import onnxruntime

    path, seen = str(tmp_path / "a.onnx"), str(tmp_path / "seen.onnx")
    tiny.make_backbone(activation="gelu", num_layers=2).export(path, "onnx", False)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = seen
    onnxruntime.InferenceSession(path, options)
    kinds = kinds_in(seen)
    # ONNX Runtime may add the states of before within the norm.
    norms = kinds["LayerNormalization"] + kinds["SkipLayerNormalization"]
    assert (norms, kinds["Gelu"] + kinds["BiasGelu"]) == (5, 2)
    assert not kinds["Sqrt"] and not kinds["Erf"]


def test_what_fails_leaves_the_old_file(monkeypatch, tmp_path):
    def export(model, keras_export, filepath, *args, **kwargs):
        write_graph(filepath, 0)

    def refuses(*args):
        raise OSError("full")

    real = exported.export_model
    monkeypatch.setattr(exported, "export_model", export)
    monkeypatch.setattr(int8, "quantize", refuses)
    path = tmp_path / "a.onnx"
    path.write_text("old")
    specs = [{"token_ids": keras.InputSpec(shape=(None, None), dtype="int32")}]
    with pytest.raises(OSError, match="full"):
        real(None, None, path, "onnx", False, specs, True, "int8")
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("cls", "texts"),
    [
        ("CrossEncoder", (["a cat"] * 5, ["a mat"] * 5)),
        ("TextClassifier", ["a cat"] * 5),
        ("TokenClassifier", [["a", "cat"]] * 5),
    ],
)
def test_rows_are_as_the_exports_inputs_are(cls, texts):
    arguments = {} if cls == "CrossEncoder" else {"num_classes": 2}
    model = classifier(cls, **arguments)
    specs = model.input_signature()
    (rows,) = int8.rows_of(model, texts, specs)
    assert {x.ndim for x in rows.values()} == {2} and rows.keys() == specs.keys()
    fixed = {
        name: keras.InputSpec(
            shape=(2, *[24] * (len(spec.shape) - 1)), dtype=spec.dtype
        )
        for name, spec in specs.items()
    }
    batches = int8.rows_of(model, texts, fixed)
    assert [x["token_ids"].shape for x in batches] == [(2, 24)] * 2
    assert not batches[0]["padding_mask"][:, -1].any()
    narrow = {name: keras.InputSpec(shape=(9, 2)) for name in specs}
    with pytest.raises(ValueError, match="`texts` must have at least 9 rows"):
        int8.rows_of(model, texts, narrow)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("cls", "texts"),
    [
        ("SpanQuestionAnswering", every_task.QUESTIONS),
        ("MultipleChoice", every_task.CHOICES),
    ],
)
def test_texts_in_a_dict(cls, texts):
    model = every_task.make(cls, "bert")
    specs = model.input_signature()
    rows = int8.rows_of(model, texts, specs)
    expected, _ = model.preprocessor.inputs(texts, 16)
    (given,) = [{name: np.asarray(x) for name, x in each.items()} for each in expected]
    (again,) = int8.rows_of(model, given, specs)
    for name in specs:
        np.testing.assert_array_equal(rows[0][name], again[name])


def test_texts_are_for_tasks_that_are_fine_tuned():
    for model in (tiny_dual_encoder.make_model(), tasks.MaskedLM(tiny.make_backbone())):
        with pytest.raises(ValueError, match="unless the model is a fine-tuning task"):
            int8.rows_of(
                model, ["a cat"], {"token_ids": keras.InputSpec(shape=(None,) * 2)}
            )
