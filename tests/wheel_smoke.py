"""An installed wheel, away from the checkout: its files, its dependencies, two steps.

Usage: python wheel_smoke.py CHECKOUT

Run by `make test-wheel` with the interpreter of an environment that holds the wheel
alone and borrows other packages. Those that the wheel doesn't declare are hidden, as
they would be missing in a fresh environment.
"""

import importlib
import pathlib
import pkgutil
import sys
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def required(name):
    """The distributions that installing `name`, without extras, would install."""
    found, todo = set(), [(name, "")]
    while todo:
        current, extra = todo.pop()
        if (current, extra) in found:
            continue
        found.add((current, extra))
        for line in metadata.requires(current) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                each = canonicalize_name(needed.name)
                todo += [(each, more) for more in ("", *needed.extras)]
    return {current for current, _ in found}


class Hiding:
    """A finder of modules that doesn't find those of some top-level names."""

    def __init__(self, finder, hidden):
        self.finder, self.hidden = finder, hidden

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.hidden:
            return None
        return self.finder.find_spec(name, path, target)


def files(folder):
    """What a package's folder must hold, by paths in it."""
    patterns = ("*.py", "*.json", "*.css", "*.js", "py.typed")
    found = {path for pattern in patterns for path in folder.rglob(pattern)}
    return {path.relative_to(folder).as_posix() for path in found}


own = required("keras-bertfam")
providers = metadata.packages_distributions().items()
hidden = {
    module
    for module, names in providers
    if not own & {canonicalize_name(name) for name in names}
}
assert {"pytest", "ruff"} <= hidden and not {"numpy", "tensorflow"} & hidden, hidden
sys.meta_path[:] = [Hiding(finder, hidden) for finder in sys.meta_path]

import numpy as np  # noqa: E402

import keras_bertfam  # noqa: E402

package = pathlib.Path(keras_bertfam.__file__).parent
assert pathlib.Path(sys.prefix) in package.parents, f"imported from {package}"
missing = files(pathlib.Path(sys.argv[1], package.name)) - files(package)
assert not missing, f"the wheel lacks {sorted(missing)}"
# Those that are imported where they are asked for, with an extra's package.
of_extras = {"keras_bertfam.layers.data.prepared.grain_batches": "grain"}
for module in pkgutil.walk_packages(keras_bertfam.__path__, "keras_bertfam."):
    if module.name in of_extras:
        assert of_extras[module.name] in hidden, hidden
    elif not module.name.endswith("__main__"):
        importlib.import_module(module.name)

backbone = keras_bertfam.models.BertBackbone(
    vocabulary_size=100,
    num_layers=2,
    num_heads=2,
    hidden_dim=16,
    intermediate_dim=32,
    max_sequence_length=16,
)
model = keras_bertfam.tasks.MaskedLM(backbone)
model.compile()

rng = np.random.default_rng(0)
x = {
    "token_ids": rng.integers(5, 100, (8, 16), dtype="int32"),
    "padding_mask": np.ones((8, 16), dtype="bool"),
    "mask_positions": np.tile(np.arange(1, 5, dtype="int32"), (8, 1)),
}
y = rng.integers(5, 100, (8, 4), dtype="int32")
weights = np.ones((8, 4), "float32")
history = model.fit(x, y, batch_size=4, sample_weight=weights, verbose=0)

assert np.isfinite(history.history["loss"][0])
assert int(model.optimizer.iterations) == 2
print(
    f"keras_bertfam {keras_bertfam.__version__} trained two steps from {package}, "
    f"with {len(own) - 1} packages"
)
