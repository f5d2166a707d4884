"""Write SavedModels that take strings, and round the weights of ONNX files."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.export.saved_model import export_saved_model
    from keras_bertfam.models.int8 import Int8Settings

__all__ = [
    "Int8Settings",
    "export_saved_model",
]

lazy.attach(__name__)
