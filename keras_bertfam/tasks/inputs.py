"""Inspect the data of `fit()`, `evaluate()` and `predict()`: form, count, ranges."""

import contextlib
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import keras

from keras_bertfam.callbacks import BackupAndResume
from keras_bertfam.callbacks.skipped_batches import LOOP_READS_FIRST
from keras_bertfam.layers.data.pairs.mixtures import TaskMixture
from keras_bertfam.layers.data.pipelines import (
    FirstBatch,
    remember_count,
    remembered_count,
)
from keras_bertfam.layers.data.value_ranges import FINITE, Range, check_ranges
from keras_bertfam.tasks.losses import DiffusionBound, MaskedCrossentropy
from keras_bertfam.types import Model, TFDataset


@contextlib.contextmanager
def may_end(steps: int | None) -> Iterator[None]:
    """Hide Keras's warning that data ran out, if no number of steps was asked for."""
    with warnings.catch_warnings():
        if steps is None:
            warnings.filterwarnings("ignore", "Your input ran out of data")
        yield


def as_tensors(data: Any) -> Any:
    """Turn a batch's `x`, `y` and `sample_weight` into tensors; `None` stays `None`."""
    data = keras.utils.unpack_x_y_sample_weight(data)
    return keras.tree.map_structure(
        lambda x: None if x is None else keras.ops.convert_to_tensor(x), data
    )


def split_off_last(data: TFDataset, share: float) -> tuple[TFDataset, TFDataset]:
    """Split a share of the last examples off a dataset, as Keras does."""
    count = len(data)
    kept = int(count * (1 - share))
    if not 0 < kept < count:
        raise ValueError(
            "`validation_split` must be a share between 0 and 1 that leaves examples "
            f"on both sides. Received: {share}, for {count} examples."
        )
    return data.take(kept), data.skip(kept)


# Numbers of shapes for datasets in use that don't give them themselves.
_shapes: Any = weakref.WeakKeyDictionary()


def known_count(x: Any) -> int | None:
    """Count the batches of an epoch, if the training data needn't be read for that."""
    if hasattr(x, "cardinality"):
        length = int(x.cardinality())
        return length if length >= 0 else remembered_count(x)
    length = len(x) if hasattr(x, "__len__") else sys.maxsize
    return None if length == sys.maxsize else length  # as for endless datasets of Grain


def count_batches(x: Any, verbose: Any = 0) -> int | None:
    """Count the batches of an epoch; `None` for endless training data.

    A dataset of unknown length is read once; a line says so unless `verbose=0`.
    """
    known = known_count(x)
    if known is not None or not hasattr(x, "cardinality") or int(x.cardinality()) == -1:
        return known
    print_line("Counting the batches of an epoch...", verbose)
    batches = sum(1 for _ in x)
    print_line(f"There are {batches}.", verbose)
    remember_count(x, batches)
    return batches


def print_line(text: str, verbose: Any) -> None:
    """Print a line immediately, unless `verbose=0`, as in `fit()`."""
    if verbose:
        print(text, flush=True)


def rows_of_batches(x: Any) -> int | None:
    """Give the number of rows in a dataset's batches; `None` if it isn't static."""
    spec = keras.tree.flatten(getattr(x, "element_spec", None))
    shape = getattr(spec[0], "shape", None) if spec else None
    return shape[0] if shape else None


def remember_shapes(dataset: TFDataset, shapes: int) -> TFDataset:
    """Remember for `known_shapes` how many shapes a dataset has; return the dataset."""
    _shapes[dataset] = shapes
    return dataset


def known_shapes(x: Any) -> int | None:
    """Give the most shapes that a dataset's batches have, if that is known."""
    spec = keras.tree.flatten(getattr(x, "element_spec", None))
    shapes = [getattr(part, "shape", None) for part in spec]
    if all(shape is not None and shape.is_fully_defined() for shape in shapes):
        return 1 if shapes else None
    return _shapes.get(x) if hasattr(x, "cardinality") else None


def able_to_begin_later(x: Any, callbacks: list[Any]) -> Any:
    """Let data without a known end begin later, if a callback may resume it."""
    backups = [each for each in callbacks if isinstance(each, BackupAndResume)]
    if not (backups and LOOP_READS_FIRST):
        return x
    backups[0].first_batch = None
    if not hasattr(x, "cardinality") or int(x.cardinality()) >= 0:
        return x
    backups[0].first_batch = FirstBatch()
    return backups[0].first_batch.of(x)


def is_arrays(x: Any) -> bool:
    """Tell whether data is arrays, tensors or lists."""
    return isinstance(x, (str, list, tuple, dict)) or hasattr(x, "shape")


def is_preprocessed(x: Any) -> bool:
    """Tell whether data has the form that preprocessors make and models take."""
    return isinstance(x, dict) and not x.keys().isdisjoint(
        ("token_ids", "encoder_token_ids", "query_token_ids", "passage_token_ids")
    )


def yields_batches(x: Any) -> bool:
    """Tell whether data is a `PyDataset`, a PyTorch `DataLoader` or a generator.

    KerasHub's `fit()`, which preprocesses, can't take these; Keras's can.
    """
    known = x is None or is_arrays(x) or hasattr(x, "cardinality")
    return not (known or is_of_grain(x))


@contextlib.contextmanager
def texts_explained(x: Any) -> Iterator[None]:
    """Say it if a failure of Keras comes from texts in data that yields batches."""
    try:
        yield
    except Exception as error:
        if not _yields_texts(x):
            raise
        raise ValueError(
            f"`x` must have rows, as `preprocessor(texts)` makes them, if it is a "
            f"{type(x).__name__}. Texts go in as lists, or as a `tf.data.Dataset`. "
            "Received: batches of texts."
        ) from error


def _yields_texts(x):
    """Tell whether the next batch of a `PyDataset`, a generator and so on is texts."""
    with contextlib.suppress(Exception):  # of the user's code
        batch = x[0] if isinstance(x, keras.utils.PyDataset) else next(iter(x))
        batch = batch[0] if isinstance(batch, (tuple, list)) else batch
        return any(map(_is_text, keras.tree.flatten(batch)))
    return False


def is_of_grain(x: Any) -> bool:
    """Tell whether data is a dataset of Grain, which needn't be installed."""
    modules = (cls.__module__ for cls in type(x).__mro__)
    return any(module.partition(".")[0] == "grain" for module in modules)


_PLACE = Range("length", axis=-1)
# Prefixes of the names of inputs if there are two texts.
_SIDES = ("", "encoder_", "decoder_")
_TOWERS = ("query_", "passage_")
_LABELS = {
    "token": lambda task: _token(task.backbone),
    "token or -1": lambda task: _token(task.backbone)._replace(least=-1),
    "class": lambda task: Range("num_classes", task.num_classes),
    "pair": lambda task: Range("classes", task.sentence_head.num_classes),
    "choice": lambda task: Range("choices", axis=1),
    "place": lambda task: _PLACE,
}


def checked_batch(
    task: Model, x: Any, y: Any = None, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Check with `check_ranges` that a task can compute with its inputs.

    Text, which isn't preprocessed yet, is returned unchanged.
    """
    if not is_preprocessed(x):
        return x, y, sample_weight
    return check_ranges(ranges_of(task), x, y, sample_weight)


def check_given(task: Model, x: Any, y: Any = None, labelled: bool = True) -> None:
    """Raise a `ValueError` for missing data, labels or targets.

    Args:
        task: a `PretrainingTask`.
        x, y: what `fit()` is given.
        labelled: bool. Whether labels are needed.
    """
    if x is None:
        raise ValueError("`x` must be arrays, text or a dataset. Received: None.")
    if isinstance(x, TaskMixture):
        raise ValueError(
            "`x` must be a dataset of batches. Received: a mixture. Call "
            "`preprocessor.dataset(x, batch_size=...)`."
        )
    if hasattr(x, "element_spec"):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(x.element_spec)
        if getattr(x, "dtype", None) == "string" and x.shape.rank == 0:
            raise ValueError(
                "`x` must be a dataset of batches. Received: one of single texts. "
                "Call `preprocessor.dataset(x, batch_size=...)`, which fills rows "
                "with documents, or `x.batch(...)` for one row for each text."
            )
    writes = hasattr(task, "generate") and hasattr(task.backbone, "decoder")
    if not labelled and writes and y is None and _is_text(x):
        raise ValueError(
            "`x` must be rows of both texts, as the preprocessor makes them: "
            f"`predict` of a {type(task).__name__} gives the probabilities of a "
            "target's tokens. To write texts, call `generate(texts)`. Received: texts "
            "only."
        )
    if labelled and is_preprocessed(x) and y is None and task.label_kind is not None:
        ids = ""
        if hasattr(task.preprocessor, "of_texts"):
            ids = ", or the ids of its texts, which `preprocessor.of_texts(x)` gives"
        raise ValueError(f"`y` must be the labels of `x`{ids}. Received: None.")


def _is_text(x):
    """Tell whether data is a string, strings, or an element of a text dataset."""
    if isinstance(x, str):
        return True
    if isinstance(x, list):
        return bool(x) and isinstance(x[0], str)
    dtype = getattr(x, "dtype", None)
    return dtype == "string" or getattr(dtype, "kind", "") in {"U", "S", "O"}


def ranges_of(task: Model) -> dict[str, Any]:
    """Give the ranges of a task's training data, for `check_ranges`.

    Args:
        task: a `PretrainingTask`.

    Returns:
        Dict from the names of inputs to a `Range`, and from `"y"` to the labels' range,
        or a dict of ranges.
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
        **dict.fromkeys(("mask_ids", "masked_ids", "target_ids"), _token(backbone)),
        **dict.fromkeys(places, _PLACE),
        "word_heads": Range(),
        "y": _labels_of(task, task.label_kind, task.loss),
    }


def _of_rows(backbone):
    """Give the ranges of a backbone's inputs, by their names."""
    longest = getattr(backbone, "max_sequence_length", None)
    # Without a table of segments, or with one row, segments are only compared, or not
    # read at all.
    segments = getattr(backbone, "num_segments", None) or None
    languages = getattr(backbone, "num_languages", None) or None
    return {
        "token_ids": _token(backbone),
        "position_ids": Range("max_sequence_length", longest),
        "sequence_ids": Range(),
        "segment_ids": Range("num_segments", None if segments == 1 else segments),
        "language_ids": Range("num_languages", languages, least=-1),
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
    """Tell whether a loss takes numbers of classes, as those of this library do."""
    if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
        return loss.ignore_class is None
    return loss in (None, "sparse_categorical_crossentropy") or isinstance(
        loss, MaskedCrossentropy | DiffusionBound
    )
