"""How many classes of the package one has to read to know a task or a backbone."""

import keras
import pytest

from keras_bertfam import models, tasks
from keras_bertfam.tasks.finetuning.fine_tuning import FineTuningTask

pytestmark = pytest.mark.any_backend
TASKS = [
    each
    for each in (getattr(tasks, name) for name in tasks.__all__)
    if isinstance(each, type) and issubclass(each, keras.Model)
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_few_classes_are_in_the_resolution_order(task):
    own = [base for base in task.__mro__ if base.__module__.startswith("keras_bertfam")]
    assert len(own) <= (7 if issubclass(task, FineTuningTask) else 6)


BACKBONES = [name for name in models.__all__ if name.endswith("Backbone")]


@pytest.mark.parametrize("name", BACKBONES)
def test_few_classes_are_in_that_of_a_backbone(name):
    order = getattr(models, name).__mro__
    own = [base for base in order if base.__module__.startswith("keras_bertfam")]
    assert len(own) <= 5


def test_all_tasks_are_found():
    assert len(TASKS) == 29
