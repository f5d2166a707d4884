"""Checkpoints of other libraries, from and to ours, and hubs."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.presets.names import list_presets
    from keras_bertfam.presets.source import CheckpointError, CheckpointSource
    from keras_bertfam.presets.uploading import upload_preset

__all__ = ["CheckpointError", "CheckpointSource", "list_presets", "upload_preset"]

lazy.attach(__name__)
