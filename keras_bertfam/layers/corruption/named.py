"""Small objects by name: strategies, objectives."""

import inspect
from typing import Any, ClassVar

import keras

from keras_bertfam.lazy import Registry
from keras_bertfam.types import Config


class KnownByName:
    """Base of kinds of objects that can be asked for by name.

    A kind is a direct subclass with a `kind` and a `Registry` `named` of its own. A
    class of the kind with a `name`, whose arguments have defaults, can be asked for by
    it as soon as it is defined.
    """

    kind: ClassVar[str] = ""
    name: ClassVar[str | None] = None
    named: ClassVar[Registry] = Registry()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        name = vars(cls).get("name")
        if name is None:
            return
        known = cls.named.enter(name, cls)
        if known is not cls:
            raise ValueError(
                f"`name` must be that of no other {cls.kind}. Received: {name!r} of "
                f"{cls.__name__}, which is the name of {known.__name__}."
            )

    def get_config(self) -> Config:
        """Collect the attributes that have the names of the constructor's arguments."""
        arguments = inspect.signature(type(self)).parameters.values()
        names = [each.name for each in arguments if each.kind is not each.VAR_KEYWORD]
        return {name: _as_config(getattr(self, name)) for name in names}

    @classmethod
    def from_config(cls, config: Config) -> Any:
        return cls(**config)

    @classmethod
    def get(cls, identifier: Any) -> Any:
        """Return an object of this kind, given itself, its config or its name.

        Raises:
            ValueError: for anything else, with the names there are.
        """
        if isinstance(identifier, dict):
            identifier = keras.saving.deserialize_keras_object(identifier)
        if isinstance(identifier, cls):
            return identifier
        if isinstance(identifier, str) and identifier in cls.named:
            return cls.named[identifier]()
        article = "an" if cls.__name__[0] in "AEIOU" else "a"
        raise ValueError(
            f"`{cls.kind}` must be {article} {cls.__name__} or one of "
            f"{sorted(cls.named)}. Received: {identifier!r}."
        )


def _as_config(value):
    """Replace objects of these kinds in an argument by their configs."""
    if isinstance(value, list):
        return [*map(_as_config, value)]
    if isinstance(value, KnownByName):
        return keras.saving.serialize_keras_object(value)
    return value
