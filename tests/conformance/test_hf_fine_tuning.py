"""Fine-tuning heads against `transformers` with the same random weights."""

import importlib.util
import pathlib

import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, tasks

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

_spec = importlib.util.spec_from_file_location(
    "hf_weights", pathlib.Path(__file__).with_name("hf_weights.py")
)
hf_weights = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hf_weights)

VOCABULARY, LAYERS, HEADS, WIDTH, INNER, LENGTH = 97, 2, 2, 16, 24, 20
SIZES = (VOCABULARY, LAYERS, HEADS, WIDTH, INNER)
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "initializer_range": 0.3,
    "max_position_embeddings": LENGTH,
    "attn_implementation": "eager",
    "num_labels": 3,
}
OTHER_NAMES = {
    "distilbert": {
        "dim": WIDTH,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "hidden_dim": INNER,
        "sinusoidal_pos_embds": False,
    },
    "xlnet": {
        "d_model": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "d_inner": INNER,
        "ff_activation": "gelu",
    },
}
# Prefix of the classes, arguments of the config, and of our backbone.
FAMILIES = {
    "bert": ("Bert", {"hidden_act": "gelu_pytorch_tanh"}, {}),
    "albert": ("Albert", {"embedding_size": 12}, {"embedding_dim": 12}),
    "roberta": (
        "Roberta",
        {"max_position_embeddings": LENGTH + 2, "type_vocab_size": 1},
        {},
    ),
    "electra": (
        "Electra",
        {"embedding_size": 12, "hidden_act": "gelu_pytorch_tanh"},
        {"embedding_dim": 12},
    ),
    "distilbert": ("DistilBert", {}, {}),
    "xlnet": ("XLNet", {}, {"activation": "gelu"}),
}
BACKBONES = {
    "bert": models.BertBackbone,
    "albert": models.AlbertBackbone,
    "roberta": models.RobertaBackbone,
    "electra": models.ElectraBackbone,
    "distilbert": models.DistilBertBackbone,
    "xlnet": models.XLNetBackbone,
}
# The names of the head's dense layer, for each kind of task, and of its logits.
DENSE = {
    "roberta": {
        "SequenceClassification": "classifier.dense",
        "MultipleChoice": "roberta.pooler.dense",
    },
    "electra": {
        "SequenceClassification": "classifier.dense",
        "MultipleChoice": "sequence_summary.summary",
    },
    "distilbert": dict.fromkeys(
        ("SequenceClassification", "MultipleChoice"), "pre_classifier"
    ),
    "xlnet": dict.fromkeys(
        ("SequenceClassification", "MultipleChoice"), "sequence_summary.summary"
    ),
}
LOGITS = {
    ("roberta", "SequenceClassification"): "classifier.out_proj",
    ("electra", "SequenceClassification"): "classifier.out_proj",
    ("xlnet", "SequenceClassification"): "logits_proj",
    ("xlnet", "MultipleChoice"): "logits_proj",
}


def make_theirs(family, kind):
    prefix, arguments, _ = FAMILIES[family]
    config_class = getattr(transformers, f"{prefix}Config")
    settings = {**COMMON, **OTHER_NAMES.get(family, {}), **arguments}
    if family == "xlnet":
        del settings["max_position_embeddings"]
    torch.manual_seed(1)
    model = getattr(transformers, f"{prefix}For{kind}")(config_class(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def make_backbone(family, state):
    arguments = FAMILIES[family][2]
    if family != "xlnet":
        arguments = {"max_sequence_length": LENGTH, **arguments}
    if family in ("bert", "albert") and not any("pooler" in name for name in state):
        arguments = {**arguments, "pooler": False}
    backbone = BACKBONES[family](*SIZES, **arguments)
    if family == "albert":
        copy_albert(backbone, state)
    elif family == "distilbert":
        hf_weights.copy_distilbert(backbone, state)
    elif family == "xlnet":
        hf_weights.copy_xlnet(backbone, state)
    else:
        hf_weights.copy_backbone(backbone, state, family)
    return backbone


def copy_albert(backbone, state):
    if backbone.pooler is None:
        # The copier knows ALBERT with its pooler only.
        whole = models.AlbertBackbone(
            *SIZES, embedding_dim=12, max_sequence_length=LENGTH
        )
        blank = {
            "albert.pooler.weight": torch.zeros(WIDTH, WIDTH),
            "albert.pooler.bias": torch.zeros(WIDTH),
        }
        hf_weights.copy_albert(whole, {**state, **blank})
        models.copy_layers(whole, backbone)
        table = whole.embeddings.segment_table
        backbone.embeddings.segment_table.assign(table)
    else:
        hf_weights.copy_albert(backbone, state)


def make_batch(family, rows=3):
    """Rows of unequal length; XLNet's are padded on the left for `transformers`."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(6, LENGTH + 1, rows)
    lengths[0] = LENGTH
    ids = rng.integers(5, VOCABULARY, (rows, LENGTH)).astype("int32")
    place = np.arange(LENGTH)
    mask = place < lengths[:, None]
    if family == "xlnet":
        mask = mask[:, ::-1].copy()
    ids = np.where(mask, ids, 1 if family == "roberta" else 0)
    segments = (mask & (place > LENGTH // 2)).astype("int32")
    theirs = {
        "input_ids": torch.tensor(ids).long(),
        "attention_mask": torch.tensor(mask).long(),
    }
    if family not in ("roberta", "distilbert"):
        theirs["token_type_ids"] = torch.tensor(segments).long()
    ours = {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    return ours, theirs


def answer(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits


def copy_head(task, family, kind, state):
    if task.head.dense is not None:
        hf_weights.copy_dense(task.head.dense, state, DENSE[family][kind])
    logits = LOGITS.get((family, kind), "classifier")
    hf_weights.copy_dense(task.head.logits, state, logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_sequence_classification(family):
    theirs = make_theirs(family, "SequenceClassification")
    state = theirs.state_dict()
    task = tasks.TextClassifier(make_backbone(family, state), 3)
    copy_head(task, family, "SequenceClassification", state)
    ours, inputs = make_batch(family)
    expected = answer(theirs, inputs)
    assert expected.abs().max() > 0.1
    assert hf_weights.max_difference(task(ours), expected) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_token_classification(family):
    theirs = make_theirs(family, "TokenClassification")
    state = theirs.state_dict()
    task = tasks.TokenClassifier(make_backbone(family, state), 3)
    hf_weights.copy_dense(task.head.logits, state, "classifier")
    ours, inputs = make_batch(family)
    lengths = ours["padding_mask"].sum(1)
    first = LENGTH - lengths if family == "xlnet" else np.zeros_like(lengths)
    positions = first[:, None] + np.array([[0, 2, 3]])
    expected = answer(theirs, inputs)[np.arange(3)[:, None], positions]
    received = task({**ours, "word_positions": positions.astype("int32")})
    assert hf_weights.max_difference(received, expected) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_multiple_choice(family):
    theirs = make_theirs(family, "MultipleChoice")
    state = theirs.state_dict()
    task = tasks.MultipleChoice(make_backbone(family, state))
    copy_head(task, family, "MultipleChoice", state)
    ours, inputs = make_batch(family, rows=6)
    grouped = {name: x.reshape(2, 3, LENGTH) for name, x in ours.items()}
    inputs = {name: x.reshape(2, 3, LENGTH) for name, x in inputs.items()}
    expected = answer(theirs, inputs)
    assert expected.shape == (2, 3) and expected.std() > 0.01
    assert hf_weights.max_difference(task(grouped), expected) < 1e-4


def test_xlnet_reads_the_last_token_on_either_side_of_padding():
    theirs = make_theirs("xlnet", "SequenceClassification")
    backbone = make_backbone("xlnet", theirs.state_dict())
    task = tasks.TextClassifier(backbone, 3)
    left, _ = make_batch("xlnet")
    lengths = left["padding_mask"].sum(1)
    right = {
        name: np.stack([np.roll(row, n) for row, n in zip(x, lengths, strict=True)])
        for name, x in left.items()
    }
    np.testing.assert_allclose(
        ops.convert_to_numpy(task(left)), ops.convert_to_numpy(task(right)), atol=1e-5
    )
