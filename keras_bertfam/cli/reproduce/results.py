"""Keep the scores of rows and seeds from one call to the next."""

import json
import os
from collections.abc import Iterable
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.types import Config
from keras_bertfam.whole_files import write_text

NAME = "results.json"


class Results:
    """Read and write a folder's `results.json`.

    Args:
        folder: str. It need not exist yet.

    Raises:
        ValueError: for a file that can't be read.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, NAME)
        self._found: dict[str, dict[str, Any]] = {}
        if os.path.exists(self.path):
            try:
                self._found = dict(parsing.read_json(self.path, nan=True))
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.path} must be as this library wrote it. {error}."
                ) from error

    def seeds(self, row: str) -> list[int]:
        """List the seeds of a row that are finished or begun."""
        return [*map(int, self._found.get(row, {}))]

    def find(self, row: str, seed: int) -> dict[str, Any] | None:
        """Give the scores of a row and seed, or `None` if they aren't finished."""
        known = self._found.get(row, {}).get(str(seed), {})
        return dict(known["scores"]) if "scores" in known else None

    def check(self, row: str, seed: int, settings: Config) -> None:
        """Raise a `ValueError` if a row and seed was begun with other settings."""
        before = self._found[row][str(seed)]["settings"]
        for name, value in _plain(settings).items():
            if before.get(name) != value:
                raise ValueError(
                    f"`{name}` must be {before.get(name)!r}, as in the results in "
                    f"{self.folder}; choose another `output` for other settings. "
                    f"Received: {value!r}."
                )

    def begin(self, row: str, seed: int, settings: Config) -> None:
        """Write the settings of a row and seed before it is trained."""
        self._write(row, seed, {"settings": _plain(settings)})

    def add(self, row: str, seed: int, settings: Config, scores: Config) -> None:
        """Write the scores of a row and seed, and the settings that gave them."""
        found = {"settings": _plain(settings), "scores": dict(scores)}
        self._write(row, seed, found)

    def _write(self, row, seed, found):
        self._found.setdefault(row, {})[str(seed)] = found
        write_text(self.path, json.dumps(self._found, indent=1) + "\n")

    def scores(self, rows: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """Give the scores of rows: for each row, a list with one entry per seed."""
        return {
            row: [
                known["scores"]
                for known in self._found.get(row, {}).values()
                if "scores" in known
            ]
            for row in rows
        }


def _plain(settings):
    """Convert settings to the types that reading a file gives."""
    return json.loads(json.dumps(settings))
