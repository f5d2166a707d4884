"""Official metrics of the fine-tuning tasks."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.metrics.callback import TaskMetrics
    from keras_bertfam.metrics.dependencies import attachment_scores
    from keras_bertfam.metrics.mteb import MtebEncoder
    from keras_bertfam.metrics.open_questions import answer_recall, open_question_scores
    from keras_bertfam.metrics.scores import compute_metrics, scheme_of
    from keras_bertfam.metrics.squad import squad_scores

__all__ = [
    "MtebEncoder",
    "TaskMetrics",
    "answer_recall",
    "attachment_scores",
    "compute_metrics",
    "open_question_scores",
    "scheme_of",
    "squad_scores",
]

lazy.attach(__name__)
