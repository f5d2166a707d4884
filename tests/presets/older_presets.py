"""Presets as an earlier version wrote them: their JSON files, and where weights stand.

Usage: python -m tests.presets.older_presets FOLDER

FOLDER has presets that `tests.golden_outputs` wrote. Values of weights are left out:
`made_again` gives each weight a value of its own. The result is beside this file.
"""

import gzip
import json
import pathlib
import sys
import zlib

import h5py
import numpy as np

WRITTEN = pathlib.Path(__file__).with_name("presets_0_1.json.gz")


def described(folder):
    """Describe a preset: texts by file, and shapes by file and weight."""
    texts, shapes = {}, {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".h5":
            shapes[name] = {place: [*x.shape] for place, x in weights_of(path).items()}
        elif path.is_file() and path.suffix in (".json", ".txt"):
            texts[name] = path.read_text()
    return {"texts": texts, "weights": shapes}


def weights_of(path):
    """Read all weights of a file, by their place in it."""
    found = {}

    def note(place, item):
        if isinstance(item, h5py.Dataset):
            found[place] = item[()]

    with h5py.File(path) as file:
        file.visititems(note)
    return found


def made_again(preset, folder):
    """Write a preset that is described into a folder, with a value for each weight.

    Returns:
        Dict from files to dicts of arrays.
    """
    for name, text in preset["texts"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    values = {}
    for name, shapes in preset["weights"].items():
        with h5py.File(folder / name, "w") as file:
            values[name] = {}
            for place, shape in shapes.items():
                value = np.full(shape, zlib.crc32(place.encode()) % 97 / 97, "float32")
                file[place] = values[name][place] = value
    return values


if __name__ == "__main__":
    found = {
        path.name: described(path)
        for path in sorted(pathlib.Path(sys.argv[1]).iterdir())
        if path.is_dir()
    }
    WRITTEN.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
