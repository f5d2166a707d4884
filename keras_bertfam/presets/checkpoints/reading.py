"""Reads files that may be damaged or hostile: names and sizes first, data later.

No function here runs code in a file, or reads outside the folder that it was given.
Every fault of a file raises a `CheckpointError` that names the file.
"""

import collections.abc
import contextlib
import functools
import os
import pathlib
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from keras_bertfam import parsing
from keras_bertfam.presets.checkpoints.source import CheckpointError, LazyTensor
from keras_bertfam.types import Path

# Most bytes of files that are read as a whole.
MAX_CONFIG, MAX_VOCABULARY = 5_000_000, 40_000_000
_SAFE_PYTORCH = (2, 6)  # CVE-2025-32434: older ones run code in spite of weights_only
_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


@contextlib.contextmanager
def errors_of(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn the errors of a reader into a `CheckpointError` that names the file."""
    try:
        yield
    except CheckpointError:
        raise
    except (OSError, *kinds) as error:  # type: ignore[misc]
        raise CheckpointError(
            f"{os.fspath(path)!r} can't be read; it is truncated, damaged or of "
            f"another format. {type(error).__name__}: {str(error).rstrip('.')}."
        ) from error


def file_in(folder: Path, name: Any) -> pathlib.Path:
    """Find a file of a folder by its name, and check that it lies there.

    A link may lead to another file of the folder, or, in a cache of
    `huggingface_hub`, to the cache's own store.

    Args:
        folder: path.
        name: str.

    Returns:
        `pathlib.Path`.

    Raises:
        CheckpointError: if the name leads elsewhere, or to no regular file.
    """
    folder = pathlib.Path(folder)
    if not isinstance(name, str) or name != os.path.basename(name) or "\\" in name:
        raise CheckpointError(
            f"A file of the checkpoint {str(folder)!r} must lie in this folder itself. "
            f"Received: {name!r}."
        )
    path = folder / name
    with errors_of(path, ValueError, RuntimeError):
        target, inside = path.resolve(), folder.resolve()
        # The folder is a snapshot of a cache, or one in it, such as `1_Pooling`.
        caches = (inside.parent, inside.parent.parent)
        stores = [f.parent / "blobs" for f in caches if f.name == "snapshots"]
        stores.append(inside)
        if not any(target.is_relative_to(store) for store in stores):
            raise CheckpointError(f"{str(path)!r} is a link to another folder.")
        if not target.is_file():
            raise CheckpointError(f"{str(path)!r} is not a file.")
    return path


def check_bytes(path: Path, most: int = MAX_VOCABULARY) -> None:
    """Raise a `CheckpointError` for a file too large to be read as a whole."""
    path = pathlib.Path(path)
    with errors_of(path):
        if path.exists() and not path.is_file():
            raise CheckpointError(f"{str(path)!r} is not a file.")
        size = path.stat().st_size
    if size > most:
        raise CheckpointError(
            f"{str(path)!r} is too large for a file of its kind. Expected at most "
            f"{most} bytes. Received: {size}."
        )


def vocabulary_lines(path: Path) -> list[str]:
    """Read the tokens of a file that has one token in each line.

    Only `\\n` and `\\r\\n` end a line, since U+2028 and the no-break space are tokens
    of multilingual vocabularies. A byte-order mark and empty lines at the end are no
    tokens.
    """
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        lines = [line.removesuffix("\n").removesuffix("\r") for line in file]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def read_json(path: Path, pairs: bool = False, vocabulary: bool = False) -> Any:
    """Read the object in a JSON file.

    Args:
        path: path of a file.
        pairs: bool. Whether to read objects as lists of pairs, in which a name may
            occur twice.
        vocabulary: bool. Whether the file may be as large as a vocabulary. Other files
            may be as large as a config.

    Returns:
        dict; with `pairs` a list.

    Raises:
        CheckpointError: if the file can't be read or is too large, if it doesn't hold
            an object, and for NaN, infinite numbers and deep nesting.
    """
    check_bytes(path, MAX_VOCABULARY if vocabulary else MAX_CONFIG)
    with errors_of(path, ValueError):
        text = pathlib.Path(path).read_text("utf-8")
        content = parsing.parse_json(text, pairs, many=vocabulary)
    if not isinstance(content, parsing.Pairs if pairs else dict):
        raise CheckpointError(
            f"{os.fspath(path)!r} must hold a JSON object. "
            f"Received: {type(content).__name__}."
        )
    return content


class Tensors(collections.abc.Mapping):
    """Tensors by name, read one at a time.

    Args:
        lazy: dict from names to `LazyTensor`s.
    """

    def __init__(self, lazy: Mapping[str, LazyTensor]) -> None:
        self._lazy = lazy

    def __getitem__(self, name):
        return self._lazy[name]

    def __iter__(self):
        return iter(self._lazy)

    def __len__(self):
        return len(self._lazy)


def read_safetensors(path: Path) -> dict[str, LazyTensor]:
    """Open the tensors of a safetensors file.

    The file is mapped into memory only while a tensor is read.

    Args:
        path: path of a file.

    Returns:
        Dict from names to `LazyTensor`s.

    Raises:
        CheckpointError: if it is no safetensors file, or a tensor has a dtype that no
            weights have.
        ImportError: without the safetensors library.
    """
    try:
        import safetensors
    except ImportError as error:
        raise ImportError(
            "*.safetensors files need safetensors: pip install 'keras-bertfam[hf]'."
        ) from error
    errors = (safetensors.SafetensorError, ValueError)

    def read(name):
        # Opened each time, since a file's pages stay in memory while it is mapped.
        with errors_of(path, *errors), safetensors.safe_open(path, "np") as file:
            return file.get_tensor(name)

    tensors = {}
    if not os.path.isfile(path):
        raise CheckpointError(f"{os.fspath(path)!r} is not a file.")
    with errors_of(path, *errors), safetensors.safe_open(path, "np") as file:
        for name in file.keys():
            head = file.get_slice(name)
            dtype = head.get_dtype()
            if dtype not in _DTYPES:
                raise CheckpointError(
                    f"The tensor {name!r} of {os.fspath(path)!r} must be of one of "
                    f"the dtypes {', '.join(_DTYPES)}. Received: {dtype}."
                )
            shape = head.get_shape()
            reader = functools.partial(read, name)
            tensors[name] = LazyTensor(reader, shape, _DTYPES[dtype])
    return tensors


# Names under which trainers store a model's tensors; the last one is DeepSpeed's.
_OF_TRAINERS = ("state_dict", "model_state_dict", "model", "module")


def read_pytorch(path: Path) -> dict[str, LazyTensor]:
    """Open the tensors that `torch.save` wrote, without running code in the file.

    Args:
        path: path of a file.

    Returns:
        Dict from names to `LazyTensor`s. Where a trainer stored the model's tensors
        under one of `_OF_TRAINERS`, these are returned.

    Raises:
        CheckpointError: if it is no file of `torch.save`, or holds more than tensors.
        ImportError: without PyTorch, which has the reader of its format.
    """
    content = load_pytorch(path)
    if isinstance(content, dict):  # a trainer's, beside the state of training
        nested = (content.get(name) for name in _OF_TRAINERS)
        content = next((each for each in nested if isinstance(each, dict)), content)
    received = type(content).__name__
    if isinstance(content, dict):
        others = (
            f"a {type(tensor).__name__} under {name!r}"
            for name, tensor in content.items()
            if not (isinstance(name, str) and hasattr(tensor, "numpy"))
        )
        received = next(others, "")
    if received:
        raise CheckpointError(
            f"{os.fspath(path)!r} must hold a dict of tensors. Received: {received}."
        )
    return {name: pytorch_tensor(tensor) for name, tensor in content.items()}


def load_pytorch(path: Path) -> Any:
    """Load tensors in plain containers from a file of `torch.save`.

    See `read_pytorch`.
    """
    path = os.fspath(path)
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{path!r} is a pickle, which only PyTorch reads without running its code: "
            "pip install 'keras-bertfam[torch]', or get the checkpoint as "
            "*.safetensors."
        ) from error
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < _SAFE_PYTORCH:
        least = ".".join(map(str, _SAFE_PYTORCH))
        raise ImportError(
            f"{path!r} is a pickle, and PyTorch {torch.__version__} may run code in it "
            f"(CVE-2025-32434): pip install 'torch>={least}', or get the checkpoint as "
            "*.safetensors."
        )
    if not os.path.isfile(path):
        raise CheckpointError(f"{path!r} is not a file.")
    # PyTorch's reader doesn't say which exceptions it raises.
    try:
        mapped = zipfile.is_zipfile(path)  # the older format can't be mapped
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:
        raise refused_pickle(path, error) from error


def pytorch_tensor(tensor: Any) -> LazyTensor:
    """Make a `LazyTensor` of a `torch.Tensor`."""
    tensor = tensor.detach()
    kind = f"{tensor.layout} on {tensor.device}"
    if kind != "torch.strided on cpu" or tensor.is_quantized or tensor.is_complex():
        raise CheckpointError(
            "A tensor must be dense, real and in memory. "
            f"Received: {tensor.dtype}, {kind}."
        )
    declared = tensor.numel() * tensor.element_size()
    if declared > tensor.untyped_storage().nbytes():
        raise CheckpointError(
            f"A tensor of the shape {tuple(tensor.shape)} must have {declared} bytes. "
            f"Received: {tensor.untyped_storage().nbytes()}."
        )
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16":
        return LazyTensor(lambda: tensor.float().numpy(), tensor.shape)
    with errors_of(f"a tensor of {name}", TypeError):
        return LazyTensor(
            lambda: tensor.contiguous().numpy(), tensor.shape, np.dtype(name)
        )


def read_sharded(
    index_path: Path, read: Callable[[Path], dict[str, LazyTensor]]
) -> dict[str, LazyTensor]:
    """Open the tensors of a checkpoint in several files.

    Args:
        index_path: path of its `*.index.json`.
        read: function that reads the tensors of one file.

    Returns:
        Dict from names to `LazyTensor`s.

    Raises:
        CheckpointError: for an index that names another folder, a missing file, or a
            tensor that its file lacks.
    """
    index_path = pathlib.Path(index_path)
    names = read_json(index_path).get("weight_map")
    if not isinstance(names, dict) or not all(
        isinstance(v, str) for v in names.values()
    ):
        raise CheckpointError(
            f"{str(index_path)!r} must map names to files in its `weight_map`."
        )
    tensors: dict[str, LazyTensor] = {}
    for shard in sorted(set(names.values())):
        found = read(file_in(index_path.parent, shard))
        wanted = {name for name, file in names.items() if file == shard}
        if lacking := sorted(wanted - found.keys()):
            raise CheckpointError(
                f"{str(index_path)!r} says that {shard!r} holds {lacking[0]!r}, but "
                "this file has no such tensor."
            )
        tensors |= {name: found[name] for name in wanted}
    return tensors


# Names of classes and functions in PyTorch's messages.
_NAMED = re.compile(r"GLOBAL ([\w.]+\w)|unrecognized function (.+)")
_ARCHIVE = "TorchScript"
_ADVICE = re.compile(r"weights_only|Weights[ -]?only|safe_globals|trust", re.IGNORECASE)
# Opcodes that a pickle of plain containers doesn't have.
_CALLS = {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE"}


def refused_pickle(path: str, error: Exception) -> CheckpointError:
    """Make the error for a file that `torch.load(weights_only=True)` refused.

    Args:
        path: str.
        error: the exception of `torch.load`.

    Returns:
        `CheckpointError`.
    """
    if code := _code_in(path, str(error)):
        return CheckpointError(
            f"{path!r} holds code and was refused; nothing in it was run. Expected: "
            f"tensors in plain containers. Received: {code}."
        )
    reason = "" if _ADVICE.search(str(error)) else str(error)
    return CheckpointError(
        f"{path!r} can't be read; it is truncated, damaged or of another format. "
        f"{type(error).__name__}: {reason or 'not a file of torch.save'}"
        f"{'' if reason.endswith('.') else '.'}"
    )


def _code_in(path, message):
    """Name the code in a file; give `None` if it has none."""
    if named := _NAMED.search(message):
        return next(filter(None, named.groups()))
    if _ARCHIVE in message:
        return "a TorchScript archive"
    # A message on an unknown protocol doesn't name what the file holds.
    try:
        with open(path, "rb") as file:
            names = {code.name for code, _, _ in _opcodes(file)}
    except OSError:
        names = set()
    calls = sorted(names & _CALLS)
    return f"a pickle with {', '.join(calls)}" if calls else None


def _opcodes(file):
    """Yield the opcodes of a pickle, up to the first place that can't be read."""
    try:
        yield from pickletools.genops(file)
    except (ValueError, OverflowError, MemoryError):
        return
