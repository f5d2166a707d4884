"""Data of the published tasks, by name or from files."""

from keras_bertfam.datasets.examples import Examples
from keras_bertfam.datasets.loading import get_task, load_examples
from keras_bertfam.datasets.table import TASKS
from keras_bertfam.datasets.task_data import TaskData

__all__ = ["TASKS", "Examples", "TaskData", "get_task", "load_examples"]
