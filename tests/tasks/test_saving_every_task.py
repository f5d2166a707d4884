"""Each task with each kind of tokenizer, saved in each of Keras's ways."""

import json

import keras
import numpy as np
import pytest

from keras_bertfam import analysis
from keras_bertfam.layers.data.pairs.segments import get_layout
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.tokenizer_presets import has_vocabulary
from tests import every_task as every

QUICK = ("TextEmbedder", "t5")
RELEASE = pytest.mark.slow("release")


def cells():
    """One that is quick; of the others an eighth for CI, and the rest for releases."""
    for number, cell in enumerate(every.cells()):
        marks = [] if number % 8 == 0 else ["release"]
        slow = [] if cell == QUICK else [pytest.mark.slow(*marks)]
        yield pytest.param(*cell, marks=slow)


def saved_as(model):
    """What is saved of a model: of a distiller its student."""
    return getattr(model, "student", model)


def check_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(("task", "kind"), [*cells()])
def test_what_is_saved_answers_as_before(task, kind, tmp_path):
    model = saved_as(every.make(task, kind))
    rows = every.rows_of(task, model)
    expected = every.outputs_of(model, rows)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    model.save_to_preset(str(tmp_path / "preset"))
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        type(model).from_preset(str(tmp_path / "preset")),
    ):
        keras.tree.map_structure(
            np.testing.assert_array_equal, rows, every.rows_of(task, again)
        )
        if task != "ReplacedTokenDetection":  # whose generator draws in each call
            check_same(every.outputs_of(again, rows), expected)
    # A vocabulary isn't in a config, here as in KerasHub: only layers are compared.
    for again in (
        type(model).from_config(model.get_config()),
        keras.models.clone_model(model),
    ):
        again.load_weights(tmp_path / "model.weights.h5")
        if task != "ReplacedTokenDetection":
            check_same(every.outputs_of(again, rows), expected)


@pytest.mark.any_backend
def test_a_layout_is_known_without_a_vocabulary():
    for kind in every.KINDS:
        tokenizer, record = every.tokenizer_of(kind), FAMILIES[kind]
        empty = type(tokenizer).from_config(tokenizer.get_config())
        assert get_layout(None, empty) is get_layout(None, tokenizer) is record.layout
        for summary in (False, True):
            named = get_layout(None, tokenizer, summary)
            assert get_layout(named.name, empty) is named


@pytest.mark.any_backend
def test_a_config_of_a_task_that_has_no_vocabulary():
    model = every.make("TextRegressor", "bert")
    # What a file has of it: the vocabulary is elsewhere.
    config = json.loads(json.dumps(model.get_config()))
    empty = type(model).from_config(config)
    again = type(model).from_config(empty.get_config())
    assert not has_vocabulary(again.preprocessor.tokenizer)
    copy = type(model).from_config(model.get_config())
    assert has_vocabulary(copy.preprocessor.tokenizer)


@pytest.mark.slow
@pytest.mark.any_backend
def test_rows_of_t5_and_gpt():
    def row(task, kind):
        model = every.make(task, kind)
        x = model.preprocessor(*every.given_to(task))[0]
        x = {name: np.asarray(value) for name, value in x.items()}
        at = (0, 0) if x["token_ids"].ndim == 3 else 0
        size = x["padding_mask"][at].sum()
        return model, x, x["token_ids"][at][:size], at

    ids = every.tokenizer_of("t5")(every.TEXTS).to_list()
    model, x, found, _ = row("TokenClassifier", "t5")
    assert found.tolist() == [*ids[0], every.tokenizer_of("t5").end_token_id]
    assert x["word_positions"][0, 0] == 0
    _, x, found, at = row("SpanQuestionAnswering", "t5")
    assert found[x["span_mask"][at][: len(found)]].tolist() == ids[0]
    tokenizer = every.tokenizer_of("openai-gpt")
    size, ids = tokenizer.vocabulary_size(), tokenizer(every.TEXTS).to_list()
    model, x, found, _ = row("TextEmbedder", "openai-gpt")
    assert found.tolist() == [size, *ids[0], size + 2]
    assert model.backbone.vocabulary_size == size + 3


@pytest.mark.any_backend
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["openai-gpt", "t5"])
def test_words_have_states_in_any_family(kind):
    tokenizer = every.tokenizer_of(kind)
    backbone = every.backbone_of(kind, tokenizer.vocabulary_size())
    found = analysis.embed_words(backbone, every.WORDS, tokenizer=tokenizer)
    assert [words for words, _ in found] == every.WORDS
    ids = np.asarray(tokenizer(every.TEXTS[0]))[None]
    encoder = backbone
    if kind == "t5":
        encoder, ids = backbone.encoder, np.append(ids, [[1]], 1)
    states = encoder({"token_ids": ids}, return_hidden_states=True)["hidden_states"]
    expected = keras.ops.convert_to_numpy(states[-1])[0, 0]
    sizes = np.asarray(tokenizer(every.WORDS[0][:1]).row_lengths())
    if sizes[0] == 1:
        np.testing.assert_allclose(found[0][1][0], expected, atol=1e-4)
    else:
        assert np.isfinite(found[0][1]).all()


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "task",
    [
        task if task == "MaskedLM" else pytest.param(task, marks=RELEASE)
        for task in (*every.FINE_TUNING, *every.PRETRAINING)
        if task != "Distiller"  # whose student is compiled
    ],
)
def test_what_is_not_compiled_says_so(task, tmp_path):
    model = every.make(task, "bert", compile=False)
    rows = every.rows_of(task, model)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(rows)
    given = {"sample_weight": sample_weight, "verbose": 0}
    with pytest.raises(ValueError, match="You must call `compile"):
        model.fit(*every.given_to(task), verbose=0)
    with pytest.raises(ValueError, match="You must call `compile"):
        model.evaluate(x, y, **given)
    expected = every.outputs_of(model, rows)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    again = keras.saving.load_model(tmp_path / "model.keras")
    model.compile(jit_compile=False)
    for one in (model, again):
        if task != "ReplacedTokenDetection":
            check_same(every.outputs_of(one, rows), expected)
    assert np.isfinite(model.evaluate(x, y, **given)).all()


@pytest.mark.parametrize(
    "task",
    [
        task if task == "TextClassifier" else pytest.param(task, marks=RELEASE)
        for task in (*every.FINE_TUNING, *every.PRETRAINING)
        if task != "Distiller"  # which has the precision of its student
    ],
)
def test_the_precision_is_the_backbones(task):
    with pytest.raises(ValueError, match="`dtype` must be the backbone's"):
        every.make(task, "bert", dtype="mixed_float16")
    made = every.make(task, "bert", dtype="float32", compile=False)
    assert made.dtype_policy == made.backbone.dtype_policy
