"""Modeling and preprocessing layers and dataset transformations."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy, tokenizers
from keras_bertfam.layers import attention, blocks, corruption, data, heads

if TYPE_CHECKING:
    from keras_bertfam.layers.attention import *  # noqa: F403
    from keras_bertfam.layers.blocks import *  # noqa: F403
    from keras_bertfam.layers.corruption import *  # noqa: F403
    from keras_bertfam.layers.data import *  # noqa: F403
    from keras_bertfam.layers.heads import *  # noqa: F403
    from keras_bertfam.tokenizers import *  # noqa: F403

__all__ = [
    *attention.__all__,
    *blocks.__all__,
    *corruption.__all__,
    *data.__all__,
    *heads.__all__,
    *tokenizers.__all__,  # where they were public before
]

lazy.attach(__name__)
