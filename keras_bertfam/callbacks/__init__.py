"""Callbacks that save a run's state and results, and show its progress."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.callbacks.backup import BackupAndResume
    from keras_bertfam.callbacks.preset_checkpoint import PresetCheckpoint
    from keras_bertfam.callbacks.tensorboard import TensorBoard

__all__ = [
    "BackupAndResume",
    "PresetCheckpoint",
    "TensorBoard",
]

lazy.attach(__name__)
