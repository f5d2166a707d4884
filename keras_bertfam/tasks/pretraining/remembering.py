"""Tasks whose rows go on from batch to batch."""

from typing import Any

from keras_bertfam.types import Mixin


class Remembering(Mixin):
    """Mixin of tasks with a memory of the batch before.

    Attributes:
        memory: the layer that remembers, or `None`.
    """

    memory: Any

    def _batched(self, data, batch_size, position=None):
        # With memory each row goes on where that of the batch before ended.
        position = position if self.memory is None else None
        return super()._batched(data, batch_size, position)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """As in Keras, with a memory of its own."""
        if self.memory is None:
            return super().evaluate(*args, **kwargs)
        with self.memory.put_aside():
            return super().evaluate(*args, **kwargs)
