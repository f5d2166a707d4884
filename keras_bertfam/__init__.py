"""Pre-training for the BERT family in Keras 3."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy
from keras_bertfam.keras_quirks import saved_names
from keras_bertfam.version import __version__

if TYPE_CHECKING:
    from keras_bertfam import (
        analysis,
        callbacks,
        corpora,
        corpus,
        datasets,
        distribution,
        export,
        layers,
        metrics,
        models,
        optimizers,
        presets,
        retrieval,
        tasks,
        tokenizers,
    )

__all__ = [
    "__version__",
    "analysis",
    "callbacks",
    "corpora",
    "corpus",
    "datasets",
    "distribution",
    "export",
    "layers",
    "metrics",
    "models",
    "optimizers",
    "presets",
    "retrieval",
    "tasks",
    "tokenizers",
]

lazy.attach(__name__)
saved_names.when_imported()
