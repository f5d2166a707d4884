"""KerasHub's own routines for tests, which come with it, over the classes here.

What differs on purpose is in docs/coming_from/keras_hub.md, and tested here for what it
promises instead.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import models, tasks
from keras_bertfam.layers.attention.disentangled import (
    DisentangledSelfAttention,
    RelativeTable,
)
from keras_bertfam.layers.attention.positions import RelativePositionBias
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.blocks.table_differences import TableDifferences
from keras_bertfam.layers.heads.replaced_tokens import SampleTokens
from keras_bertfam.layers.heads.scalar_mix import ScalarMix
from keras_bertfam.presets.families import FAMILIES
from tests import every_task as every
from tests import model_layers as public

pytest.importorskip("grain", reason="KerasHub's routines import it: extra `grain`")
from keras_hub.src.tests import test_case  # noqa: E402

TEXTS = ["the cat sat", "a dog and a bird"]
TASKS = [*every.FINE_TUNING, *every.PRETRAINING]
# Rows that hang on the batch: masks are drawn for it, a question has several windows.
BY_BATCH = ("MaskedLM", "MaskedLMSentencePair", "SpanBoundaryLM", "PermutationLM")
BY_BATCH += ("ReplacedTokenDetection", "Distiller", "SpanQuestionAnswering")
BY_BATCH += ("MaskedAutoencoder", "DenoisingAutoencoder", "MaskedDiffusionLM")
BY_BATCH += ("MaskedPermutedLM",)
# Of `predict` or labels that aren't KerasHub's.
OWN_TASKS = ("ReplacedTokenDetection", "SpanQuestionAnswering", "TextToText")
OWN_TASKS += ("TokenClassifier", "DependencyParser")
PAIRS = ("bart", "encoder_decoder", "t5")


def marked(names, *quick):
    """Parameters: of those that aren't quick three for CI, the rest for releases."""
    parameters, apart = [], len(names) // 3
    for number, name in enumerate(names):
        slow = pytest.mark.slow if number % apart == 1 else pytest.mark.slow("release")
        values = name if isinstance(name, tuple) else (name,)
        marks = [] if name in quick else [slow]
        parameters.append(pytest.param(*values, marks=marks))
    return parameters


@pytest.fixture
def routines():
    case = test_case.TestCase()
    case.setUp()
    yield case
    case.tearDown()


def as_tensors(x):
    return keras.tree.map_structure(keras.ops.convert_to_tensor, x)


def shapes_of(x):
    return keras.tree.map_structure(lambda part: tuple(part.shape), x)


def dtype_of(x):
    return keras.backend.standardize_dtype(x.dtype)


def inputs_of(family):
    """A batch without padding."""
    ids, mask = public.ids(2, 8, most=50), np.ones((2, 8), bool)
    if family == "elmo":
        ids = public.ids(2, 8, 50, most=200)
        return {"character_ids": ids, "padding_mask": mask}
    rows = {"token_ids": ids, "padding_mask": mask}
    if family not in PAIRS:
        return rows
    sides = ("encoder", "decoder")
    return {f"{side}_{name}": x for side in sides for name, x in rows.items()}


@pytest.mark.parametrize("family", marked(FAMILIES, "bert"))
def test_backbones(family, routines, tmp_path):
    cls = getattr(models, FAMILIES[family].backbone)
    arguments, inputs = every.arguments_of(family, 50), inputs_of(family)
    backbone = cls(**arguments)
    expected = backbone(inputs)
    shapes, exact = shapes_of(expected), family != "t5"
    routines.run_backbone_test(
        cls, arguments, inputs, shapes, run_mixed_precision_check=exact
    )
    routines.run_model_saving_test(cls, arguments, inputs)
    backbone.save_to_preset(str(tmp_path / "preset"))
    routines.run_preset_test(
        cls, str(tmp_path / "preset"), inputs, expected_output=expected
    )


@pytest.mark.slow
def test_what_is_wide_in_half_of_t5():
    for policy in ("mixed_float16", "mixed_bfloat16", "bfloat16"):
        backbone = models.T5Backbone(**every.arguments_of("t5", 50), dtype=policy)
        half = backbone.compute_dtype
        for x in keras.tree.flatten(backbone(as_tensors(inputs_of("t5")))):
            assert dtype_of(x) == half
        layers_of = list(backbone._flatten_layers())
        wide = {each.name for each in layers_of if each.compute_dtype != half}
        found = {"norm", "final_norm", "output"} if "float16" == half else set()
        assert {name for name in wide if "dropout" not in name} == found


def built_by_first(monkeypatch, cls):
    """Let a layer of several inputs be built by the shapes of all."""
    build = cls.build

    def build_by(self, input_shape=None, **shapes):
        build(self, input_shape or next(iter(shapes.values())))

    monkeypatch.setattr(cls, "build", build_by)


def arguments_of_layer(case):
    arguments = dict(case.arguments)
    if case.embedding:
        table = TokenEmbedding(public.VOCABULARY, public.WIDTH)
        table.build()
        arguments["token_embedding"] = table
    return arguments


@pytest.mark.parametrize("name", marked(public.CASES, "Highway"))
def test_layers(name, routines, monkeypatch):
    case, cls = public.CASES[name], public.model_layers()[name]
    arguments, inputs = arguments_of_layer(case), as_tensors(case.inputs)
    several = isinstance(case.inputs, dict)
    if several:
        built_by_first(monkeypatch, cls)
    layer = cls(**arguments)
    output = layer(**inputs) if several else layer(inputs)
    assert shapes_of(output) == case.shape
    routines.run_layer_test(
        cls,
        arguments,
        inputs,
        keras.tree.map_structure(lambda x: x.shape, output),
        expected_num_trainable_weights=len(layer.trainable_weights),
        expected_num_non_trainable_weights=len(layer.non_trainable_weights),
        expected_num_non_trainable_variables=len(layer.non_trainable_variables),
        run_training_check=case.trained,
        run_precision_checks=case.floats == "policy",
    )
    if case.floats == "float32":
        half = cls(**{**arguments, "dtype": "bfloat16"})
        output = half(**inputs) if several else half(inputs)
        assert {dtype_of(x) for x in keras.tree.flatten(output)} == {"float32"}


def test_layers_that_take_or_give_no_floats(routines):
    sample = SampleTokens(seed=1)
    routines.run_serialization_test(sample)
    assert dtype_of(sample(public.x)) == "int32"
    assert sample(keras.KerasTensor(public.STATES)).shape == public.STATES[:-1]
    bias = RelativePositionBias(2)
    routines.run_serialization_test(bias)
    assert shapes_of(bias(queries=5, keys=7)) == (1, 2, 5, 7)
    mix = ScalarMix(2)
    routines.run_serialization_test(mix)
    assert shapes_of(mix([public.x, public.x])) == public.STATES
    table = RelativeTable(16, public.WIDTH, max_distance=16)
    attention = DisentangledSelfAttention(**public.HEADS)
    differences = TableDifferences({"token_table": (4, public.WIDTH)})
    for layer in (table, attention, differences):
        routines.run_serialization_test(layer)
    output = attention(public.x, relative=table(length=public.LENGTH))
    assert shapes_of(output) == public.STATES


@pytest.mark.any_backend
def test_every_layer_of_models_is_here():
    elsewhere = {"RelativePositionBias", "SampleTokens", "ScalarMix"}
    elsewhere |= {"DisentangledSelfAttention", "RelativeTable", "TableDifferences"}
    # What a layer of Keras calls, with states of its own.
    elsewhere |= {"AdaptiveSoftmax", "ProjectedLSTMCell", "ResidualSublayer"}
    assert {*public.model_layers()} == {*public.CASES} | elsewhere


def given_to(task):
    """Of texts that `tf.data` can slice."""
    if task == "TokenClassifier":
        words = [row[:5] for row in every.WORDS]
        return words, [[len(word) % 2 for word in row] for row in words]
    if task == "DependencyParser":
        words = [row[:5] for row in every.WORDS]
        trees = [[[k, int(k > 0)] for k in range(5)]] * len(words)
        return words, trees
    if task == "SpanQuestionAnswering":
        return (every.QUESTIONS,)
    if task == "SparseEncoder":  # without labels its preprocessor gives inputs alone
        return every.given_to(task)[0], [1.0, 0.0, 0.5]
    if task in ("DualEncoder", "LateInteraction"):
        return ({"query": every.TEXTS, "passage": every.TEXTS[::-1]},)
    return every.given_to(task)


def preprocessing(task, kind):
    arguments = every.preprocessing(task, kind)
    retrieving = {"SparseEncoder", "DualEncoder", "LateInteraction"}
    if task in {*every.FINE_TUNING, *retrieving} - {"SpanQuestionAnswering"}:
        arguments["buckets"] = []  # batches are as long as single examples
    if task == "Distiller":
        made = every.preprocessor_of(task, kind)
        made.adapt(tf.data.Dataset.from_tensor_slices(every.TEXTS))
        arguments["strategy"] = made.strategy
    return arguments


@pytest.mark.any_backend
@pytest.mark.parametrize(("task", "kind"), marked(every.cells()))
def test_preprocessors(task, kind, routines, tmp_path):
    cls = getattr(tasks, f"{task}Preprocessor")
    arguments, given = preprocessing(task, kind), given_to(task)
    if task in BY_BATCH:
        check_batches(routines, cls(**arguments), given)
    else:
        keys = {"TextToText": "encoder_token_ids", "DualEncoder": "passage_token_ids"}
        keys["LateInteraction"] = keys["DualEncoder"]
        routines.init_kwargs = arguments
        routines.run_preprocessor_test(
            cls,
            arguments,
            given if len(given) > 1 else given[0],
            token_id_key=keys.get(task, "token_ids"),
        )
    layer = cls(**arguments)
    layer.save_to_preset(str(tmp_path / "preset"))
    routines.run_preset_test(
        cls, str(tmp_path / "preset"), given, expected_output=layer(*given)
    )


def check_batches(routines, layer, given):
    """As the routine does, but comparing batches with batches, and ones with ones."""
    routines.run_serialization_test(layer)
    count = len(every.TEXTS)
    data = tf.data.Dataset.from_tensor_slices(given)
    source = test_case.grain_source_from_tensor_slices(given)
    whole = source.batch(count, batch_fn=test_case.grain_ragged_batch)
    direct = layer(*given)
    for found in (data.batch(count).map(layer), whole.map(lambda x: layer(*x))):
        (one,) = found
        routines.assertAllClose(direct, one)
    test_case.assert_grain_safe_types(one)
    ones = [layer(*x) for x in source]
    for found in (data.map(layer), source.map(lambda x: layer(*x))):
        for one, other in zip(found, ones, strict=True):
            routines.assertAllClose(one, other)
    layer.sequence_length = 30
    x, _, _ = keras.utils.unpack_x_y_sample_weight(layer(*given))
    assert x["token_ids"].shape[-1] <= 30


@pytest.mark.parametrize(("task", "kind"), marked(every.cells()))
def test_tasks(task, kind, routines, tmp_path, monkeypatch):
    cls, arguments = getattr(tasks, task), every.parts_of(task, kind)
    given = every.given_to(task)
    if task in ("TokenClassifier", "DependencyParser", "SparseEncoder"):
        given = given_to(task)
    compiled = None
    if task == "CrossEncoder":  # of single passages `predict` has no axis for them
        given = ((every.TEXTS, [[x, y] for x in every.TEXTS[:1] for y in every.TEXTS]),)
        given = (*given, [[1.0, 0.0]] * len(every.TEXTS))
    if task == "SparseEncoder":
        compiled = {"loss": tasks.CosineSimilarityError()}
    preprocessor = arguments["preprocessor"]
    example = preprocessor(*given)
    x, _, _ = keras.utils.unpack_x_y_sample_weight(example)
    if task in OWN_TASKS:
        check_fit(routines, cls, arguments, given, example)
    else:
        # Models are subclassed: their inputs are what the preprocessor makes.
        monkeypatch.setattr(cls, "_inputs_struct", x, raising=False)
        count = len(every.TEXTS)
        routines.run_task_test(cls, arguments, given, None, count, compiled)
        monkeypatch.undo()
    x = as_tensors(keras.tree.map_structure(np.asarray, x))
    draws = task == "ReplacedTokenDetection"
    model = cls(**arguments)
    saved = getattr(model, "student", model)
    if saved is not model:
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        assert type(again) is type(saved)
        routines.assertAllClose(again(x), saved(x))
    elif not draws:
        routines.run_model_saving_test(cls, arguments, x)
    saved.save_to_preset(str(tmp_path / "preset"))
    expected = None if draws else saved(x)
    routines.run_preset_test(
        type(saved), str(tmp_path / "preset"), x, expected_output=expected
    )


def check_fit(routines, cls, arguments, given, example):
    """As the routine does, without `predict` on raw texts in datasets."""
    task = cls(**arguments)
    routines.run_serialization_test(task)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(example)
    task.fit(*given, verbose=0)
    task.fit(x, y, sample_weight=sample_weight, verbose=0)
    one, other = (task.predict(x, verbose=0) for _ in range(2))
    if cls.__name__ == "TokenClassifier":
        words = task.predict(given[0], verbose=0)
        routines.assertAllClose(words, one[:, : len(given[0][0])])
    if cls.__name__ == "TextToText":
        routines.assertAllClose(one, other)
        with pytest.raises(ValueError, match="Call `generate"):
            task.predict(given[0], verbose=0)
    task = cls(**arguments, compile=False)
    with pytest.raises(ValueError, match="You must call `compile"):
        task.fit(*given, verbose=0)


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", marked(every.KINDS, "bert"))
def test_tokenizers(kind, routines, tmp_path):
    tokenizer = every.tokenizer_of(kind)
    config = tokenizer.get_config()
    for name in ("name", "trainable", "dtype", "config_file"):
        config.pop(name, None)
    if hasattr(tokenizer, "proto"):
        config["proto"] = tokenizer.proto
    elif hasattr(tokenizer, "merges"):
        config |= {"vocabulary": tokenizer.vocabulary, "merges": tokenizer.merges}
    else:
        config["vocabulary"] = tokenizer.get_vocabulary()
    routines.run_preprocessing_layer_test(
        type(tokenizer), config, TEXTS, expected_detokenize_output=TEXTS
    )
    tokenizer.save_to_preset(str(tmp_path / "preset"))
    routines.run_preset_test(
        type(tokenizer),
        str(tmp_path / "preset"),
        TEXTS,
        expected_output=tokenizer(TEXTS),
    )


@pytest.mark.slow("release")
@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="KerasHub's LiteRT is on PyTorch only"
)
@pytest.mark.parametrize("family", FAMILIES)
def test_litert(family, routines):
    pytest.importorskip("litert_torch")
    cls = getattr(models, FAMILIES[family].backbone)
    routines.run_litert_export_test(
        cls,
        every.arguments_of(family, 50),
        as_tensors(inputs_of(family)),
        comparison_mode="statistical",
        output_thresholds={"*": {"max": 1e-4, "mean": 1e-5}},
    )
