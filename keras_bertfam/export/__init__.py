"""SavedModels that take strings."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.export.saved_model import export_saved_model

__all__ = [
    "export_saved_model",
]

lazy.attach(__name__)
