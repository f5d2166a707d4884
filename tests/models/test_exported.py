"""Keras's `export()`, of models that were never called, read by other runtimes."""

import pathlib
import shutil
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.models import exported, library_model, verified
from keras_bertfam.models.features import FeatureBackbone
from tests import every_task, tiny_bidirectional_lm
from tests import tiny_fine_tuning as tiny

make = tiny.make_backbone
MODELS = {
    "backbone": lambda: make(activation="gelu"),
    "xlm": lambda: make("xlm", num_layers=1, num_languages=3),
    "masked_lm": lambda: tasks.MaskedLM(make(activation="gelu", num_layers=1)),
    "pair": lambda: tasks.MaskedLMSentencePair(make(num_layers=1)),
    "span_boundary": lambda: tasks.SpanBoundaryLM(make("spanbert", num_layers=1)),
    "detection": lambda: tasks.ReplacedTokenDetection(make("electra", num_layers=1)),
    "permutation": lambda: tasks.PermutationLM(make("xlnet", num_layers=1)),
    "classifier": lambda: tasks.TextClassifier(make("roberta"), num_classes=2),
    "words": lambda: tasks.TokenClassifier(make("albert"), num_classes=2),
    "choice": lambda: tasks.MultipleChoice(make(num_layers=1)),
    "embedder": lambda: tasks.TextEmbedder(make("distilbert", num_layers=1)),
    "sparse": lambda: tasks.SparseEncoder(make("roberta", num_layers=1)),
    "windows": lambda: make("modernbert", attention_window=4),
    "global_windows": lambda: make("longformer", attention_window=4),
    "one_query": lambda: every_task.make("TextRegressor", "t5"),
    "both_directions": lambda: tiny_bidirectional_lm.make_model(batch_size=None),
    "relevance": lambda: tasks.CrossEncoder(make(num_layers=1)),
    "spans": lambda: tasks.SpanQuestionAnswering(make(num_layers=1)),
    "conditional_spans": lambda: tasks.SpanQuestionAnswering(
        make("electra", num_layers=1), end_head="conditional", n_best=5
    ),
}
ENDINGS = {"litert": ".tflite", "onnx": ".onnx", "tf_saved_model": ""}
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def rows(signature, count, length):
    """Random inputs as a signature has them, the ends of rows being padding."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name, spec in signature.items():
        groups = len(spec.shape) == 3 and spec.shape[2] is None
        shape = (count, 3, length) if groups else (count, length)
        place = np.broadcast_to(np.arange(length), shape)
        inputs[name] = {
            "character_ids": rng.integers(1, 200, (*shape[:2], spec.shape[-1] or 1)),
            "token_ids": rng.integers(5, 20, shape),
            "padding_mask": place < length - 2,
            "segment_ids": place // 6,
            "language_ids": place % 4 - 1,
            "span_mask": (place > 1) & (place < length - 2),
            "start_mask": (place > 1) & (place < length - 2),
            "perm_ranks": np.argsort(rng.random(shape), -1),
            "mask_positions": rng.integers(0, length - 2, (count, 2)),
        }[name].astype(spec.dtype)
    return inputs


def litert(path, inputs):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    # It has TensorFlow Lite's own operations alone.
    return interpreter.Interpreter(model_path=path).get_signature_runner()(**inputs)


def onnx(path, inputs):
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def tf_saved_model(path, inputs):
    tf = pytest.importorskip("tensorflow")
    loaded = tf.saved_model.load(path)  # what it serves needs it
    return loaded.serve(inputs)


READERS = {"litert": litert, "onnx": onnx, "tf_saved_model": tf_saved_model}


def check_export(name, kind, tmp_path):
    if kind != "tf_saved_model":
        pytest.importorskip({"litert": "ai_edge_litert", "onnx": "onnxruntime"}[kind])
    if kind == "onnx":
        pytest.importorskip("tf2onnx")
    model = MODELS[name]()
    path = str(tmp_path / f"model{ENDINGS[kind]}")
    model.export(path, format=kind, verbose=False)
    # Keras refuses the maximum of no rows.
    no_empty = ("sparse", "one_query", "both_directions")
    empty = [(0, 8)] if kind == "onnx" and name not in no_empty else []
    pairs = 2 if name == "both_directions" else 1
    for shape in ((pairs, 8), (3 * pairs, 11), *empty):
        inputs = rows(model.input_signature(), *shape)
        expected = keras.tree.flatten(model(inputs, training=False))
        received = keras.tree.flatten(READERS[kind](path, inputs))
        assert len(received) == len(expected)
        for one, other in zip(received, expected, strict=True):
            other = ops.convert_to_numpy(other)
            np.testing.assert_allclose(np.asarray(one), other, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDINGS)
def test_other_runtimes_give_the_same(kind, tmp_path):
    if not ON_TENSORFLOW and kind != "litert":
        pytest.skip("written by TensorFlow, as LiteRT's is")
    check_export("masked_lm", kind, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDINGS)
def test_inputs_are_called_by_their_keys(kind, tmp_path):
    model = make(num_layers=1)
    spec = keras.InputSpec(shape=(1, 8), dtype="int32")
    path = str(tmp_path / f"model{ENDINGS[kind]}")
    model.export(path, kind, verbose=False, input_signature=[{"token_ids": spec}])
    inputs = {"token_ids": np.ones((1, 8), "int32")}
    received = keras.tree.flatten(READERS[kind](path, inputs))
    expected = keras.tree.flatten(model(inputs, training=False))
    for one, other in zip(received, expected, strict=True):
        other = ops.convert_to_numpy(other)
        np.testing.assert_allclose(np.asarray(one), other, atol=2e-6)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["litert", "onnx"])
@pytest.mark.parametrize(
    "name",
    [
        "permutation",
        "conditional_spans",
        "choice",
        "sparse",
        "relevance",
        "windows",
        "global_windows",
        "one_query",
    ],
)
def test_of_other_models(name, kind, tmp_path):
    check_export(name, kind, tmp_path)


@pytest.mark.any_backend
@pytest.mark.parametrize(("count", "asked"), [(3, ["language_ids"]), (0, [])])
def test_languages_are_inputs_where_there_are_some(count, asked):
    signature = make("xlm", num_layers=1, num_languages=count).input_signature()
    assert [*signature] == ["token_ids", "padding_mask", *asked]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["onnx", "tf_saved_model"])
def test_an_export_that_reads_pairs_of_rows(kind, tmp_path):
    check_export("both_directions", kind, tmp_path)


@pytest.mark.slow
@pytest.mark.any_backend
def test_an_export_with_languages(tmp_path):
    check_export("xlm", "onnx", tmp_path)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["litert", "onnx"])
def test_a_query_with_a_list_of_passages(kind, tmp_path):
    runtime = {"litert": "ai_edge_litert", "onnx": "onnxruntime"}[kind]
    pytest.importorskip(runtime)
    model = MODELS["relevance"]()
    spec = exported.row_specs(model.input_signature(), rank=3)
    path = str(tmp_path / f"model{ENDINGS[kind]}")
    model.export(path, kind, verbose=False, input_signature=[spec])
    for shape in ((1, 8), (2, 11)):
        inputs = rows(spec, *shape)
        (received,) = keras.tree.flatten(READERS[kind](path, inputs))
        expected = ops.convert_to_numpy(model(inputs, training=False))
        assert received.shape == (shape[0], 3)
        np.testing.assert_allclose(received, expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["mixed_float16", "bfloat16"])
@pytest.mark.parametrize("kind", ENDINGS)
def test_models_of_16_bits(kind, dtype, tmp_path):
    """Those runtimes that lack operations get them in float32."""
    if kind != "tf_saved_model":
        pytest.importorskip({"litert": "ai_edge_litert", "onnx": "onnxruntime"}[kind])
    model = tasks.MaskedLM(make(activation="gelu", num_layers=1, dtype=dtype))
    path = str(tmp_path / f"model{ENDINGS[kind]}")
    told = warnings.catch_warnings()
    if kind != "tf_saved_model":
        told = pytest.warns(UserWarning, match="the export computes in float32")
    with told:
        model.export(path, format=kind, verbose=False)
    inputs = rows(model.input_signature(), 2, 8)
    (received,) = keras.tree.flatten(READERS[kind](path, inputs))
    expected = ops.convert_to_numpy(model(inputs, training=False))
    np.testing.assert_allclose(np.asarray(received, "float32"), expected, atol=0.05)


@pytest.mark.slow("release")
@pytest.mark.skipif(ON_TENSORFLOW, reason="another backend's")
@pytest.mark.parametrize("dtype", ["mixed_float16", "bfloat16"])
def test_16_bits_of_other_backends(dtype, tmp_path):
    pytest.importorskip("tf2onnx")
    model = tasks.MaskedLM(make(num_layers=1, dtype=dtype))
    with pytest.warns(UserWarning, match="the export computes in float32"):
        model.export(str(tmp_path / "a.onnx"), format="onnx", verbose=False)
    received = onnx(str(tmp_path / "a.onnx"), rows(model.input_signature(), 2, 8))
    assert np.isfinite(received["output_0"]).all()


@pytest.mark.any_backend
@pytest.mark.parametrize("answer", ["refused", "not finite"])
def test_what_its_runtime_refuses_is_not_written(answer, monkeypatch, tmp_path):
    class Archive(keras.Model):
        """What `export()` of a model comes to, without TensorFlow's part of it."""

        def export(self, filepath, *args):
            pathlib.Path(filepath).write_text("written")
            pathlib.Path(filepath).with_suffix(".bin").write_text("its weights")

    class Model(library_model.LibraryModel, Archive):
        def input_signature(self):
            return {"token_ids": keras.InputSpec(shape=(None, None), dtype="int32")}

        def call(self, inputs, training=None):
            return ops.cast(inputs["token_ids"], "float32")

    def runtime(path):
        assert pathlib.Path(path).read_text() == "written"
        if answer == "refused":
            raise OSError("It isn't a graph.")
        return lambda inputs: [inputs["token_ids"] * np.nan]

    monkeypatch.setitem(verified._RUNTIMES, "torch", runtime)
    path = tmp_path / "model.pt2"
    path.write_text("old")
    expected = {"refused": "OSError: It isn't a graph", "not finite": "finite numbers"}
    with pytest.raises(RuntimeError, match=expected[answer]):
        Model().export(path, format="torch")
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]
    Model().export(path, format="torch", verify=False)
    assert path.read_text() == "written"
    assert path.with_suffix(".bin").read_text() == "its weights"
    with pytest.raises(ValueError, match="`verify` must be `False` for a format"):
        Model().export(path, format="other")


@pytest.mark.slow
@pytest.mark.any_backend
def test_few_positions_and_what_was_there_before(tmp_path):
    path = tmp_path / "model"
    stale = path / "assets.extra" / "tf_serving_warmup_requests"
    stale.parent.mkdir(parents=True)
    stale.write_text("of other signatures")
    (path / "notes.txt").write_text("mine")
    (path / "assets").mkdir()
    (path / "assets" / "vocabulary.txt").write_text("of a preset")
    make(num_layers=1, max_sequence_length=6).export(str(path), verbose=False)
    assert (path / "saved_model.pb").exists() and not stale.exists()
    assert (path / "notes.txt").read_text() == "mine"
    assert (path / "assets" / "vocabulary.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_signatures_are_what_models_take(name):
    model = MODELS[name]()
    signature = model.input_signature()
    outputs = model(rows(signature, 2, 9), training=False)
    assert all(value.shape[0] == 2 for value in keras.tree.flatten(outputs))
    backbone = getattr(model, "backbone", model)
    told = getattr(backbone, "num_segments", 1) or backbone.max_global_tokens
    expected = "segment_ids" in backbone.input_names and bool(told)
    assert ("segment_ids" in signature) == expected


@pytest.mark.slow
@pytest.mark.any_backend
def test_given_lengths(tmp_path):
    model = MODELS["classifier"]()
    signature = {"token_ids": keras.InputSpec(shape=(2, 6), dtype="int32")}
    model.export(str(tmp_path / "model"), verbose=False, input_signature=[signature])
    inputs = {"token_ids": np.full((2, 6), 7, "int32")}
    received = tf_saved_model(str(tmp_path / "model"), inputs)
    expected = ops.convert_to_numpy(model(inputs, training=False))
    np.testing.assert_allclose(received, expected, atol=1e-6)


@pytest.mark.skipif(ON_TENSORFLOW, reason="there it happens in this process")
def test_errors_of_the_other_process_are_told(tmp_path):
    with pytest.raises(ValueError, match="filepath to end with '.tflite'"):
        MODELS["masked_lm"]().export(str(tmp_path / "model"), format="litert")


@pytest.mark.any_backend
def test_an_export_takes_the_place_of_another_in_one_step(tmp_path, monkeypatch):
    def write(name, text):
        for file in ("saved_model.pb", "variables/data", "assets.extra/requests"):
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path / name)

    def read(path):
        files = pathlib.Path(path).rglob("*")
        return {f.name: f.read_text() for f in files if f.is_file()}

    old, new = write("old", "old"), write("new", "new")
    copy, copied = shutil.copytree.__defaults__[2], []

    def full(source, target, **kwargs):
        copied.append(source)
        if len(copied) > 1:
            raise OSError(28, "full")
        return copy(source, target, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(
            shutil.copytree,
            "__defaults__",
            (
                *shutil.copytree.__defaults__[:2],
                full,
                *shutil.copytree.__defaults__[3:],
            ),
        )
        verified.put(new, old)
    assert read(old) == {"saved_model.pb": "old", "data": "old"}
    (tmp_path / "old/labels.txt").write_text("the user's")
    verified.put(new, old)
    written = dict.fromkeys(("saved_model.pb", "data", "requests"), "new")
    assert read(old) == {**written, "labels.txt": "the user's"}


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: FeatureBackbone(tiny.make_backbone(num_layers=1, dtype=dtype)),
        lambda dtype: tasks.DualEncoder(
            tiny.make_backbone(num_layers=1, dtype=dtype),
            passage_backbone=tiny.make_backbone(num_layers=1, dtype=dtype),
        ),
        lambda dtype: tasks.ReplacedTokenDetection(
            tiny.make_backbone("electra", num_layers=1, dtype=dtype),
            generator=tiny.make_backbone("electra", num_layers=1, dtype=dtype),
            tie="none",
        ),
    ],
)
def test_a_dtype_is_for_all_backbones_of_a_preset(make, dtype, tmp_path):
    model = make(dtype)
    model.save_to_preset(str(tmp_path))
    for given in (dtype, "float32"):
        loaded = type(model).from_preset(str(tmp_path), dtype=given)
        found = {x.dtype_policy.name for x in layers_of(loaded) if x.weights}
        assert found - {"float32"} == {given} - {"float32"}
    assert exported._half_dtype(loaded) is None


@pytest.mark.slow
@pytest.mark.any_backend
def test_errors_of_the_process_that_has_tensorflow():
    with pytest.raises(OSError, match=r"No such file .*'nothing'") as caught:
        exported.run_with_tensorflow("import sys; open(sys.argv[1])", "nothing")
    assert "Traceback" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="KeyError: 'x'"):
        exported.run_with_tensorflow("{}['x']")
