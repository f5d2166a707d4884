"""Sequences that share rows are trained on as the same ones, one to a row."""

import keras
import numpy as np
import pytest

from keras_bertfam.models import EncoderBackbone, XLNetBackbone
from keras_bertfam.tasks import (
    Distiller,
    MaskedLM,
    MaskedLMSentencePair,
    ReplacedTokenDetection,
    SpanBoundaryLM,
)
from tests.compiled import compiled
from tests.gradients import loss_and_gradients

CLS, SEP, MASK, VOCABULARY = 2, 3, 4, 40
LENGTHS = [[9, 6, 7], [12, 5, 5], [8]]
LENGTH, ALONE, MOST = 24, 12, 3


def backbone(**kwargs):
    """As ALBERT's: shared layers and factorised tables."""
    return EncoderBackbone(
        VOCABULARY,
        **{
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 24,
            "embedding_dim": 8,
            "max_sequence_length": LENGTH,
            "num_segments": 2,
            "share": "all",
            "dropout": 0.0,
            "pooler": True,
            **kwargs,
        },
    )


def sequences():
    """Each one's row, tokens, segments, masks (two neighbours) and label."""
    rng = np.random.default_rng(0)
    for row, lengths in enumerate(LENGTHS):
        for length in lengths:
            ids = np.array([CLS, *rng.integers(5, VOCABULARY, length - 2), SEP])
            first = rng.integers(1, length - 2)
            places = np.array([first, first + 1])
            originals = ids[places]
            ids[places] = MASK
            segments = (np.arange(length) > length // 2).astype("int32")
            yield row, ids, segments, places, originals, int(rng.integers(2))


def batch(packed):
    """All that objectives take: inputs, targets and weights, arrays by name."""
    rows, length = (len(LENGTHS), LENGTH) if packed else (sum(map(len, LENGTHS)), ALONE)
    most = MOST if packed else 1
    data = {
        name: np.zeros((rows, length), "int32")
        for name in ("token_ids", "segment_ids", "sequence_ids", "padding_mask")
    }
    for name in ("mask_positions", "mask_ids", "mask_weights"):
        data[name] = np.zeros((rows, 2 * most), "int32")
    data["span_bounds"] = np.zeros((rows, 2 * most, 2), "int32")
    for name in ("sequence_starts", "label", "label_weight"):
        data[name] = np.zeros((rows, most), "int32")
    filled, count = [0] * rows, [0] * rows
    for number, (row, ids, segments, places, originals, label) in enumerate(
        sequences()
    ):
        row = row if packed else number
        at, k = filled[row], count[row]
        inside, slots = slice(at, at + len(ids)), slice(2 * k, 2 * k + 2)
        data["token_ids"][row, inside] = ids
        data["segment_ids"][row, inside] = segments
        data["sequence_ids"][row, inside] = k + 1
        data["padding_mask"][row, inside] = 1
        data["mask_positions"][row, slots] = at + places
        data["mask_ids"][row, slots] = originals
        data["mask_weights"][row, slots] = 1
        data["span_bounds"][row, slots] = at + places
        data["sequence_starts"][row, k] = at
        data["label"][row, k], data["label_weight"][row, k] = label, number != 1
        filled[row], count[row] = at + len(ids), k + 1
    data["mask_weights"] = data["mask_weights"].astype("float32")
    data["label_weight"] = data["label_weight"].astype("float32")
    if not packed:
        del data["sequence_ids"], data["sequence_starts"]
        data["label"], data["label_weight"] = (
            data[name][:, 0] for name in ("label", "label_weight")
        )
    return data


def arguments(objective, data):
    """`x`, `y` and `sample_weight` of an objective."""
    names = ["token_ids", "segment_ids", "sequence_ids", "padding_mask"]
    names += ["mask_positions"]
    masked = data["mask_ids"], data["mask_weights"]
    y, weights = masked
    if objective in ("nsp", "sop"):
        names += ["sequence_starts"]
        y = {"masked_lm": y, "sentence": data["label"]}
        weights = {"masked_lm": weights, "sentence": data["label_weight"]}
    elif objective == "sbo":
        names += ["span_bounds"]
        parts = ("masked_lm", "span_boundary")
        y, weights = (dict.fromkeys(parts, value) for value in masked)
    elif objective.startswith("rtd"):
        names += ["mask_ids", "mask_weights"]
        y = weights = None
    return {name: data[name] for name in names if name in data}, y, weights


def make(objective):
    keras.utils.set_random_seed(1)
    if objective == "mlm":
        return MaskedLM(backbone())
    if objective in ("nsp", "sop"):
        # One with a pooler of its own, one with the backbone's.
        encoder = backbone(pooler=objective == "nsp")
        return MaskedLMSentencePair(encoder, sentence_objective=objective)
    if objective == "sbo":
        return SpanBoundaryLM(backbone(), max_span_length=3, position_dim=4)
    if objective.startswith("rtd"):
        # So cold that the samples are those of the greatest logits.
        variant = {"variant": objective[4:]} if objective[4:] else {}
        return ReplacedTokenDetection(
            backbone(pooler=False), generator_size=0.5, temperature=1e-6, **variant
        )
    student = MaskedLM(backbone(pooler=False, num_layers=1))
    return Distiller(student, MaskedLM(backbone(pooler=False)))


OBJECTIVES = ["mlm", "sop", "sbo", "rtd", "distillation"]
SLOW = ["nsp", "rtd_electra_15", "rtd_replace_mlm", "rtd_all_tokens_mlm"]


@pytest.mark.parametrize(
    "objective",
    [
        *OBJECTIVES,
        *(
            pytest.param(
                name, marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
            )
            for name in SLOW
        ),
    ],
)
def test_loss_and_gradient_are_those_of_single_rows(objective):
    task = make(objective)
    for variable in task.trainable_variables:  # biases of 0 would hide a mistake
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1, seed=2))
    together, alone = (arguments(objective, batch(packed)) for packed in (True, False))
    loss, gradients = loss_and_gradients(task, *together)
    expected, single = loss_and_gradients(task, *alone)
    assert abs(loss - expected) < 1e-5 * max(1, abs(expected)) and loss > 0.1
    for a, b, variable in zip(gradients, single, task.trainable_variables, strict=True):
        scale = max(1, abs(b).max())
        np.testing.assert_allclose(
            a / scale, b / scale, atol=1e-5, err_msg=variable.path
        )
    assert sum(abs(g).max() > 1e-4 for g in gradients) > 10


@pytest.mark.any_backend
def test_the_loss_is_another_without_the_numbers_of_sequences():
    task, (x, *others) = make("sop"), arguments("sop", batch(True))
    loss, _ = loss_and_gradients(task, x, *others)
    del x["sequence_ids"]
    assert abs(loss_and_gradients(task, x, *others)[0] - loss) > 1e-4


def test_labels_of_pairs_at_all_positions():
    """Without masks every position is predicted, and the labels are the same."""
    task = make("sop")
    x, _, _ = arguments("sop", batch(True))
    call = compiled(task)
    some = call(x)["sentence"]
    assert some.shape == (3, MOST, 2)
    del x["mask_positions"]
    outputs = call(x)
    assert outputs["masked_lm"].shape == (3, LENGTH, VOCABULARY)
    np.testing.assert_allclose(
        *map(keras.ops.convert_to_numpy, (outputs["sentence"], some)), atol=1e-5
    )


def test_relative_attention_has_no_packed_rows():
    task = MaskedLM(XLNetBackbone(VOCABULARY, 1, 2, 16, 24))
    x, _, _ = arguments("mlm", batch(True))
    with pytest.raises(ValueError, match="Received: .*'sequence_ids'"):
        task(x)
