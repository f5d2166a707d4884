"""Checkpoints of other libraries, from and to ours."""

from keras_bertfam.presets.names import list_presets
from keras_bertfam.presets.source import CheckpointError, CheckpointSource

__all__ = ["CheckpointError", "CheckpointSource", "list_presets"]
