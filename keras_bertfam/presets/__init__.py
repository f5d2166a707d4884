"""Presets: checkpoints by name, other libraries' checkpoints, and hubs."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.presets.checkpoints.source import CheckpointError
    from keras_bertfam.presets.hub import upload_preset
    from keras_bertfam.presets.names import list_presets

__all__ = [
    "CheckpointError",
    "list_presets",
    "upload_preset",
]

lazy.attach(__name__)
