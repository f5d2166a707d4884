"""Checkpoints in several files, and links between them."""

import os
import pathlib

import pytest

from keras_bertfam.presets import CheckpointError
from tests.tiny_checkpoint import INDEX, load, sharded
from tests.written_files import write


def test_shards_that_lead_elsewhere(whole, tmp_path):
    files = sharded(whole)
    load(write(tmp_path / "model", files))
    (tmp_path / "secret.safetensors").write_bytes(files["b.safetensors"])
    names = files[INDEX]["weight_map"]
    for name in (
        "../secret.safetensors",
        str(tmp_path / "secret.safetensors"),
        "..",
        "",
    ):
        changed = {k: name if v[0] == "b" else v for k, v in names.items()}
        write(tmp_path / "model", {INDEX: {"weight_map": changed}})
        with pytest.raises(CheckpointError, match="this folder|not a file|is a link"):
            load(tmp_path / "model")
    write(tmp_path / "model", files)
    (tmp_path / "model" / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"b\.safetensors' is not a file"):
        load(tmp_path / "model")
    os.symlink("../secret.safetensors", tmp_path / "model" / "b.safetensors")
    with pytest.raises(CheckpointError, match="is a link to another folder"):
        load(tmp_path / "model")


def test_links_within_a_cache_of_the_hub(whole, tmp_path):
    blobs = pathlib.Path(write(tmp_path / "blobs", whole))
    folder = tmp_path / "snapshots" / "1"
    folder.mkdir(parents=True)
    for place in (folder, folder / "1_Part"):
        place.mkdir(exist_ok=True)
        for name in whole:
            (place / name).symlink_to(blobs / name)
        load(place)


def test_an_index_that_lies(whole, tmp_path):
    files = sharded(whole)
    names = dict(files[INDEX]["weight_map"])
    first = next(iter(names))
    names[first] = "b.safetensors"
    for content, message in (
        ({"weight_map": names}, "this file has no such tensor"),
        ({"weight_map": {first: 3}}, "must map names to files"),
        ({"weight_map": []}, "must map names to files"),
        ({}, "must map names to files"),
        (b"nothing", "can't be read"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load(write(tmp_path, {**files, INDEX: content}))
