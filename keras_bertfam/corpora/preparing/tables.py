"""Datasets of TFDS and Hugging Face."""

import functools
from collections.abc import Iterator
from typing import Any

from keras_bertfam.text_files.parts import Part, Reading, Source

DATASETS = ("tfds", "hf")  # the kinds of sources, and what their names begin with
_EXAMPLES = 10_000  # in a part of a dataset whose size in bytes isn't known


def dataset_parts(source: Source, size: int, reading: Reading) -> list[Part]:
    """Divide a dataset into parts of about `size` bytes."""
    count = _dataset_length(source.name, reading)
    step = _EXAMPLES
    if source.bytes:
        step = max(1, size * count // source.bytes)
    return [Part(source, k, min(k + step, count)) for k in range(0, count, step)]


@functools.lru_cache(maxsize=2)
def _tfds_split(name, reading):
    import tensorflow_datasets as tfds

    builder = tfds.builder(name.removeprefix("tfds:"))
    builder.download_and_prepare()
    if reading.split not in builder.info.splits:
        raise ValueError(
            f"`split` must be one of {sorted(builder.info.splits)} for {name}. "
            f"Received: {reading.split!r}."
        )
    return builder, builder.info.splits[reading.split]


@functools.lru_cache(maxsize=2)
def _hf_dataset(name, reading):
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            "Hugging Face's datasets need their library: pip install datasets."
        ) from error
    return datasets.load_dataset(name.removeprefix("hf:"), split=reading.split)


def dataset_source(name: str, reading: Reading) -> Source:
    """Describe a dataset as a source.

    Raises:
        ImportError: if its library isn't installed.
        ValueError: if it has no such split.
    """
    if name.startswith("tfds:"):
        builder, split = _tfds_split(name, reading)
        return Source(name, "tfds", int(split.num_bytes), builder.info.full_name)
    dataset = _hf_dataset(name, reading)
    size = int(dataset.info.dataset_size or 0)
    return Source(name, "hf", size, str(dataset._fingerprint))


def _dataset_length(name, reading):
    if name.startswith("tfds:"):
        return int(_tfds_split(name, reading)[1].num_examples)
    return len(_hf_dataset(name, reading))


def dataset_examples(part: Part, reading: Reading) -> Iterator[Any]:
    """Read the feature's value in each example of a part of a dataset.

    Raises:
        ValueError: for a dataset without that feature.
    """
    name = part.source.name
    end = _dataset_length(name, reading) if part.end < 0 else part.end
    if name.startswith("tfds:"):
        builder, _ = _tfds_split(name, reading)
        names = [*builder.info.features]
        split = f"{reading.split}[{part.start}:{end}]"
    else:
        dataset = _hf_dataset(name, reading)
        names = dataset.column_names
    if reading.feature not in names:
        raise ValueError(
            f"`feature` must be one of {sorted(names)} for {name}. "
            f"Received: {reading.feature!r}."
        )
    if name.startswith("tfds:"):
        examples = builder.as_dataset(split=split).as_numpy_iterator()
    else:
        examples = iter(dataset.select(range(part.start, end)))
    for example in examples:
        yield example[reading.feature]
