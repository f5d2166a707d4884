"""Which commands take which tasks, by the names of their classes."""

import os
from collections.abc import Mapping
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.presets.existing import TASK_FILE

FILL_MASKS = (
    "MaskedLM",
    "MaskedLMSentencePair",
    "ReplacedTokenDetection",
    "SpanBoundaryLM",
)
WRITE = ("CausalLM", "RecurrentLM", "RetrievalAugmentedGenerator", "TextToText")
_EXPORTED = {"top_k": FILL_MASKS, "max_length": WRITE, "sampler": WRITE}


def saved_task(preset: str) -> str | None:
    """Read the name of the class of the task that is in a folder, if there is one."""
    path = os.path.join(preset, TASK_FILE)
    if not os.path.isfile(path):
        return None
    saved: Any = parsing.read_json(path)
    name = saved.get("registered_name") if isinstance(saved, dict) else None
    return None if name is None else str(name).rpartition(">")[2]


def check_export(preset: str, options: Mapping[str, Any]) -> None:
    """Raises a `ValueError` for options that the task in a folder has no use for."""
    task = saved_task(preset)
    for name, value in options.items():
        if task is not None and task not in _EXPORTED.get(name, (task,)):
            raise ValueError(
                f"`{name}` must be left out unless the preset is of "
                f"{', '.join(_EXPORTED[name][:-1])} or {_EXPORTED[name][-1]}. "
                f"Received: {value!r} with one of {task}."
            )
