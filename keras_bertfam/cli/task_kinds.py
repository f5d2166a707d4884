"""Which commands take which tasks, by the names of their classes."""

import os
from collections.abc import Mapping
from typing import Any

from keras_bertfam import parsing
from keras_bertfam.presets.inspection import (
    FINE_TUNED,
    TASK_FILE,
    class_of,
    published_family,
    tasks_of,
)

FILL_MASKS = (
    "MaskedLM",
    "MaskedLMSentencePair",
    "ReplacedTokenDetection",
    "SpanBoundaryLM",
)
WRITE = ("CausalLM", "RecurrentLM", "RetrievalAugmentedGenerator", "TextToText")
_EXPORTED = {"top_k": FILL_MASKS, "max_length": WRITE, "sampler": WRITE}


PREDICT = (*FINE_TUNED, "TextToText")
# Options of `generate` that say how a sampler draws, and its arguments.
SAMPLED_BY = {
    "random": {"temperature": "temperature", "seed": "seed"},
    "top_k": {"temperature": "temperature", "seed": "seed", "top_k": "k"},
    "top_p": {
        "temperature": "temperature",
        "seed": "seed",
        "top_k": "k",
        "top_p": "p",
    },
}
# Those of a beam search alone.
_OF_BEAMS = ("length_penalty", "num_beams")
# Commands that take some tasks only; the others take each.
TAKEN = {
    "fill-mask": FILL_MASKS,
    "generate": ("CausalLM", "RecurrentLM", "TextToText"),
    "predict": PREDICT,
}
_EVERY = ("analyse", "export", "finetune")


def check_taken(command: str, preset: str) -> None:
    """Raise a `ValueError` for a preset of a task that a command doesn't take.

    Args:
        command: a key of `TAKEN`.
        preset: name or folder of a checkpoint; one of a backbone is taken.
    """
    taken, task = TAKEN[command], saved_task(preset)
    if task is None:
        family = published_family(preset)
        if family is None or {*tasks_of(family)} & {*taken}:
            return
        task = tasks_of(family)[0]
    if task not in taken:
        others = [name for name, tasks in TAKEN.items() if task in tasks]
        raise ValueError(
            f"`preset` must be of one of {', '.join(taken)} for {command}. Received: "
            f"{preset!r}, of a {task}, which {', '.join([*others, *_EVERY])} take."
        )


def check_sampling(sampler: str, given: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for options of `generate` that a sampler doesn't read.

    Args:
        sampler: its name.
        given: the options that were given, and their values.
    """
    readers = dict.fromkeys(_OF_BEAMS, ["beam"])
    for name, options in SAMPLED_BY.items():
        for option in options:
            readers.setdefault(option, []).append(name)
    for name, value in given.items():
        if name in readers and sampler not in readers[name]:
            raise ValueError(
                f"`{name}` must be left out unless `sampler` is one of "
                f"{readers[name]}. Received: {value!r}, sampler={sampler!r}."
            )


def saved_task(preset: str) -> str | None:
    """Read the name of the class of the task that is in a folder, if there is one."""
    path = os.path.join(preset, TASK_FILE)
    if not os.path.isfile(path):
        return None
    saved: Any = parsing.read_json(path)
    named = isinstance(saved, dict) and "registered_name" in saved
    return class_of(saved) if named else None


def check_export(preset: str, options: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for options that the task in a folder has no use for."""
    task = saved_task(preset)
    for name, value in options.items():
        if task is not None and task not in _EXPORTED.get(name, (task,)):
            raise ValueError(
                f"`{name}` must be left out unless the preset is of "
                f"{', '.join(_EXPORTED[name][:-1])} or {_EXPORTED[name][-1]}. "
                f"Received: {value!r} with one of {task}."
            )
