"""What makes a family of an encoder: the defaults in its record."""

import inspect
from typing import Any

from keras_bertfam.models.encoder import EncoderBackbone


class EncoderFamily(EncoderBackbone):
    """An `EncoderBackbone` whose defaults are those of its `record`.

    `help()` shows the arguments with these.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):
            own = cls.record.arguments
            parameters = inspect.signature(EncoderBackbone).parameters
            cls.__signature__ = inspect.Signature(
                [
                    each.replace(default=own.get(name, each.default))
                    for name, each in parameters.items()
                ]
            )

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            vocabulary_size,
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            **{**self.record.arguments, **kwargs},
        )
