"""The settings of a preparation, and its working folder.

Each file in the working folder has a digest in its name, of all settings that the file
depends on, and is moved there complete. So a run that was killed finds its earlier
results, and no worker uses a result of other settings.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from keras_bertfam import parsing
from keras_bertfam.corpora.preparing.duplicates import NearDuplicates
from keras_bertfam.corpora.preparing.processes import call
from keras_bertfam.corpora.preparing.quality import QualityRules
from keras_bertfam.presets.tokenizer_presets import load_tokenizer
from keras_bertfam.text_files.sources import Block, Part, Reading, Source
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer
from keras_bertfam.types import Config, Tokenizer
from keras_bertfam.version import __version__
from keras_bertfam.whole_files import flush_folder, write_text

FAILURES = "failures"
_ERRORS = {kind.__name__: kind for kind in (ValueError, OSError, ImportError)}


@dataclasses.dataclass(frozen=True)
class Job:
    """The settings of a preparation, for all workers.

    Args:
        folder: path of the working folder, which all workers see.
        blocks_file: name of the file in this folder that has the blocks.
        reading: `Reading`.
        rules: `QualityRules`.
        exact_duplicates: bool. Whether copies are removed.
        near_duplicates: `NearDuplicates`, or `None`.
        test_hashes_file: name of the file in this folder with the array of
            `hash_test_sets`, or `None`.
        test_ngram: int. Documents may not have so many successive words of test sets.
        tokenizer_digest: str.
        vocabulary_size: int.
        shards: int. How many there will be.
    """

    folder: str
    blocks_file: str
    reading: Reading
    rules: QualityRules
    exact_duplicates: bool
    near_duplicates: NearDuplicates | None
    test_hashes_file: str | None
    test_ngram: int
    tokenizer_digest: str
    vocabulary_size: int
    shards: int

    def path(self, *names: str) -> str:
        """Join a path in the working folder."""
        return os.path.join(self.folder, *names)

    def block(self, number: int) -> Block:
        """Look up a block by its number."""
        return read_blocks(self.path(self.blocks_file))[number]

    @property
    def tokenizer_folder(self) -> str:
        """str: the preset of the tokenizer."""
        return self.path("tokenizers", self.tokenizer_digest)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer; each process loads it once."""
        return _tokenizer_in(self.tokenizer_folder)


@functools.lru_cache(maxsize=1)
def _tokenizer_in(folder):
    return as_graph_layer(load_tokenizer(folder))


def write_blocks(folder: str, blocks: list[Block]) -> str:
    """Write blocks to a working folder, and return the file's name."""
    rows = [[dataclasses.astuple(part) for part in block] for block in blocks]
    name = f"blocks-{digest(rows)}.json"
    write_text(os.path.join(folder, name), json.dumps(rows))
    return name


@functools.lru_cache(maxsize=1)
def read_blocks(path: str) -> list[Block]:
    """Read the blocks in a file of `write_blocks`."""
    rows = parsing.read_json(path, many=True)
    return [
        tuple(Part(Source(*source), *bounds) for source, *bounds in row) for row in rows
    ]


def digest(*values: Any) -> str:
    """Compute a digest of values: dataclasses, or what JSON can have."""
    text = json.dumps([__version__, *values], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value):
    return dataclasses.asdict(value)


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[str]:
    """Give a folder to write to, and put it at `path` at the end.

    If another process has written this folder meanwhile, its content is the same, and
    it stays.
    """
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    part = tempfile.mkdtemp(prefix=".part-", dir=parent)
    try:
        yield part
        flush_folder(part)
        try:
            os.rename(part, path)
        except OSError:
            if not os.path.isdir(path):
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def save_array(path: str, array: np.ndarray) -> None:
    """Write an array as `numpy.save` does.

    If the disk is full, the system's error is raised here. `numpy.save` would raise one
    that only says how many bytes were written.
    """
    with open(path, "wb") as file:
        writer: Any = types.SimpleNamespace(write=file.write)  # for NumPy, no file
        np.lib.format.write_array(writer, array)


def write_json(path: str, content: Config) -> None:
    """Write a file of JSON, in one operation."""
    write_text(path, json.dumps(content))


def read_json(path: str) -> Any:
    """Read a file of JSON."""
    return parsing.read_json(path, many=True)


def guarded(job: Any, step: Callable[..., Any], element: Any) -> Any:
    """Run a step on an element, by `processes.call`.

    An error is written to the working folder, so that `raise_failure` can raise it in
    the first process. A runner of Beam passes on only a text with the traceback.

    Args:
        job: object whose `folder` is the path of the working folder.
        step: function of the job and the element.
        element: element of a pipeline.
    """
    try:
        return call(_run, job, step, _loaded(element))
    except tuple(_ERRORS.values()) as error:
        kind = next(name for name, cls in _ERRORS.items() if isinstance(error, cls))
        failures = os.path.join(job.folder, FAILURES)
        name = f"{digest(str(error))}.json"
        with contextlib.suppress(OSError):  # the disk may be full
            os.makedirs(failures, exist_ok=True)
            content = {"kind": kind, "message": str(error)}
            write_json(os.path.join(failures, name), content)
        raise


def _run(job, step, element):
    made = step(job, element)
    return [*made] if isinstance(made, Iterator) else made


def _loaded(element):
    """Replace a runner's lazy iterables by lists."""
    if not isinstance(element, tuple):
        return element
    key, values = element
    if isinstance(values, dict):
        return key, {name: [*value] for name, value in values.items()}
    return key, [*values]


def raise_failure(folder: str) -> None:
    """Raise the first error that a worker wrote to a working folder, if any."""
    failures = os.path.join(folder, FAILURES)
    for name in sorted(os.listdir(failures)) if os.path.isdir(failures) else ():
        noted = read_json(os.path.join(failures, name))
        raise _ERRORS[noted["kind"]](noted["message"])
