"""Callbacks that keep data, model and optimizer at the same point of a run."""

from keras_bertfam.callbacks.backup import BackupAndResume
from keras_bertfam.callbacks.stream_position import (
    SetStreamPosition,
    show_total,
    with_stream_position,
)

__all__ = [
    "BackupAndResume",
    "SetStreamPosition",
    "show_total",
    "with_stream_position",
]
