"""Callbacks that keep a run's state and its results, and show how it goes."""

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
