"""What a fine-tuning task says of itself, and who reads it."""

import ast
import pathlib

import pytest

import keras_bertfam
from keras_bertfam import tasks
from keras_bertfam.presets.inspection import FINE_TUNED
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


def named(path, name):
    """Tell whether code of a file, but for docstrings, names a class."""
    text = path.read_text(encoding="utf-8")
    if name not in text:
        return False
    for node in ast.walk(ast.parse(text)):
        if name in (getattr(node, "id", 0), getattr(node, "attr", 0)):
            return True
        if isinstance(node, ast.Constant | ast.alias | ast.ClassDef):
            if name in (getattr(node, "value", 0), getattr(node, "name", 0)):
                return True
    return False


# The others have counterparts in more libraries than one.
@pytest.mark.parametrize(
    "name", ["MultipleChoice", "SpanQuestionAnswering", "TokenClassifier"]
)
def test_few_files_know_a_task(name):
    package = pathlib.Path(keras_bertfam.__file__).parent
    found = [path for path in package.rglob("*.py") if named(path, name)]
    # Its own and the public names; and if there are such, a line each of what `predict`
    # lists and of the head in `transformers`, and the function of the SavedModel.
    assert len(found) <= 5, found
