"""Data of the published tasks, by name or from files."""

from typing import TYPE_CHECKING

from keras_bertfam import lazy

if TYPE_CHECKING:
    from keras_bertfam.datasets.examples import Examples
    from keras_bertfam.datasets.loading import load_examples
    from keras_bertfam.datasets.task_data import TASKS, TaskData, get_task
    from keras_bertfam.datasets.text_to_text import as_text_pairs, score_texts

__all__ = [
    "TASKS",
    "Examples",
    "TaskData",
    "as_text_pairs",
    "get_task",
    "load_examples",
    "score_texts",
]

lazy.attach(__name__)
