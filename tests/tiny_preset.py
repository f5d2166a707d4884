"""A preset to be damaged, and what is put in its files."""

import json

import pytest

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.tasks import MaskedLM, MaskedLMPreprocessor

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
LAMBDA = {
    "module": "keras.layers",
    "class_name": "Lambda",
    "config": {"function": "x"},
    "registered_name": None,
}
ELSEWHERE = {
    "module": "subprocess",
    "class_name": "Popen",
    "config": {"args": ["touch", "ran"]},
    "registered_name": None,
}
SAVED_MODEL = {**LAMBDA, "class_name": "TFSMLayer", "config": {"filepath": "/"}}
BYTECODE = {"class_name": "__lambda__", "config": {"value": "4wAAAA=="}}
FILES = ["config.json", "preprocessor.json", "tokenizer.json", "task.json"]
FILES_READ = [*FILES, "model.weights.h5", "task.weights.h5"]


def make(num_layers=1):
    sizes = dict(num_heads=2, hidden_dim=8, intermediate_dim=16, max_sequence_length=8)
    backbone = BertBackbone(len(VOCABULARY), num_layers, **sizes)
    return MaskedLM(backbone, MaskedLMPreprocessor(BertTokenizer(VOCABULARY), 8))


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def refused(preset, message, cls=MaskedLM):
    with pytest.raises(CheckpointError, match=message):
        cls.from_preset(str(preset))
