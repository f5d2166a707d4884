"""Preset directories that declare more than they store."""

import os

import h5py
import pytest

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import XLNetBackbone
from keras_bertfam.tasks import (
    PermutationLM,
    SpanBoundaryLM,
    TextClassifier,
    TextClassifierPreprocessor,
)
from tests.tiny_preset import VOCABULARY, edit, make, refused


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("vocabulary_size", 10**12),
        ("vocabulary_size", -1),
        ("vocabulary_size", 1e9),
        ("hidden_dim", 10**9),
        ("intermediate_dim", 10**9),
        ("num_layers", 10**9),
        ("max_sequence_length", 10**9),
        ("head_dim", 10**9),
        ("num_segments", 10**9),
    ],
)
def test_sizes_are_checked_before_anything_is_allocated(argument, value, preset):
    edit(preset / "config.json", lambda c: c["config"].update({argument: value}))
    refused(preset, f"doesn't fit its weights.*{argument}")


def test_weights_that_declare_more_than_they_store(preset):
    with h5py.File(preset / "model.weights.h5", "r+") as file:
        file.create_dataset("x", (10**6, 10**6), "f4", chunks=(1, 10**6))
    refused(preset, "are stored")


@pytest.fixture
def task_preset(request, tmp_path):
    """A preset of a task with sizes of its own."""
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16)
    backbone = make().backbone
    if request.param is PermutationLM:
        backbone = XLNetBackbone(vocabulary_size=11, **sizes)
    arguments = {
        TextClassifier: dict(num_classes=3),
        SpanBoundaryLM: {},
        PermutationLM: dict(memory_length=4, reuse_length=2, batch_size=2),
    }[request.param]
    request.param(backbone, **arguments).save_to_preset(str(tmp_path / "task"))
    return request.param, tmp_path / "task"


DECLARED = [
    (TextClassifier, {"num_classes": 300_000}),
    (TextClassifier, {"num_classes": 3.0}),
    (TextClassifier, {"num_classes": None, "label_names": list(map(str, range(9)))}),
    (SpanBoundaryLM, {"max_span_length": 10**9}),
    (SpanBoundaryLM, {"position_dim": 10**9}),
    (PermutationLM, {"memory_length": 10**9}),
    (PermutationLM, {"batch_size": 10**9}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task_preset", "changes"), DECLARED, indirect=["task_preset"])
def test_sizes_of_a_task_are_checked_before_it_is_built(
    changes, task_preset, monkeypatch
):
    cls, path = task_preset
    cls.from_preset(str(path))
    edit(path / "task.json", lambda c: c["config"].update(changes))
    monkeypatch.setattr(cls, "__init__", None)
    refused(path, "doesn't fit its weights|far more than is stored", cls)


@pytest.mark.parametrize("task_preset", [TextClassifier], indirect=True)
def test_sizes_of_a_task_that_stores_nothing(task_preset, monkeypatch):
    cls, path = task_preset
    os.remove(path / "task.weights.h5")
    cls.from_preset(str(path))
    edit(path / "task.json", lambda c: c["config"].update(num_classes=300_000))
    refused(path, "far more than is stored", cls)
    os.remove(path / "task.json")
    tokenizer = BertTokenizer(VOCABULARY)
    preprocessor = TextClassifierPreprocessor(tokenizer, 8, num_classes=300_000)
    preprocessor.save_to_preset(str(path))
    refused(path, "far more than is stored", cls)


@pytest.mark.parametrize("task_preset", [TextClassifier], indirect=True)
def test_a_backbone_of_other_sizes_in_a_task(task_preset):
    cls, path = task_preset
    size = {"hidden_dim": 1}
    edit(path / "task.json", lambda c: c["config"]["backbone"]["config"].update(size))
    refused(path, "hidden_dim=8 of that beside it. Received: 1", cls)
