"""What is compiled once: functions by their kind, and steps of a loop as graphs."""

import copy
import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import keras

from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.types import Tensor

# A step is traced once for arguments of these shapes.
Graphs = dict[tuple, Callable[..., Any]]
# By what an operation's numbers are changed, and not what is computed.
_OF_SAMPLERS = ("temperature", "p", "alpha")
_OF_SETTINGS = (
    "repetition_penalty",
    "length_penalty",
    "diversity_penalty",
    "min_length",
    "min_new_tokens",
)
# Values with which something isn't computed at all.
_OFF = {"repetition_penalty": 1, "diversity_penalty": 0}
_OFF |= {"min_length": 0, "min_new_tokens": 0}


def kind_of(sampler: Any, settings: GenerationSettings) -> Hashable:
    """Make the key of the function that writes with a sampler and settings.

    Those that differ only in numbers that the function is given have one key.

    Args:
        sampler: `keras_hub.samplers.Sampler`.
        settings: `GenerationSettings`, with ids for `bad_words`.
    """
    if type(sampler).__module__.startswith("keras_hub."):
        config = {**sampler.get_config(), "seed": None}
        config |= dict.fromkeys(_of_sampler(sampler))
        known: Hashable = type(sampler), json.dumps(config, sort_keys=True)
    else:
        known = id(sampler)  # its config may not say all
    given = numbers_of(sampler, settings)
    on = frozenset(name for name in _OF_SETTINGS if name in given)
    usual = {name: getattr(GenerationSettings, name) for name in _OF_SETTINGS}
    return known, on, settings.replace(**usual, max_tokens=1)


def numbers_of(sampler: Any, settings: GenerationSettings) -> dict[str, float | int]:
    """Collect the numbers that a compiled function is given, by their names."""
    of_settings = {
        name: getattr(settings, name)
        for name in _OF_SETTINGS
        if not is_known_as(getattr(settings, name), _OFF.get(name))
    }
    return {**_of_sampler(sampler), **of_settings}


def with_numbers(
    sampler: Any, settings: GenerationSettings, numbers: Mapping[str, Tensor]
) -> tuple[Any, GenerationSettings]:
    """Copy a sampler and settings, with tensors for their numbers.

    The sampler's random numbers are those of the one that is given.
    """
    sampler, settings = copy.copy(sampler), copy.copy(settings)
    for name, value in numbers.items():
        if name in _OF_SETTINGS:
            object.__setattr__(settings, name, value)
        else:
            setattr(sampler, name, value)
    return sampler, settings


def is_known_as(value: Any, number: float | None) -> bool:
    """Tell whether a value is a number, not a tensor, and a certain one."""
    return isinstance(value, float | int) and value == number


def _of_sampler(sampler):
    if not type(sampler).__module__.startswith("keras_hub."):
        return {}
    config = sampler.get_config()
    return {name: config[name] for name in _OF_SAMPLERS if name in config}


def as_graph(step: Callable[..., Any], arguments: tuple, known: Graphs) -> Any:
    """Trace a step for arguments like these, to go without the Python of its layers.

    Args:
        step: function of tensors and nested structures of them.
        arguments: tuple of what it is called with.
        known: dict of the graphs that were made of the same step, to which a new one
            is added.

    Returns:
        A function of the same arguments: under PyTorch, where a layer's call costs
        several times what it computes for a single token, its operations. Elsewhere
        the loop is compiled, and `step` is returned as it is.
    """
    if keras.backend.backend() != "torch":
        return step
    key = tuple((tuple(x.shape), x.dtype) for x in keras.tree.flatten(arguments))
    if key not in known:
        from torch.fx.experimental.proxy_tensor import make_fx

        known[key] = make_fx(step)(*arguments)
    return known[key]
