"""Which texts the same compiled function writes, and the numbers that it is given."""

import copy
import json
from collections.abc import Hashable, Mapping
from typing import Any

from keras_bertfam.tasks.pretraining.generation_settings import GenerationSettings
from keras_bertfam.types import Tensor

# By what an operation's numbers are changed, and not what is computed.
_OF_SAMPLERS = ("temperature", "p", "alpha")
_OF_SETTINGS = (
    "repetition_penalty",
    "length_penalty",
    "diversity_penalty",
    "min_new_tokens",
)
# Values with which something isn't computed at all.
_OFF = {"repetition_penalty": 1, "diversity_penalty": 0, "min_new_tokens": 0}


def kind_of(sampler: Any, settings: GenerationSettings) -> Hashable:
    """What samplers and settings have in common that are written by one function.

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
    """The numbers that a compiled function is given, by their names."""
    of_settings = {
        name: getattr(settings, name)
        for name in _OF_SETTINGS
        if not is_known_as(getattr(settings, name), _OFF.get(name))
    }
    return {**_of_sampler(sampler), **of_settings}


def with_numbers(
    sampler: Any, settings: GenerationSettings, numbers: Mapping[str, Tensor]
) -> tuple[Any, GenerationSettings]:
    """A sampler and settings with tensors for their numbers.

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
    """Whether a value is known before anything is computed, and a certain number."""
    return isinstance(value, float | int) and value == number


def _of_sampler(sampler):
    if not type(sampler).__module__.startswith("keras_hub."):
        return {}
    config = sampler.get_config()
    return {name: config[name] for name in _OF_SAMPLERS if name in config}
