"""What a fine-tuning task says of itself, and who reads it."""

import pytest

from keras_bertfam import tasks
from keras_bertfam.presets.kinds import FINE_TUNED
from keras_bertfam.tasks.finetuning.fine_tuning import FineTuningTask

pytestmark = pytest.mark.any_backend
PUBLIC = [getattr(tasks, name) for name in tasks.__all__]


def test_commands_list_the_tasks_that_answer_tables():
    found = [each for each in PUBLIC if getattr(each, "text_columns", ())]
    assert sorted(FINE_TUNED) == [each.__name__ for each in found]
    for task in found:
        assert issubclass(task, FineTuningTask)
        assert task.answers is not FineTuningTask.answers
        assert task.pipeline
