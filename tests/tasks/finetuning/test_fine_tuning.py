"""What a fine-tuning task says of itself, and who reads it."""

import ast
import inspect
import pathlib

import pytest

import keras_bertfam
from keras_bertfam import tasks
from keras_bertfam.presets.converting import heads
from keras_bertfam.presets.inspection import fine_tuned
from keras_bertfam.tasks.finetuning.fine_tuning import FineTuningTask

pytestmark = pytest.mark.any_backend
PUBLIC = [getattr(tasks, name) for name in tasks.__all__]
TASKS = [
    each
    for each in PUBLIC
    if inspect.isclass(each) and issubclass(each, FineTuningTask)
]


def test_commands_list_the_tasks_that_answer_tables():
    found = [each for each in PUBLIC if getattr(each, "text_columns", ())]
    assert [*fine_tuned()] == [each.__name__ for each in found]
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


PACKAGE = pathlib.Path(keras_bertfam.__file__).parent
# Files of other libraries and commands that are about one task.
ELSEWHERE = {
    "CrossEncoder": {"presets/checkpoints/sentence_transformers.py"},
    "OpenQuestionAnswering": {"cli/reproduce/open_questions.py"},
    "TextClassifier": {
        "cli/demo.py",
        "cli/reproduce/measures.py",
        "presets/checkpoints/kerashub.py",
        "presets/checkpoints/sentence_transformers.py",
        "presets/families/albert.py",
        "presets/families/bert.py",
        "presets/families/deberta_v2.py",
        "presets/families/distilbert.py",
        "presets/families/roberta.py",
    },
    "TextEmbedder": {
        "cli/prediction.py",
        "cli/reproduce/measures.py",
        "presets/checkpoints/sentence_transformers.py",
    },
    "TextRegressor": {"presets/checkpoints/sentence_transformers.py"},
    "SparseEncoder": {
        "presets/checkpoints/sentence_transformers.py",
        "presets/converting/heads.py",
        "presets/inspection.py",
    },
}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_a_task_is_named_in_three_files(task):
    name = task.__name__
    found = {path for path in PACKAGE.rglob("*.py") if named(path, name)}
    own = {inspect.getfile(each) for each in (task, task.preprocessor_cls)}
    own = {*map(pathlib.Path, own), PACKAGE / "tasks" / "__init__.py"}
    others = {path.relative_to(PACKAGE).as_posix() for path in found - own}
    assert others == ELSEWHERE.get(name, set())


def test_a_task_says_what_it_is_elsewhere():
    told = {task.__name__ for task in TASKS if task.serving_signatures}
    assert told == {*fine_tuned()}
    # What `transformers` has no class for.
    own = {"DependencyParser", "RelationClassifier"}
    assert own == {x.__name__ for x in TASKS if not x.counterpart} & {*fine_tuned()}
    assert {*fine_tuned()} - own <= heads.counterparts().keys()


def test_the_narrower_of_two_for_one_class_comes_first():
    found = [name for name in heads.counterparts() if name in heads.FINE_TUNING]
    assert found[:3] == ["TextRegressor", "CrossEncoder", "TextClassifier"]


def test_a_task_is_known_when_it_is_defined():
    cls = type(
        "TaskOfATest",
        (tasks.TokenClassifier,),
        {"counterpart": heads.Counterpart("ForTest", {"role_of_a_test": "head"})},
    )
    try:
        assert heads.counterpart(cls).ending == "ForTest"
        assert "role_of_a_test" in heads.fine_tuned_roles()
        # Checkpoints are told by the classes that Keras knows as ours.
        assert cls.__name__ not in heads.counterparts()
    finally:
        del heads.FINE_TUNING[cls.__name__]
