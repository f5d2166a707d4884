"""Models that say so when it's too late to change an argument."""

from collections.abc import Sequence
from typing import Any

from keras_bertfam.types import Mixin


class FixedArguments(Mixin):
    """Mixin of models that refuse to change arguments that layers were made with.

    Set later, such an attribute would appear in the config and change nothing.

    Attributes:
        fixed_arguments: names of attributes that are set once.
    """

    fixed_arguments: Sequence[str] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.fixed_arguments and vars(self).get(name, value) != value:
            raise ValueError(
                f"`{name}` must be given when a {type(self).__name__} is made, to the "
                "constructor or `from_preset`: its layers are made with it. Expected: "
                f"{name}={vars(self)[name]!r}. Received: {value!r}."
            )
        super().__setattr__(name, value)
