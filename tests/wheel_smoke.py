"""Two training steps with an installed wheel, away from the checkout.

Run by `make test-wheel` with the interpreter of a fresh environment.
"""

import pathlib
import sys

import numpy as np

import keras_bertfam

package = pathlib.Path(keras_bertfam.__file__).parent
assert pathlib.Path(sys.prefix) in package.parents, f"imported from {package}"
assert (package / "py.typed").is_file()

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
print(f"keras_bertfam {keras_bertfam.__version__} trained two steps from {package}")
