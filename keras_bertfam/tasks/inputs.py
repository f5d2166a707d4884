"""What `fit()`, `evaluate()` and `predict()` are given, and how much of it there is."""

import contextlib
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import keras

from keras_bertfam.callbacks import BackupAndResume
from keras_bertfam.callbacks.skipped_batches import LOOP_READS_FIRST
from keras_bertfam.layers.data.pipelines import (
    FirstBatch,
    remember_count,
    remembered_count,
)
from keras_bertfam.types import TFDataset


@contextlib.contextmanager
def may_end(steps: int | None) -> Iterator[None]:
    """Spare Keras's warning about data that ends, where no length was asked for."""
    with warnings.catch_warnings():
        if steps is None:
            warnings.filterwarnings("ignore", "Your input ran out of data")
        yield


def as_tensors(data: Any) -> Any:
    """Make tensors of a batch's `x`, `y` and `sample_weight`, `None` as it is."""
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


# Of datasets that don't tell and are in use: the shapes of their batches.
_shapes: Any = weakref.WeakKeyDictionary()


def known_count(x: Any) -> int | None:
    """Count the batches of a pass over the training data, if it needn't be read."""
    if hasattr(x, "cardinality"):
        length = int(x.cardinality())
        return length if length >= 0 else remembered_count(x)
    length = len(x) if hasattr(x, "__len__") else sys.maxsize
    return None if length == sys.maxsize else length  # as of Grain's without an end


def count_batches(x: Any, verbose: Any = 0) -> int | None:
    """Count the batches of a pass over the training data; `None` if endless.

    A dataset of unknown length is read once, which is said unless `verbose=0`.
    """
    known = known_count(x)
    if known is not None or not hasattr(x, "cardinality") or int(x.cardinality()) == -1:
        return known
    print_line("Counting the batches of a pass over the data...", verbose)
    batches = sum(1 for _ in x)
    print_line(f"There are {batches}.", verbose)
    remember_count(x, batches)
    return batches


def print_line(text: str, verbose: Any) -> None:
    """Print a line at once, unless `verbose=0`, as in `fit()`."""
    if verbose:
        print(text, flush=True)


def rows_of_batches(x: Any) -> int | None:
    """Tell the rows of a dataset's batches; `None` if that isn't static."""
    spec = keras.tree.flatten(getattr(x, "element_spec", None))
    shape = getattr(spec[0], "shape", None) if spec else None
    return shape[0] if shape else None


def remember_shapes(dataset: TFDataset, shapes: int) -> TFDataset:
    """Tell `known_shapes` how many shapes a dataset's batches have, and return it."""
    _shapes[dataset] = shapes
    return dataset


def known_shapes(x: Any) -> int | None:
    """Tell how many shapes a dataset's batches have at most, if it says so."""
    spec = keras.tree.flatten(getattr(x, "element_spec", None))
    shapes = [getattr(part, "shape", None) for part in spec]
    if all(shape is not None and shape.is_fully_defined() for shape in shapes):
        return 1 if shapes else None
    return _shapes.get(x) if hasattr(x, "cardinality") else None


def able_to_begin_later(x: Any, callbacks: list[Any]) -> Any:
    """Make data without a known end able to begin later, if it is to be resumed."""
    backups = [each for each in callbacks if isinstance(each, BackupAndResume)]
    if not (backups and LOOP_READS_FIRST):
        return x
    backups[0].first_batch = None
    if not hasattr(x, "cardinality") or int(x.cardinality()) >= 0:
        return x
    backups[0].first_batch = FirstBatch()
    return backups[0].first_batch.of(x)


def is_arrays(x: Any) -> bool:
    """Tell whether it is arrays, tensors or lists."""
    return isinstance(x, (str, list, tuple, dict)) or hasattr(x, "shape")


def is_preprocessed(x: Any) -> bool:
    """Tell whether it is what preprocessors make, and models take."""
    return isinstance(x, dict) and not x.keys().isdisjoint(
        ("token_ids", "encoder_token_ids", "query_token_ids", "passage_token_ids")
    )


def yields_batches(x: Any) -> bool:
    """Tell whether it is a `PyDataset`, a PyTorch `DataLoader` or a generator.

    KerasHub's `fit()`, which preprocesses, can't take these; Keras's can.
    """
    known = x is None or is_arrays(x) or hasattr(x, "cardinality")
    return not (known or is_of_grain(x))


def is_of_grain(x: Any) -> bool:
    """Tell whether it is a dataset of Grain, which needn't be installed."""
    modules = (cls.__module__ for cls in type(x).__mro__)
    return any(module.partition(".")[0] == "grain" for module in modules)
