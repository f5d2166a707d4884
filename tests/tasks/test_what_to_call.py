"""A task's docstring says what to call, and the page of the API has it in a table."""

import re

import keras
import pytest

from keras_bertfam import tasks
from tests.checkout import ROOT

pytestmark = pytest.mark.any_backend
TASKS = {
    name: cls
    for name in tasks.__all__
    if isinstance(cls := getattr(tasks, name), type) and issubclass(cls, keras.Model)
}
METHOD = re.compile(r"`(\w+)\(\)`")
# What users ask a task for. Other methods are for the library's own parts.
ASKED = {
    "choose",
    "classify",
    "fill_mask",
    "from_teacher",
    "generate",
    "parse",
    "passage_vectors",
    "perplexity",
    "query_vectors",
    "report",
    "similarity",
    "tag",
    "tune_null_threshold",
}


@pytest.mark.parametrize("name", TASKS)
def test_the_second_paragraph_says_what_to_call(name):
    cls = TASKS[name]
    _, said, *_ = cls.__doc__.split("\n\n")
    called = METHOD.findall(said)
    assert said.strip().startswith("Call `fit()` to train")
    assert all(callable(getattr(cls, method)) for method in called)
    assert {method for method in ASKED if hasattr(cls, method)} <= {*called}
    page = (ROOT / "docs/api/tasks.md").read_text("utf-8")
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", page, re.M)
    assert METHOD.findall(row) == [*dict.fromkeys(called)]


def test_what_all_tasks_add():
    page = (ROOT / "docs/api/tasks.md").read_text("utf-8")
    (said,) = re.findall(r"All tasks add (.*?)\.", page, re.S)
    for method in METHOD.findall(said):
        assert all(hasattr(cls, method) for cls in TASKS.values())
