"""Checkpoints of other libraries, from and to ours."""

from keras_bertfam.presets.source import CheckpointError, CheckpointSource

__all__ = ["CheckpointError", "CheckpointSource"]
