"""Reports on the reading of a checkpoint, for a warning or a summary."""

import dataclasses
import os
import re
import sys
import warnings
from collections.abc import Callable

from keras_bertfam.presets.checkpoints.source import CheckpointSource
from keras_bertfam.presets.families import transformers_tables
from keras_bertfam.presets.families.parts.tables import CONSTANTS, COPIES

_PACKAGE = __name__.partition(".")[0]


@dataclasses.dataclass
class ConversionReport:
    """A record of the tensors that were read, are missing, or were left out.

    Attributes:
        source: `CheckpointSource`.
        mapped: list of `(ours, theirs)`: the path of a variable, and the names of its
            tensors.
        missing: list of the paths of variables that keep their initial values.
        unequal: dict from names of copies that differ from their originals to the names
            of these originals.
        identities: list of the names of tensors of layers that change nothing.
        not_finite: list of the names of tensors with NaN or infinite values.
        notes: list of sentences.
        progress: function that is called with the number of tensors that were read
            since its last call.
    """

    source: CheckpointSource
    mapped: list[tuple[str, tuple[str, ...]]] = dataclasses.field(default_factory=list)
    missing: list[str] = dataclasses.field(default_factory=list)
    unequal: dict[str, str] = dataclasses.field(default_factory=dict)
    identities: list[str] = dataclasses.field(default_factory=list)
    not_finite: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    progress: Callable[[int], None] = lambda count: None

    @property
    def left_over(self) -> list[str]:
        """List the names of tensors that were not read."""
        table = transformers_tables()[self.source.family]
        prefix = table.prefix
        known = {name for _, theirs in self.mapped for name in theirs}
        known |= {
            *self.identities,
            *COPIES,
            *table.copies,
            *table.zeros,
            *CONSTANTS,
            *(f"{prefix}.{n}" for n in CONSTANTS),
        }
        constant = re.compile(rf"({prefix}\.)?({'|'.join(table.constants)})")
        return [
            name
            for name in self.source.tensors
            if name not in known and not (table.constants and constant.fullmatch(name))
        ]

    @property
    def untied(self) -> list[str]:
        """List the output tables and biases that weren't read, as they differ."""
        mapped = {name for _, theirs in self.mapped for name in theirs}
        return [name for name in self.unequal if name not in mapped]

    def lines(self) -> list[str]:
        """Write a sentence for each kind of difference."""
        return [*self.source.notes, *self.notes] + [
            f"{text}: {_listing(names)}."
            for text, names in (
                ("Not in the checkpoint, and new", self.missing),
                ("In the checkpoint, and left out", self.left_over),
                ("Not tied to the input's, and left out", self.untied),
                ("With NaN or infinite values", self.not_finite),
            )
            if names
        ]

    def warn(self) -> None:
        """Warn once, with all these sentences."""
        if lines := self.lines():
            text = f"{os.fspath(self.source.path)!r} was loaded in part. "
            warnings.warn(text + " ".join(lines), stacklevel=_callers_level())


def warn(text: str) -> None:
    """Warn at the line of the user's code that called the package."""
    warnings.warn(text, stacklevel=_callers_level())


def _listing(names, most=30):
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _callers_level():
    """Find the `stacklevel` of the first frame outside the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals["__name__"].startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
