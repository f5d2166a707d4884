"""Tables of how KerasHub writes a family."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_bertfam.presets.families.rows import WeightMap


@dataclasses.dataclass(frozen=True)
class KerasHubTable:
    """A backbone class of KerasHub.

    Attributes:
        backbone: name of the class.
        config: dict from keys of a config of `transformers` to arguments.
        fixed: dict of what a config of `transformers` has for all its models.
        weights: tuple of `WeightMap`s of the backbone, from paths of variables, or of
            attributes with dots between, where layers have no names of their own.
        heads: dict from endings of its tasks' names to `WeightMap`s.
        first_position: int. WeightMaps of positions that it leaves out.
        choices: dict from keys of a config of `transformers` to dicts from its values
            to the arguments that they stand for, where these are several.
    """

    backbone: str
    config: Mapping[str, str]
    fixed: Mapping[str, Any]
    weights: tuple[WeightMap, ...]
    heads: Mapping[str, tuple[WeightMap, ...]] = dataclasses.field(default_factory=dict)
    first_position: int = 0
    choices: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict
    )
