"""The official metrics of the fine-tuning tasks."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.metrics.callback import TaskMetrics
    from keras_bertfam.metrics.mteb import MtebEncoder
    from keras_bertfam.metrics.scores import METRICS, compute_metrics, scheme_of
    from keras_bertfam.metrics.squad import (
        answer_texts,
        best_null_threshold,
        normalize_answer,
        squad_scores,
    )

__all__ = [
    "METRICS",
    "MtebEncoder",
    "TaskMetrics",
    "answer_texts",
    "best_null_threshold",
    "compute_metrics",
    "normalize_answer",
    "scheme_of",
    "squad_scores",
]

lazy.attach(__name__)
