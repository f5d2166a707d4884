"""AllenNLP's files by strangers: nothing outside is read, nothing larger is made."""

import json

import h5py
import numpy as np
import pytest

from keras_bertfam.models import ElmoBackbone
from keras_bertfam.presets import CheckpointError
from keras_bertfam.presets.checkpoints import allennlp
from tests.huge_numbers import check_numbers

OPTIONS = {
    "lstm": {"cell_clip": 3, "use_skip_connections": True, "n_layers": 2}
    | {"proj_clip": 3, "projection_dim": 8, "dim": 6},
    "char_cnn": {"embedding": {"dim": 4}, "filters": [[1, 4], [2, 3]]}
    | {"n_highway": 1, "n_characters": 262, "max_characters_per_token": 8}
    | {"activation": "relu"},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    arguments = allennlp.elmo_arguments(tmp_path / "options.json")
    shapes = {name: shape for _, name, _, shape in allennlp._names(arguments)}
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for number, (name, shape) in enumerate(shapes.items()):
            file[name] = np.random.default_rng(number).normal(size=shape).astype("f4")
    return tmp_path


def load(folder):
    files = (f"{folder}/{name}" for name in ("options.json", "weights.hdf5"))
    return ElmoBackbone.from_allennlp(*files)


def test_numbers_of_options(folder):
    assert load(folder).hidden_dim == 16
    for values, accepted in (
        ([10**6, 10**9, 10**30], {"cell_clip", "proj_clip"}),
        ([2.5], {"cell_clip", "proj_clip"}),
        ([0], {"n_highway"}),
        ([-1, True, "2", [2], {}], set()),
    ):
        check_numbers(folder, "options.json", load, values, accepted)


def external_link(file):
    del file["CNN_proj/b_proj"]
    file["CNN_proj/b_proj"] = h5py.ExternalLink("other.hdf5", "CNN_proj/b_proj")


def external_storage(file):
    del file["CNN_proj/b_proj"]
    place = [("/etc/passwd", 0, 32)]
    file.create_dataset("CNN_proj/b_proj", (8,), "f4", external=place)


def virtual(file):
    layout = h5py.VirtualLayout((8,), "f4")
    layout[:] = h5py.VirtualSource("other.hdf5", "x", (8,))
    del file["CNN_proj/b_proj"]
    file.create_virtual_dataset("CNN_proj/b_proj", layout)


def declared(file):
    file.create_dataset("more", (10**6, 10**5), "f4", chunks=(1, 10**5))


def compressed(file):
    file.create_dataset("more", data=np.zeros(10**6, "f4"), compression="gzip")


def objects(file):
    file.create_dataset("more", (2,), h5py.string_dtype())


def integers(file):
    del file["CNN_proj/b_proj"]
    file["CNN_proj/b_proj"] = np.zeros(8, "i4")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (external_link, "must have no links"),
        (external_storage, "must hold its own data"),
        (virtual, "must hold its own data"),
        (declared, "are stored"),
        (compressed, "are stored"),
        (objects, "must hold numbers"),
        (integers, "must be of floats"),
    ],
)
def test_weights(change, message, folder):
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        change(file)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_weights_that_are_not_finite(folder):
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        file["CNN_proj/b_proj"][0] = np.nan
        file["more"] = np.zeros(3)
    with (
        pytest.warns(UserWarning, match="weights.hdf5' have values that are NaN"),
        pytest.warns(UserWarning, match="nothing here takes.*: /more"),
    ):
        load(folder)


@pytest.mark.filterwarnings("ignore:.*weights")
@pytest.mark.parametrize("damage", range(0, 3000, 200))
def test_damaged_weights(damage, folder):
    content = bytearray((folder / "weights.hdf5").read_bytes())
    content[damage : damage + 8] = b"\xff" * 8
    (folder / "weights.hdf5").write_bytes(content)
    try:
        load(folder)
    except CheckpointError:
        pass
