"""Errors for files that PyTorch's reader of pickles refuses.

PyTorch's own messages advise to read the file without its safeguards.
"""

import pickletools
import re

from keras_bertfam.presets.source import CheckpointError

# Names of classes and functions in PyTorch's messages.
_NAMED = re.compile(r"GLOBAL ([\w.]+\w)|unrecognized function (.+)")
_ARCHIVE = "TorchScript"
_ADVICE = re.compile(r"weights_only|Weights[ -]?only|safe_globals|trust", re.IGNORECASE)
# What a pickle of plain containers doesn't do.
_CALLS = {"GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE"}


def refused_pickle(path: str, error: Exception) -> CheckpointError:
    """Make the error for a file that `torch.load(weights_only=True)` refused.

    Args:
        path: str.
        error: the exception that it raised.

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
    """Name what in a file is code, or `None`."""
    if named := _NAMED.search(message):
        return next(filter(None, named.groups()))
    if _ARCHIVE in message:
        return "a TorchScript archive"
    # A protocol that the reader doesn't know says nothing of what is in it.
    try:
        with open(path, "rb") as file:
            names = {code.name for code, _, _ in _opcodes(file)}
    except OSError:
        names = set()
    calls = sorted(names & _CALLS)
    return f"a pickle with {', '.join(calls)}" if calls else None


def _opcodes(file):
    """Yield the opcodes of a pickle, up to where it is none."""
    try:
        yield from pickletools.genops(file)
    except (ValueError, OverflowError, MemoryError):
        return
