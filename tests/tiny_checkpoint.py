"""A checkpoint of transformers to be damaged, as a dict of its files."""

import json

import pytest

from keras_bertfam.models import BertBackbone

safetensors_numpy = pytest.importorskip("safetensors.numpy")
SIZES = dict(
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=8,
    vocabulary_size=11,
    max_sequence_length=6,
)
WEIGHTS, CONFIG = "model.safetensors", "config.json"
INDEX = f"{WEIGHTS}.index.json"


def load(folder, **kwargs):
    return BertBackbone.from_preset(str(folder), **kwargs)


def tensors_of(files):
    return safetensors_numpy.load(files[WEIGHTS])


def with_tensors(files, change):
    tensors = tensors_of(files)
    change(tensors)
    return {**files, WEIGHTS: safetensors_numpy.save(tensors)}


def with_config(files, **changes):
    return {**files, CONFIG: {**json.loads(files[CONFIG]), **changes}}


def sharded(files, shards=("a.safetensors", "b.safetensors")):
    tensors = tensors_of(files)
    names = {name: shards[i % 2] for i, name in enumerate(tensors)}
    parts = {
        shard: safetensors_numpy.save(
            {name: tensor for name, tensor in tensors.items() if names[name] == shard}
        )
        for shard in shards
    }
    return {CONFIG: files[CONFIG], INDEX: {"weight_map": names}, **parts}
