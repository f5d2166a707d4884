"""SavedModels that take strings."""

from keras_bertfam.export.saved_model import export_saved_model

__all__ = ["export_saved_model"]
