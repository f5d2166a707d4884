"""Callbacks that keep data, model and optimizer at the same point of a run."""

from keras_bertfam.callbacks.backup import BackupAndResume
from keras_bertfam.callbacks.stream_position import (
    SetStreamPosition,
    with_stream_position,
)

__all__ = ["BackupAndResume", "SetStreamPosition", "with_stream_position"]
