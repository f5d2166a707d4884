"""The phases of a run of pre-training, as plain data that needs no framework."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from keras_bertfam.arguments import check_number, check_one_of, check_several
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES
from keras_bertfam.types import Config


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase of pre-training. Arguments left out are those of the phase before.

    There is one exception: a phase with another objective masks as that objective does
    by default, unless its `preprocessor_arguments` say otherwise.

    The phase continues the schedule of the phase before if it sets neither the learning
    rate nor the optimizer, and has the same objective and backbone arguments. One
    schedule then spans both phases. Otherwise the phase gets an optimizer and a
    schedule of its own.

    Args:
        steps: int. Batches of the phase.
        batch_size: int or `None`. Rows of a batch.
        sequence_length: int or `None`. Tokens of a row.
        objective: a key of `OBJECTIVES`, such as `"clm"` or `"mlm"`, or `None`.
        mix_exponent: float in [0, 1] or `None`, see
            `keras_bertfam.layers.sample_corpora`.
        languages: names of the mixture's corpora to read, or `None`.
        learning_rate: float or `None`. The peak.
        warmup_steps: int, or float below 1 as a share of the schedule; or `None`.
        optimizer_arguments: dict of other arguments of `pretraining_optimizer`.
        preprocessor_arguments: dict of arguments of the preprocessor, such as
            `mask_selection_rate`.
        dataset_arguments: dict of arguments of the preprocessor's `dataset`.
        backbone_arguments: dict of arguments of the backbone that change no weight,
            such as `rotary_base`.

    Raises:
        ValueError: for a value out of its range.

    Example:

    ```python
    phases = [
        keras_bertfam.tasks.Phase(steps=900, sequence_length=128, batch_size=64),
        keras_bertfam.tasks.Phase(steps=100, sequence_length=512, batch_size=16),
    ]
    ```
    """

    steps: int
    batch_size: int | None = None
    sequence_length: int | None = None
    objective: str | None = None
    mix_exponent: float | None = None
    languages: Sequence[str] | None = None
    learning_rate: float | None = None
    warmup_steps: float | None = None
    optimizer_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    preprocessor_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dataset_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    backbone_arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("steps", self.steps, 1, 2**31 - 1)
        if self.objective is not None:
            check_one_of("objective", self.objective, [*OBJECTIVES])
        if self.languages is not None:
            check_several("languages", self.languages)
        least: dict[str, tuple[float, float]] = {
            "batch_size": (1, 2**31 - 1),
            "sequence_length": (3, 2**31 - 1),
            "mix_exponent": (0.0, 1.0),
            "learning_rate": (0.0, float("inf")),
            "warmup_steps": (0.0, float("inf")),
        }
        for name, bounds in least.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), *bounds)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_arguments") and not isinstance(value, Mapping):
                raise ValueError(f"`{field.name}` must be a dict. Received: {value!r}.")

    def rates(self) -> Config:
        """Give the optimizer's arguments that the phase sets."""
        given = {n: getattr(self, n) for n in ("learning_rate", "warmup_steps")}
        given = {name: value for name, value in given.items() if value is not None}
        if given.get("warmup_steps", 0) >= 1:
            given["warmup_steps"] = int(given["warmup_steps"])
        return {**self.optimizer_arguments, **given}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Phase":
        """Make a phase from the settings in a file, by their names.

        Raises:
            ValueError: for an unknown name, a missing `steps`, or a wrong value.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(settings, Mapping) or "steps" not in settings:
            raise ValueError(
                "`phases` must be dicts with `steps` and the settings that change. "
                f"Received: {settings!r}."
            )
        for name in settings:
            if name not in known:
                raise ValueError(
                    f"A setting of `phases` must be one of {known}. Received: {name!r}."
                )
        return cls(**settings)
