"""Fine-tuning tasks from and to `transformers`, with the heads of their family."""

import json

import keras
import numpy as np
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import huggingface
from keras_bertfam.presets.converting.heads import task_name
from tests.conformance.test_hf_round_trips import (
    CONFIGS,
    IDS,
    TYPED,
    arrays,
    make_theirs,
)
from tests.from_transformers import convert, max_difference

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
TASKS = {
    "ForSequenceClassification": "TextClassifier",
    "ForTokenClassification": "TokenClassifier",
    "ForQuestionAnswering": "SpanQuestionAnswering",
    "ForMultipleChoice": "MultipleChoice",
}
CASES = [(family, ending) for family in CONFIGS for ending in TASKS]
for missing in (
    ("Deberta", "ForMultipleChoice"),
    ("EuroBert", "ForMultipleChoice"),
    ("EuroBert", "ForQuestionAnswering"),
):
    CASES.remove(missing)


def architecture(family, ending):
    simple = family == "XLNet" and ending == "ForQuestionAnswering"
    return f"{family}{ending}{'Simple' * simple}"


def labels(ending):
    if "Classification" not in ending:
        return {}
    return {"num_labels": 3, "id2label": dict(enumerate("abc"))}


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(("family", "ending"), CASES)
def test_in_out_and_in_again_is_the_identity(family, ending, tmp_path):
    theirs = make_theirs(architecture(family, ending), **labels(ending))
    theirs.save_pretrained(tmp_path / "theirs")
    cls = getattr(tasks, TASKS[ending])
    assert task_name(huggingface.open_source(tmp_path / "theirs")) == cls.__name__
    ours = cls.from_preset(str(tmp_path / "theirs"))
    choice = ending == "ForMultipleChoice"
    ids = IDS[None] if choice else IDS
    x = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}
    kwargs = {}
    if family == "Longformer":  # whose own global tokens are in test_hf_longer.py
        kwargs["global_attention_mask"] = np.zeros(ids.shape, bool)
        x |= kwargs
    with torch.no_grad():
        expected = theirs(
            torch.tensor(ids).long(), **{k: torch.tensor(v) for k, v in kwargs.items()}
        )
    outputs = ours(x)
    if ending == "ForQuestionAnswering":
        for name in ("start_logits", "end_logits"):
            assert max_difference(outputs[name], expected[name]) < 1e-4
    else:
        assert max_difference(outputs, expected.logits) < 1e-4
    if labels(ending):
        assert ours.label_names == ["a", "b", "c"]

    ours.export_to_transformers(tmp_path / "ours")
    again, info = type(theirs).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values())
    assert again.config.id2label == theirs.config.id2label
    assert again.config.architectures == [type(theirs).__name__]
    moved = {"position_embeddings", "token_type_embeddings"}
    after = again.state_dict()
    for name, tensor in theirs.state_dict().items():
        if family not in TYPED or not any(part in name for part in moved):
            assert torch.equal(tensor, after[name]), name
    last = cls.from_preset(str(tmp_path / "ours"))
    for first, second in zip(arrays(ours), arrays(last), strict=True):
        np.testing.assert_array_equal(first, second)


def rate_key(name):
    """The key of the rate of a head of theirs, if it isn't the encoder's."""
    for key in (
        "classifier_dropout",
        "classifier_dropout_prob",
        "seq_classif_dropout",
        "summary_last_dropout",
        "cls_dropout",
    ):
        layers = make_theirs(name, **{key: 0.4}).modules()
        if any(isinstance(x, torch.nn.Dropout) and x.p == 0.4 for x in layers):
            return key
    return None


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("family", [x for x in CONFIGS if x != "EuroBert"])  # no rates
def test_dropout_of_the_head(family, tmp_path):
    names = {"DistilBert": "dropout", "XLNet": "dropout"}
    encoder = {**names, "ModernBert": "embedding_dropout"}.get(
        family, "hidden_dropout_prob"
    )
    for ending in ("SequenceClassification", "TokenClassification", "MultipleChoice"):
        if (family, f"For{ending}") not in CASES:
            continue
        key = rate_key(f"{family}For{ending}")
        rates = {encoder: 0.25, **({key: 0.4} if key else {})}
        theirs = make_theirs(f"{family}For{ending}", **rates)
        cls = getattr(tasks, TASKS[f"For{ending}"])
        ours = convert(cls, theirs)
        # XLNet's labels of words have none.
        usual = 0.0 if family == "XLNet" else 0.25
        assert ours.dropout == (0.4 if key else usual)
        assert ours.backbone.dropout == 0.25
        ours.export_to_transformers(tmp_path / ending)
        config = json.loads((tmp_path / ending / "config.json").read_text())
        assert config[encoder] == 0.25 and config.get(key) == rates.get(key)
        assert cls.from_preset(str(tmp_path / ending)).dropout == ours.dropout
        assert convert(cls, theirs, dropout=0.3).dropout == 0.3
        if key:
            theirs.config.update({key: 1.5})
            with pytest.raises(CheckpointError, match=f"'{key}' to be .*1.5"):
                convert(cls, theirs)
    if family in ("Bert", "Roberta", "Electra"):
        # Without a rate of its own it is the encoder's.
        theirs = make_theirs(f"{family}ForSequenceClassification", **{encoder: 0.25})
        assert convert(tasks.TextClassifier, theirs).dropout == 0.25


def test_regression_and_other_classes(tmp_path):
    theirs = make_theirs(
        "BertForSequenceClassification", num_labels=1, problem_type="regression"
    )
    ours = convert(tasks.TextRegressor, theirs)
    with torch.no_grad():
        expected = theirs(torch.tensor(IDS).long()).logits[:, 0]
    assert max_difference(ours({"token_ids": IDS}), expected) < 1e-4
    ours.export_to_transformers(tmp_path)
    assert task_name(huggingface.open_source(tmp_path)) == "TextRegressor"
    assert json.loads((tmp_path / "config.json").read_text())["num_labels"] == 1
    # A head for other classes is new.
    theirs = make_theirs("BertForSequenceClassification", num_labels=3)
    assert convert(tasks.TextClassifier, theirs).num_classes == 3
    with pytest.warns(UserWarning, match="and new: .*logits.*left out: classifier.b"):
        other = convert(tasks.TextClassifier, theirs, num_classes=2)
    assert other.num_classes == 2
    with pytest.warns(UserWarning, match="left out: .*cls.predictions"):
        convert(tasks.TextClassifier, make_theirs("BertForMaskedLM"), num_classes=2)


@pytest.mark.slow
def test_a_head_of_another_task_is_new(tmp_path):
    names = {"id2label": dict(enumerate("abc"))}
    make_theirs("BertForSequenceClassification", **names).save_pretrained(tmp_path)
    warning = "and new: .*logits/kernel.*left out: classifier.bias, classifier.weight"
    for cls, kwargs in (
        (tasks.TextRegressor, {}),
        (tasks.MultipleChoice, {}),
        (tasks.TokenClassifier, {"num_classes": 3}),
        (tasks.TextClassifier, {"label_names": ["a", "c", "b"]}),
    ):
        with pytest.warns(UserWarning, match=warning) as warned:
            cls.from_preset(str(tmp_path), **kwargs)
        assert len(warned) == 1
    with pytest.raises(ValueError, match="num_classes"):
        tasks.TokenClassifier.from_preset(str(tmp_path))
    kept = tasks.TextClassifier.from_preset(str(tmp_path), label_names=["a", "b", "c"])
    # Classes without names may be given some.
    theirs = make_theirs("BertForSequenceClassification", num_labels=2)
    named = convert(tasks.TextClassifier, theirs, label_names=["bad", "good"])
    assert max_difference(named.head.logits.bias, theirs.classifier.bias) == 0
    assert kept.label_names == ["a", "b", "c"]
    # A pair of dense layers is one head.
    theirs = make_theirs("DistilBertForSequenceClassification", num_labels=3)
    with pytest.warns(UserWarning, match="left out: .*pre_classifier.bias"):
        convert(tasks.MultipleChoice, theirs)
    theirs = make_theirs("BertForQuestionAnswering")
    with pytest.warns(UserWarning, match="and new: .*left out: qa_outputs.bias"):
        convert(tasks.SpanQuestionAnswering, theirs, end_head="conditional")


@pytest.mark.parametrize(
    ("architecture", "key", "value", "expected"),
    [
        ("XLNetForSequenceClassification", "summary_type", "mean", "'last'"),
        ("XLNetForMultipleChoice", "summary_activation", "gelu", "'tanh'"),
        ("XLNetForMultipleChoice", "summary_use_proj", False, "True"),
        ("ElectraForMultipleChoice", "summary_type", "last", "'first'"),
        ("ElectraForMultipleChoice", "summary_activation", "tanh", "'gelu'"),
        ("BertForSequenceClassification", "problem_type", "regression", "None or 's"),
    ],
)
def test_heads_of_another_computation(architecture, key, value, expected):
    theirs = make_theirs(architecture, **{key: value})
    cls = getattr(tasks, TASKS[architecture[architecture.index("For") :]])
    message = f"'{key}' to be {expected}.*Received: {value!r}"
    with pytest.raises(CheckpointError, match=message):
        convert(cls, theirs)
    if key == "problem_type":
        # That of another task is left out, and so isn't asked.
        theirs = make_theirs(architecture, num_labels=3, **{key: value})
        with pytest.warns(UserWarning, match="left out: classifier.bias"):
            convert(tasks.TextRegressor, theirs)


def test_heads_that_transformers_lacks(tmp_path):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)
    backbone = models.BertBackbone(vocabulary_size=10, pooler=False, **sizes)
    model = tasks.TextClassifier(backbone, 2, head_style="linear")
    with pytest.raises(ValueError, match="head_style='linear'"):
        model.export_to_transformers(tmp_path)
    model = tasks.SpanQuestionAnswering(backbone, end_head="conditional")
    with pytest.raises(ValueError, match="no place for"):
        model.export_to_transformers(tmp_path)
    # A new pooler in the head is the pooler there.
    model = tasks.TextClassifier(backbone, 2)
    model.export_to_transformers(tmp_path)
    again = tasks.TextClassifier.from_preset(str(tmp_path))
    x = {"token_ids": IDS}
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(model(x)),
        keras.ops.convert_to_numpy(again(x)),
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["LABEL_B", "LABEL_A"], ["LABEL_B", "LABEL_A"]),
        (["LABEL_0", "good"], ["LABEL_0", "good"]),
        (["LABEL_0", "LABEL_1"], None),
    ],
)
def test_names_of_classes_that_look_like_none(names, expected, tmp_path):
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        id2label=dict(enumerate(names)),
    )
    theirs = transformers.BertForSequenceClassification(config)
    theirs.save_pretrained(tmp_path)
    assert tasks.TextClassifier.from_preset(tmp_path).label_names == expected
