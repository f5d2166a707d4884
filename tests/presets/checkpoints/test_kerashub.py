"""Models of KerasHub's own classes become ours, and ours become theirs."""

import json
import shutil
import warnings

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_bertfam import models
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import (
    BertBackbone,
    DistilBertBackbone,
    ElectraBackbone,
    EncoderBackbone,
    RobertaBackbone,
    SpanBertBackbone,
    XLNetBackbone,
)
from keras_bertfam.presets import CheckpointError
from keras_bertfam.tasks import (
    CausalLM,
    MaskedLM,
    PermutationLM,
    TextClassifier,
    TextToText,
)
from tests.converted import assert_converts_whole

SIZES = dict(num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16)
MORE = {
    "BertBackbone": {},
    "RobertaBackbone": {},
    "AlbertBackbone": dict(embedding_dim=4, num_groups=2, num_layers=4),
    "DistilBertBackbone": {},
    "ElectraBackbone": dict(embedding_dim=4),
    "XLNetBackbone": {},
}
HEADS = {"Bert": 2e-3, "Roberta": 1e-5, "Albert": 2e-3, "DistilBert": 2e-3}


def randomise(model):
    """Weights of which none is like another, norms and biases included."""
    rng = np.random.default_rng(0)
    for variable in model.weights:
        noise = rng.normal(0, 0.2, tuple(variable.shape))
        variable.assign(ops.convert_to_numpy(variable) + noise)
    return model


def make(name, **kwargs):
    vocabulary = "vocab_size" if name == "ElectraBackbone" else "vocabulary_size"
    sizes = {vocabulary: 12, **SIZES, **MORE[name], **kwargs}
    if name != "XLNetBackbone":
        sizes.setdefault("max_sequence_length", 8)
    return randomise(getattr(keras_hub.models, name)(**sizes))


def inputs(model):
    ids = {
        "token_ids": np.array([[1, 5, 7, 2, 9, 4]]),
        "padding_mask": np.array([[1, 1, 1, 1, 1, 0]]),
        "segment_ids": np.array([[0, 0, 0, 1, 1, 1]]),
    }
    names = [tensor.name for tensor in keras.tree.flatten(model.input)]
    return {name: ids[name] for name in names if name in ids}


def states(outputs):
    states = outputs["sequence_output"] if isinstance(outputs, dict) else outputs
    return ops.convert_to_numpy(states)[:, :5]


def same_weights(first, second):
    assert [v.path for v in first.weights] == [v.path for v in second.weights]
    for one, other in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, (one, other)))


def loader(name):
    return XLNetBackbone if name == "XLNetBackbone" else EncoderBackbone


@pytest.fixture
def saved(request, tmp_path):
    name = request.param
    theirs = make(name)
    theirs.save_to_preset(str(tmp_path / "preset"))
    return name, theirs, tmp_path / "preset"


EACH = pytest.mark.parametrize("saved", MORE, indirect=True)


@pytest.mark.slow
@EACH
@pytest.mark.filterwarnings("ignore:.*loaded in part")
def test_states_of_a_preset(saved):
    name, theirs, path = saved
    ours = loader(name).from_preset(str(path))
    assert type(ours).__name__ == name
    data = inputs(theirs)
    got, expected = ours(data), theirs(data)
    np.testing.assert_allclose(states(got), states(expected), atol=1e-5)
    if "pooled_output" in got:
        pooled = [ops.convert_to_numpy(o["pooled_output"]) for o in (got, expected)]
        np.testing.assert_allclose(*pooled, atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
@EACH
@pytest.mark.filterwarnings("ignore:.*loaded in part")
def test_there_and_back_is_the_identity(saved):
    name, theirs, path = saved
    back = loader(name).from_preset(str(path)).to_keras_hub()
    assert type(back) is type(theirs)
    if name == "ElectraBackbone":  # ours has no pooler
        for variable in theirs.pooled_dense.weights:
            variable.assign(np.zeros(variable.shape))
        for variable in back.pooled_dense.weights:
            variable.assign(np.zeros(variable.shape))
    same_weights(theirs, back)
    expected, got = theirs.get_config(), back.get_config()
    del expected["name"], got["name"]
    assert got == expected


@pytest.mark.slow
@pytest.mark.any_backend
@EACH
def test_what_has_no_place_is_named(saved):
    name, _, path = saved
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader(name).from_preset(str(path))
    texts = [str(w.message) for w in caught if "loaded in part" in str(w.message)]
    if name == "ElectraBackbone":  # ours has no pooler
        (text,) = texts
        assert text.endswith("left out: pooled_dense/kernel, pooled_dense/bias.")
    else:
        assert not texts


@pytest.mark.slow
@pytest.mark.any_backend
@EACH
def test_sizes_alone(saved):
    name, theirs, path = saved
    ours = loader(name).from_preset(str(path), load_weights=False)
    assert ours.num_layers == theirs.num_layers and ours.hidden_dim == 8


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", HEADS)
def test_heads_come_along(family, tmp_path):
    theirs = getattr(keras_hub.models, f"{family}MaskedLM")(make(f"{family}Backbone"))
    randomise(theirs).save_to_preset(str(tmp_path / "preset"))
    ours = MaskedLM.from_preset(str(tmp_path / "preset"))
    data = {**inputs(theirs.backbone), "mask_positions": np.array([[1, 3]])}
    # Norms of KerasHub's heads have an epsilon of 1e-5, and some the other GELU.
    got, expected = (ops.convert_to_numpy(model(data)) for model in (ours, theirs))
    np.testing.assert_allclose(got, expected, atol=HEADS[family])
    back = ours.to_keras_hub()
    assert type(back) is type(theirs)
    same_weights(theirs, back)
    back.save_to_preset(str(tmp_path / "back"))
    again = keras_hub.models.MaskedLM.from_preset(str(tmp_path / "back"))
    np.testing.assert_array_equal(expected, ops.convert_to_numpy(again(data)))
    assert_converts_whole(MaskedLM, tmp_path / "preset", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", HEADS)
def test_classifiers_come_along(family, tmp_path):
    backbone = make(f"{family}Backbone")
    theirs = getattr(keras_hub.models, f"{family}TextClassifier")(backbone, 3)
    randomise(theirs).save_to_preset(str(tmp_path / "preset"))
    ours = TextClassifier.from_preset(str(tmp_path / "preset"))
    data = inputs(backbone)
    got, expected = (ops.convert_to_numpy(model(data)) for model in (ours, theirs))
    assert got.shape == (1, 3)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    back = ours.to_keras_hub()
    assert type(back) is type(theirs)
    same_weights(theirs, back)
    assert_converts_whole(TextClassifier, tmp_path / "preset", tmp_path / "out")


@pytest.mark.any_backend
def test_a_backbone_gives_a_task_with_a_new_head_and_its_tokenizer(tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]
    tokenizer = keras_hub.tokenizers.BertTokenizer(tokens, lowercase=True)
    make("BertBackbone").save_to_preset(str(tmp_path / "preset"))
    tokenizer.save_to_preset(str(tmp_path / "preset"))
    with pytest.warns(UserWarning, match="new: .*masked_lm_head/dense/kernel"):
        task = MaskedLM.from_preset(str(tmp_path / "preset"))
    assert type(task.preprocessor.tokenizer) is BertTokenizer
    assert task.preprocessor.tokenizer.lowercase
    assert list(task.preprocessor.tokenizer("B C")) == [6, 7]


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_dtype(dtype, tmp_path):
    make("BertBackbone").save_to_preset(str(tmp_path / "preset"))
    ours = BertBackbone.from_preset(str(tmp_path / "preset"), dtype=dtype)
    assert ours.compute_dtype == "bfloat16"
    assert ours.to_keras_hub().dtype_policy.name == dtype


def ours(cls, **kwargs):
    return cls(vocabulary_size=12, **SIZES, **kwargs)


@pytest.mark.parametrize(
    ("make_ours", "message"),
    [
        (lambda: ours(SpanBertBackbone), "hidden_act='gelu'"),
        (lambda: ours(BertBackbone, attention_dropout=0.3), "_dropout_prob"),
        (lambda: ours(BertBackbone, layer_norm_epsilon=1e-6), "layer_norm_eps"),
        (lambda: ours(XLNetBackbone), "gelu_tanh"),
        (lambda: ours(XLNetBackbone, activation="gelu", clamp_length=4), "clamp_len"),
        (lambda: ours(BertBackbone, share="all"), "share"),
        (lambda: MaskedLM(ours(ElectraBackbone)), "no task of this kind"),
        (lambda: PermutationLM(ours(XLNetBackbone, activation="gelu")), "no task"),
    ],
)
def test_what_keras_hub_does_not_have(make_ours, message):
    with pytest.raises(ValueError, match=message):
        make_ours().to_keras_hub()


def test_distil_roberta_is_a_roberta_there():
    arguments = dict(
        position_offset=2, layer_norm_epsilon=1e-5, truncated_initializer=False
    )
    model = randomise(ours(DistilBertBackbone, **arguments))
    theirs = model.to_keras_hub()
    assert isinstance(theirs, keras_hub.models.RobertaBackbone)
    data = inputs(theirs)
    np.testing.assert_allclose(states(model(data)), states(theirs(data)), atol=1e-5)
    assert ours(RobertaBackbone).to_keras_hub().num_layers == 2


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(("family", "task"), [("GPT2", CausalLM), ("Bart", TextToText)])
def test_models_that_write_texts(family, task, tmp_path):
    backbone = getattr(keras_hub.models, f"{family}Backbone")(
        vocabulary_size=12, **SIZES, max_sequence_length=8
    )
    ending = "CausalLM" if task is CausalLM else "Seq2SeqLM"
    theirs = getattr(keras_hub.models, f"{family}{ending}")(randomise(backbone))
    path = tmp_path / "preset"
    theirs.save_to_preset(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = task.from_preset(str(path))
        alone = models.Backbone.from_preset(str(path))
    assert type(alone) is type(model.backbone)
    mask = np.array([[1, 1, 1, 1, 1, 0]])
    side = {"token_ids": np.array([[1, 5, 7, 2, 9, 4]]), "padding_mask": mask}
    data = side
    if family == "Bart":
        data = {f"{n}_{k}": v for n in ("encoder", "decoder") for k, v in side.items()}
    got, expected = (ops.convert_to_numpy(each(data)) for each in (model, theirs))
    np.testing.assert_allclose(got[:, :5], expected[:, :5], atol=1e-4)
    back = model.to_keras_hub()
    assert type(back) is type(theirs)
    same_weights(theirs, back)
    with pytest.raises(ValueError, match="KerasHub has no .*_function='relu'"):
        type(alone)(vocabulary_size=12, **SIZES, activation="relu").to_keras_hub()


TANH = {"module": "builtins", "class_name": "function", "registered_name": "function"}
TANH["config"] = "keras_hub>gelu_approximate"


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(("activation", "gated"), [("relu", False), (TANH, True)])
def test_t5(activation, gated, tmp_path):
    """Layers that KerasHub gives no names; with a gate the output table is untied."""
    sizes = dict(num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=12)
    kinds = {"use_gated_activation": gated, "tie_embedding_weights": not gated}
    backbone = keras_hub.models.T5Backbone(
        vocabulary_size=12,
        **sizes,
        **kinds,
        key_value_dim=3 if gated else None,
        activation=activation,
    )
    theirs = keras_hub.models.T5Seq2SeqLM(randomise(backbone))
    path = str(tmp_path / "preset")
    theirs.save_to_preset(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*loaded in part")
        model = TextToText.from_preset(path)
    mask = np.array([[1, 1, 1, 1, 1, 0]])
    side = {"token_ids": np.array([[1, 5, 7, 2, 9, 4]]), "padding_mask": mask}
    data = {f"{n}_{k}": v for n in ("encoder", "decoder") for k, v in side.items()}
    got, expected = (ops.convert_to_numpy(each(data)) for each in (model, theirs))
    np.testing.assert_allclose(got[:, :5], expected[:, :5], atol=1e-4)
    back = model.to_keras_hub()
    assert type(back) is type(theirs)
    for one, other in zip(theirs.weights, back.weights, strict=True):
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, (one, other)))
    ours = dict(vocabulary_size=12, **sizes)
    for arguments in ({"relative_distance": 64}, {"num_decoder_layers": 1}):
        with pytest.raises(ValueError, match="KerasHub has no .*there"):
            models.T5Backbone(**ours, **arguments).to_keras_hub()


# === Damaged, or not ours ===


def test_another_class_of_keras_hub(tmp_path):
    opt = keras_hub.models.OPTBackbone(
        vocabulary_size=12, **SIZES, max_sequence_length=8
    )
    opt.save_to_preset(str(tmp_path / "preset"))
    with pytest.raises(CheckpointError, match="OPTBackbone"):
        BertBackbone.from_preset(str(tmp_path / "preset"))


@pytest.mark.any_backend
@pytest.mark.parametrize("file", ["config.json", "model.weights.h5"])
def test_truncated(file, tmp_path):
    path = tmp_path / "preset"
    make("BertBackbone").save_to_preset(str(path))
    content = (path / file).read_bytes()
    (path / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="truncated|complete"):
        BertBackbone.from_preset(str(path))
    shutil.rmtree(path)


@pytest.mark.any_backend
@pytest.mark.parametrize("key", ["vocabulary_size", "num_layers", "hidden_dim"])
def test_sizes_are_checked_first(key, tmp_path):
    path = tmp_path / "preset"
    make("BertBackbone").save_to_preset(str(path))
    config = json.loads((path / "config.json").read_text())
    config["config"][key] = 10**10
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"doesn't fit its weights.*{key}"):
        BertBackbone.from_preset(str(path))


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("key", ["num_classes", "hidden_dim", "backbone"])
def test_sizes_of_a_task_are_checked_first(key, tmp_path):
    path = tmp_path / "preset"
    backbone = make("RobertaBackbone")
    keras_hub.models.RobertaTextClassifier(backbone, 3).save_to_preset(str(path))
    TextClassifier.from_preset(str(path))
    task = json.loads((path / "task.json").read_text())
    if key == "backbone":
        task["config"]["backbone"]["config"]["vocabulary_size"] = 10**9
    else:
        task["config"][key] = 10**9
    (path / "task.json").write_text(json.dumps(task))
    with pytest.raises(CheckpointError, match="doesn't fit its weights"):
        TextClassifier.from_preset(str(path))
