"""Pairs of texts, in the forms in which users give them."""

from typing import Any

import tensorflow as tf

from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.arrays import as_rows, as_strings
from keras_bertfam.layers.data.labels import finite_numbers, one_each
from keras_bertfam.types import TFDataset, TFTensor


def as_pairs(x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, TFTensor]:
    """Convert pairs of texts, in one of the forms that a call takes, to tensors.

    Args:
        x: see `TextToTextPreprocessor`.
        y: see `TextToTextPreprocessor`.
        sample_weight: numbers, one for each pair, or `None`.

    Returns:
        A dict of `encoder_text` and `decoder_text`, string tensors, and
        `sample_weight`, float32, if given.

    Raises:
        ValueError: for what isn't pairs of strings.
    """
    if isinstance(x, dict) and y is None:
        if sample_weight is None:
            sample_weight = x.get("sample_weight")
        y, x = x.get("decoder_text"), x.get("encoder_text")
    elif isinstance(x, tuple) and len(x) == 2 and y is None:
        x, y = x
    if x is None or y is None:
        raise ValueError(
            "`x` and `y` must be inputs and targets, or `x` a tuple of both or a dict "
            "of `encoder_text` and `decoder_text`. Received: "
            f"x={type(x).__name__}, y={type(y).__name__}."
        )
    texts = {"encoder_text": as_strings(x), "decoder_text": as_strings(y, name="y")}
    if sample_weight is not None:
        weight = finite_numbers(tf.convert_to_tensor(sample_weight), "sample_weight")
        if texts["encoder_text"].shape.rank == 1:
            weight = one_each(weight, "sample_weight")
        texts["sample_weight"] = weight
    shapes = [value.shape for value in texts.values()]
    if not all(shapes[0].is_compatible_with(shape) for shape in shapes):
        raise ValueError(
            "`x`, `y` and `sample_weight` must be of equally many pairs. Received: "
            f"shapes {', '.join(map(str, shapes))}."
        )
    return texts


@as_written
def pairs_of(data: Any) -> TFDataset:
    """Make an unbatched dataset of what `as_pairs` gives.

    Args:
        data: see `TextToTextPreprocessor.dataset`.

    Raises:
        ValueError: for what isn't pairs of texts, or none.
    """
    if not isinstance(data, tf.data.Dataset):
        if not isinstance(data, (tuple, dict)):
            raise ValueError(
                "`data` must be a `tf.data.Dataset`, or a tuple or dict of inputs "
                f"and targets. Received: {type(data).__name__}."
            )
        return as_rows(as_pairs(*data) if isinstance(data, tuple) else as_pairs(data))
    if data.cardinality() == 0:
        raise ValueError("`data` must have at least one pair. Received: none.")
    spec = data.element_spec
    if isinstance(spec, tuple) and isinstance(spec[0], (dict, tuple)):  # and weights
        pairs = data.map(lambda x, weight: as_pairs(x, None, weight))
    else:
        pairs = data.map(as_pairs)
    shape = pairs.element_spec["encoder_text"].shape
    if shape.rank != 0:
        raise ValueError(
            "`data` must be a dataset of single pairs, not in batches; `.unbatch()` "
            f"takes them apart. Received: texts of shape {shape}."
        )
    return pairs
