"""The names that README.md gives exist after `import keras_bertfam`."""

import operator
import pathlib
import re

import pytest

import keras_bertfam

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"\bkeras_bertfam\.([A-Za-z]\w*(?:\.\w+)*)", README)))
EXAMPLES = sorted(set(re.findall(r"\bexamples/\w+\.py", README)))


@pytest.mark.parametrize("name", NAMES)
def test_name_is_reachable(name):
    operator.attrgetter(name)(keras_bertfam)


@pytest.mark.parametrize("path", EXAMPLES)
def test_example_exists(path):
    assert (ROOT / path).is_file()
