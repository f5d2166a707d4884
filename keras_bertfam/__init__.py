"""Pre-training for the BERT family in Keras 3."""

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
from keras_bertfam.host_memory import keep_freed_memory
from keras_bertfam.version import __version__

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

keep_freed_memory()
