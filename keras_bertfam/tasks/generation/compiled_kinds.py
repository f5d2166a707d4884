"""Compile functions once for each kind, and steps of a loop as graphs."""

import copy
import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import keras

from keras_bertfam.tasks.generation.nucleus import NucleusSampler
from keras_bertfam.tasks.generation.settings import GenerationSettings
from keras_bertfam.types import Tensor

# A step is traced once for each combination of shapes.
Graphs = dict[tuple, Callable[..., Any]]
# Settings that change an operation's numbers, but not which operations there are.
_OF_SAMPLERS = ("temperature", "p", "alpha")
_OF_SETTINGS = (
    "repetition_penalty",
    "length_penalty",
    "diversity_penalty",
    "min_length",
    "min_new_tokens",
)
# Values that switch an operation off.
_OFF = {"repetition_penalty": 1, "diversity_penalty": 0}
_OFF |= {"min_length": 0, "min_new_tokens": 0}


def kind_of(sampler: Any, settings: GenerationSettings) -> Hashable:
    """Make the key of the compiled function for a sampler and settings.

    Samplers and settings that differ only in numbers, which are arguments of the
    function, share a key.

    Args:
        sampler: `keras_hub.samplers.Sampler`.
        settings: `GenerationSettings`, with ids for `bad_words`.
    """
    if _is_known(sampler):
        config = {**sampler.get_config(), "seed": None}
        config |= dict.fromkeys(_of_sampler(sampler))
        known: Hashable = (
            type(sampler),
            json.dumps(config, sort_keys=True, default=lambda number: number.item()),
        )
    else:
        known = id(sampler)  # its config may not hold everything
    given = numbers_of(sampler, settings)
    on = frozenset(name for name in _OF_SETTINGS if name in given)
    usual = {name: getattr(GenerationSettings, name) for name in _OF_SETTINGS}
    return known, on, settings.replace(**usual, max_tokens=1)


def numbers_of(sampler: Any, settings: GenerationSettings) -> dict[str, float | int]:
    """Collect the numbers that are arguments of a compiled function, by name."""
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

    The copy draws the given sampler's random numbers.
    """
    sampler, settings = copy.copy(sampler), copy.copy(settings)
    for name, value in numbers.items():
        if name in _OF_SETTINGS:
            object.__setattr__(settings, name, value)
        else:
            setattr(sampler, name, value)
    return sampler, settings


def is_known_as(value: Any, number: float | None) -> bool:
    """Tell whether a value is this number, and not a tensor."""
    return isinstance(value, float | int) and value == number


def _is_known(sampler):
    """Tell whether a sampler's config holds everything."""
    of_library = type(sampler).__module__.startswith("keras_hub.")
    return of_library or type(sampler) is NucleusSampler


def _of_sampler(sampler):
    if not _is_known(sampler):
        return {}
    config = sampler.get_config()
    return {name: config[name] for name in _OF_SAMPLERS if name in config}


def as_graph(step: Callable[..., Any], arguments: tuple, known: Graphs) -> Any:
    """Trace a step for such arguments, so that its layers' Python code isn't run again.

    Args:
        step: function of tensors and nested structures of them.
        arguments: tuple of the arguments of a call.
        known: dict of the step's graphs so far; a new one is added to it.

    Returns:
        A function of the same arguments. Under PyTorch it runs only the step's
        operations: for a single token, calling a layer costs several times its
        computation. Other backends compile the loop, and get `step` itself.
    """
    if keras.backend.backend() != "torch":
        return step
    key = tuple((tuple(x.shape), x.dtype) for x in keras.tree.flatten(arguments))
    if key not in known:
        from torch.fx.experimental.proxy_tensor import make_fx

        known[key] = make_fx(step)(*arguments)
    return known[key]
