"""Models of every objective, and batches whose halves differ in all that they count."""

import keras
import numpy as np

from tests import tiny_distiller, tiny_electra, tiny_span_boundary
from tests import tiny_masked_lm as tiny
from tests.objective_worker import OBJECTIVES

MODELS = {
    **{
        name: (module.make_model, module.stream)
        for name, module in OBJECTIVES.items()
        if name != "dual_encoder"  # its negatives are those of a batch
    },
    "masked_lm": (tiny.make_model, tiny.stream),
    "distillation_of_masks": (
        lambda: tiny_distiller.make_model(cosine_weight=0.0, soft_targets="masked"),
        tiny.stream,
    ),
    "span_boundary_of_spans": (
        lambda: tiny_span_boundary.make_model(reduction="separate"),
        tiny_span_boundary.stream,
    ),
    # Without draws, which are a batch's own.
    "replaced_tokens": (
        lambda: tiny_electra.make_model(temperature=1e-6),
        tiny_electra.stream,
    ),
}


def uneven_batch(name):
    """The first batch of a model's data, of whose second half little is counted.

    How little differs between the parts of a loss.
    """
    make_model, stream = MODELS[name]
    batch = next(stream(make_model()).as_numpy_iterator())
    x, y, weights = keras.tree.map_structure(
        np.array, keras.utils.unpack_x_y_sample_weight(batch), none_is_leaf=False
    )
    half = len(x["token_ids"] if "token_ids" in x else keras.tree.flatten(x)[0]) // 2
    x.pop("continues", None)  # memory of the batch before isn't that of one large one
    counted = [leaf for leaf in keras.tree.flatten(weights) if leaf is not None]
    for values in counted + [x[name] for name in ("mask_weights",) if name in x]:
        second = values[half:].reshape(-1)  # a view
        second[np.flatnonzero(second)[1:]] = 0
        assert 0 < second.sum() < values[:half].sum()
    if "padding_mask" in x:
        x["padding_mask"][half:, 8:] = 0
    return keras.utils.pack_x_y_sample_weight(x, y, weights)
