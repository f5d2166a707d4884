"""Fine-tuning heads against `transformers` with the same random weights."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY, LAYERS, HEADS, WIDTH, INNER, LENGTH = 97, 2, 2, 16, 24, 20
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
# Prefix of the classes, and arguments of the config.
FAMILIES = {
    "bert": ("Bert", {"hidden_act": "gelu_pytorch_tanh"}),
    "albert": ("Albert", {"embedding_size": 12}),
    "roberta": (
        "Roberta",
        {"max_position_embeddings": LENGTH + 2, "type_vocab_size": 1},
    ),
    "electra": ("Electra", {"embedding_size": 12, "hidden_act": "gelu_pytorch_tanh"}),
    "distilbert": ("DistilBert", {}),
    "xlnet": ("XLNet", {}),
}


def make_theirs(family, kind):
    prefix, arguments = FAMILIES[family]
    config_class = getattr(transformers, f"{prefix}Config")
    settings = {**COMMON, **OTHER_NAMES.get(family, {}), **arguments}
    if family == "xlnet":
        del settings["max_position_embeddings"]
    torch.manual_seed(1)
    return randomize(
        getattr(transformers, f"{prefix}For{kind}")(config_class(**settings))
    )


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


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_sequence_classification(family):
    theirs = make_theirs(family, "SequenceClassification")
    task = convert(tasks.TextClassifier, theirs)
    ours, inputs = make_batch(family)
    expected = answer(theirs, inputs)
    assert expected.abs().max() > 0.1
    assert max_difference(task(ours), expected) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_token_classification(family):
    theirs = make_theirs(family, "TokenClassification")
    task = convert(tasks.TokenClassifier, theirs)
    ours, inputs = make_batch(family)
    lengths = ours["padding_mask"].sum(1)
    first = LENGTH - lengths if family == "xlnet" else np.zeros_like(lengths)
    positions = first[:, None] + np.array([[0, 2, 3]])
    expected = answer(theirs, inputs)[np.arange(3)[:, None], positions]
    received = task({**ours, "word_positions": positions.astype("int32")})
    assert max_difference(received, expected) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_multiple_choice(family):
    theirs = make_theirs(family, "MultipleChoice")
    task = convert(tasks.MultipleChoice, theirs)
    ours, inputs = make_batch(family, rows=6)
    grouped = {name: x.reshape(2, 3, LENGTH) for name, x in ours.items()}
    inputs = {name: x.reshape(2, 3, LENGTH) for name, x in inputs.items()}
    expected = answer(theirs, inputs)
    assert expected.shape == (2, 3) and expected.std() > 0.01
    assert max_difference(task(grouped), expected) < 1e-4


def test_xlnet_reads_the_last_token_on_either_side_of_padding():
    theirs = make_theirs("xlnet", "SequenceClassification")
    task = convert(tasks.TextClassifier, theirs)
    left, _ = make_batch("xlnet")
    lengths = left["padding_mask"].sum(1)
    right = {
        name: np.stack([np.roll(row, n) for row, n in zip(x, lengths, strict=True)])
        for name, x in left.items()
    }
    np.testing.assert_allclose(
        ops.convert_to_numpy(task(left)), ops.convert_to_numpy(task(right)), atol=1e-5
    )
