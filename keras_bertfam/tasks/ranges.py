"""Which values a task can compute with: what is known of ids, positions and labels."""

from typing import Any

import keras

from keras_bertfam.layers.data.value_ranges import FINITE, Range, check_ranges
from keras_bertfam.tasks.inputs import is_preprocessed
from keras_bertfam.tasks.losses import MaskedCrossentropy
from keras_bertfam.types import Model

_PLACE = Range("length", axis=-1)
# How names of inputs begin where there are two texts.
_SIDES = ("", "encoder_", "decoder_")
_TOWERS = ("query_", "passage_")
_LABELS = {
    "token": lambda task: _token(task.backbone),
    "class": lambda task: Range("num_classes", task.num_classes),
    "pair": lambda task: Range("classes", 2),
    "choice": lambda task: Range("choices", axis=1),
    "place": lambda task: _PLACE,
}


def checked(
    task: Model, x: Any, y: Any = None, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Check, by `check_ranges`, that a task can compute with what it is given.

    Text, which is still to be preprocessed, is returned as it is.
    """
    if not is_preprocessed(x):
        return x, y, sample_weight
    return check_ranges(ranges_of(task), x, y, sample_weight)


def check_given(task: Model, x: Any, y: Any = None, labelled: bool = True) -> None:
    """Raise a `ValueError` without data, or the labels that a task needs, or targets.

    Args:
        task: a `PretrainingTask`.
        x: what `fit()` is given; and `y`.
        labelled: bool. Whether labels are needed.
    """
    if x is None:
        raise ValueError("`x` must be arrays, text or a dataset. Received: None.")
    if hasattr(x, "element_spec"):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(x.element_spec)
        if getattr(x, "dtype", None) == "string" and x.shape.rank == 0:
            raise ValueError(
                "`x` must be a dataset of batches. Received: one of single texts. "
                "Call `preprocessor.dataset(x, batch_size=...)`, which fills rows with "
                "documents, or `x.batch(...)` for a row a text."
            )
    writes = hasattr(task, "generate") and hasattr(task.backbone, "decoder")
    if not labelled and writes and y is None and _is_text(x):
        raise ValueError(
            "`x` must be rows of both texts, as the preprocessor makes them: "
            f"`predict` of a {type(task).__name__} tells which tokens of a target are "
            "likely. Call `generate(texts)` for what it writes. Received: texts only."
        )
    if labelled and is_preprocessed(x) and y is None and task.label_kind is not None:
        raise ValueError("`y` must be the labels of `x`. Received: None.")


def _is_text(x):
    """Tell whether it is a string, strings, or what a dataset yields of them."""
    if isinstance(x, str):
        return True
    if isinstance(x, list):
        return bool(x) and isinstance(x[0], str)
    dtype = getattr(x, "dtype", None)
    return dtype == "string" or getattr(dtype, "kind", "") in {"U", "S", "O"}


def ranges_of(task: Model) -> dict[str, Any]:
    """Give the ranges of what a task is trained on, for `check_ranges`.

    Args:
        task: a `PretrainingTask`.

    Returns:
        Dict from the names of inputs to a `Range`, and from `"y"` to that of the
        labels, or a dict of them.
    """
    backbone = task.backbone
    retriever: Any = getattr(task, "retriever", task)
    rows = {
        **dict.fromkeys(_SIDES, backbone),
        **dict.fromkeys(_TOWERS, retriever.backbone),
    }
    places = (
        "mask_positions",
        "span_bounds",
        "word_positions",
        "start_positions",
        "sequence_starts",
    )
    return {
        **{
            f"{side}{name}": allowed
            for side, reader in rows.items()
            for name, allowed in _of_rows(reader).items()
        },
        "mask_ids": _token(backbone),
        **dict.fromkeys(places, _PLACE),
        "y": _labels_of(task, task.label_kind, task.loss),
    }


def _of_rows(backbone):
    """Give the ranges of a backbone's rows, by the names of its inputs."""
    longest = getattr(backbone, "max_sequence_length", None)
    # Without a table, or with one row, segments are only compared, or not read at all.
    segments = getattr(backbone, "num_segments", None) or None
    return {
        "token_ids": _token(backbone),
        "position_ids": Range("max_sequence_length", longest),
        "sequence_ids": Range(),
        "segment_ids": Range("num_segments", None if segments == 1 else segments),
    }


def _token(backbone):
    return Range("vocabulary_size", backbone.vocabulary_size)


def _labels_of(task, kind, loss):
    if isinstance(kind, dict):
        losses = loss if isinstance(loss, dict) else dict.fromkeys(kind, loss)
        return {
            name: _labels_of(task, part, losses.get(name))
            for name, part in kind.items()
        }
    numbered = kind in _LABELS and _takes_numbers(loss)
    return _LABELS[kind](task) if numbered else FINITE


def _takes_numbers(loss):
    """Tell whether labels are numbers of classes, as for all losses of this library."""
    if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
        return loss.ignore_class is None
    return loss in (None, "sparse_categorical_crossentropy") or isinstance(
        loss, MaskedCrossentropy
    )
