"""ELECTRA and DistilBERT against `transformers` with the same random weights."""

import pathlib
import tempfile

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import DistilBertBackbone
from keras_bertfam.tasks import MaskedLM, ReplacedTokenDetection
from tests.from_transformers import convert, max_difference, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY_SIZE, LENGTH = 97, 9


def number(loss):
    return float(ops.convert_to_numpy(loss))


def make_batch():
    rng = np.random.default_rng(0)
    mask = np.arange(LENGTH) < np.array([LENGTH, 4, 7])[:, None]
    ids = np.where(mask, rng.integers(3, VOCABULARY_SIZE, mask.shape), 0)
    segments = (np.arange(LENGTH) > 3) & mask
    return {
        "token_ids": ids.astype("int32"),
        "padding_mask": mask,
        "segment_ids": segments.astype("int32"),
    }


def run(model, x, **kwargs):
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask"}
    names["segment_ids"] = "token_type_ids"
    inputs = {names[name]: torch.tensor(value).long() for name, value in x.items()}
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True, **kwargs)


def assert_same_states(backbone, x, expected):
    states = backbone(x, return_hidden_states=True)["hidden_states"]
    for state, target in zip(states, expected.hidden_states, strict=True):
        difference = max_difference(state, target, x["padding_mask"])
        assert difference < 1e-5


def electra(cls, hidden_size, heads):
    config = transformers.ElectraConfig(
        vocab_size=VOCABULARY_SIZE,
        embedding_size=24,
        hidden_size=hidden_size,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=4 * hidden_size,
        max_position_embeddings=LENGTH,
        attn_implementation="eager",
    )
    return randomize(cls(config), 0.1)


def convert_both(judges, generators):
    with tempfile.TemporaryDirectory() as folder:
        judges.save_pretrained(folder)
        generators.save_pretrained(pathlib.Path(folder, "generator"))
        return ReplacedTokenDetection.from_preset(folder, seed=0)


def test_electra_with_both_heads_and_its_loss():
    """Tables of their own, as two `transformers` models have."""
    generators = electra(transformers.ElectraForMaskedLM, 16, 2)
    judges = electra(transformers.ElectraForPreTraining, 32, 4)
    model = convert_both(judges, generators)
    backbone, generator = model.backbone, model.generator

    x = make_batch()
    positions = np.array([[1, 5], [2, 0], [3, 6]], "int32")
    weights = np.array([[1, 1], [1, 0], [1, 1]], "float32")
    ids = np.take_along_axis(x["token_ids"], positions, 1)
    masked = {**x, "token_ids": x["token_ids"].copy()}
    labels = np.full(ids.shape[:1] + (LENGTH,), -100)
    for row, slot in zip(*np.nonzero(weights), strict=True):
        masked["token_ids"][row, positions[row, slot]] = 2
        labels[row, positions[row, slot]] = ids[row, slot]
    expected = run(generators, masked, labels=torch.tensor(labels))
    assert_same_states(generator, masked, expected)
    slots = {"mask_positions": positions, "mask_ids": ids, "mask_weights": weights}
    outputs = model({**masked, **slots})
    picked = expected.logits[torch.arange(3)[:, None], torch.tensor(positions).long()]
    assert max_difference(outputs["generator"], picked) < 1e-4

    seen = {**x, "token_ids": ops.convert_to_numpy(outputs["token_ids"])}
    replaced = seen["token_ids"] != x["token_ids"]
    judged = run(judges, seen, labels=torch.tensor(replaced).long())
    assert_same_states(backbone, seen, judged)
    logits = outputs["discriminator"]
    real = x["padding_mask"]
    assert max_difference(logits, judged.logits, real) < 1e-4
    loss = number(model.compute_loss({**masked, **slots}, y_pred=outputs))
    assert loss == pytest.approx(
        float(expected.loss) + 50 * float(judged.loss), abs=1e-4, rel=1e-5
    )


def test_distilbert():
    config = transformers.DistilBertConfig(
        vocab_size=VOCABULARY_SIZE,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=LENGTH,
        attn_implementation="eager",
    )
    theirs = randomize(transformers.DistilBertForMaskedLM(config), 0.1)
    model = convert(MaskedLM, theirs)
    assert type(model.backbone) is DistilBertBackbone
    x = make_batch()
    del x["segment_ids"]
    expected = run(theirs, x)
    assert_same_states(model.backbone, x, expected)
    real = x["padding_mask"]
    assert max_difference(model(x), expected.logits, real) < 1e-4
