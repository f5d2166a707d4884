"""Settings of pre-training runs by name."""

from typing import Any

from keras_bertfam.types import Config

# What is published is for days on accelerators. `quick` is what taught the most of what
# was tried in minutes on two cores (BENCHMARKS.md, "Learned per minute"). Positions
# from 64 on stay untrained.
RECIPES: dict[str, Config] = {
    "published": {},
    "quick": {
        "sequence_length": 64,
        "batch_size": 64,
        "learning_rate": 1e-3,
        "warmup_steps": 0.1,
        "backbone_arguments": {"dropout": 0.0},
        # From the peak straight down, where BERT's begin below it.
        "optimizer_arguments": {"schedule_form": "join"},
    },
}


def with_recipe(name: str, given: Config) -> Config:
    """Give the settings of a recipe, but for those that are given.

    Args:
        name: str, a key of `RECIPES`.
        given: dict. Of arguments that are dicts, the recipe's other keys stay.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in RECIPES:
        raise ValueError(f"`recipe` must be one of {[*RECIPES]}. Received: {name!r}.")
    return merged(RECIPES[name], given)


def merged(*parts: Config) -> Config:
    """Merge settings of runs; later ones take the place of earlier ones.

    Args:
        *parts: dicts. Of arguments that are dicts, the earlier ones' other keys stay.
    """
    found: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            both = isinstance(value, dict) and isinstance(found.get(name), dict)
            found[name] = {**found[name], **value} if both else value
    return found
