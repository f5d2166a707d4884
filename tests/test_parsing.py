"""The reader of JSON and YAML, and that all that reads such files goes through it."""

import ast
import os
import pathlib

import pytest

import keras_bertfam
from keras_bertfam import parsing, retrieval
from keras_bertfam.cli.reproduce import paper_tables
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.corpora.manifest import Manifest
from keras_bertfam.datasets import files
from keras_bertfam.presets.checkpoints import reading
from tests.huge_numbers import seconds

pytestmark = pytest.mark.any_backend
DEEP, LONG = "[" * 100_000 + "]" * 100_000, "9" * 5_000
LAUGHS = "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]"
JSON = {
    DEEP: "at most 50 lists in each other",
    "[" * 51 + "]" * 51: "at most 50 lists in each other",
    '{"a": ' * 60 + "1" + "}" * 60: "at most 50 lists in each other",
    f"[{LONG}]": "at most 300 digits",
    "[1e]": "Expecting",
    "": "Expecting value",
}
YAML = {
    "[" * 3_000 + "]" * 3_000: "at most 50 lists in each other",
    "- " * 60 + "1": "at most 50 lists in each other",
    f"a: {LONG}": "at most 300 digits",
    f"{LONG}: a": "at most 300 digits",
    LAUGHS: r"no aliases, such as \*a",
    "a: !!python/object/apply:os.system [id]": "could not determine a constructor",
    "a: 2020-99-99": "month must be in 1..12",
    "a: [": "expected the node content",
    "a: \0": "special characters are not allowed",
}


@pytest.mark.parametrize(
    ("parse", "texts"), [(parsing.parse_json, JSON), (parsing.parse_yaml, YAML)]
)
def test_texts_that_do_harm(parse, texts):
    for text, message in texts.items():
        with pytest.raises(ValueError, match=message):
            parse(text)


def test_texts_that_do_none():
    text = '{"a": [1, -2.5, null, true, "é"], "b": {"c": []}}'
    for parse in (parsing.parse_json, parsing.parse_yaml):
        assert parse(text) == {"a": [1, -2.5, None, True, "é"], "b": {"c": []}}
    numbers = parsing.parse_yaml("[1e-6, -2E+3, .5e1, 1.0e-6, 1e6, e5, 1e, '1e-6']")
    assert numbers == [1e-6, -2e3, 5.0, 1e-6, 1e6, "e5", "1e", "1e-6"]
    assert parsing.parse_json('{"a": 1, "a": 2}', pairs=True) == [("a", 1), ("a", 2)]
    many = f"[{'[],' * 60_000}[]]"
    assert len(parsing.parse_json(many, many=True)) == 60_001
    with pytest.raises(ValueError, match="at most 50000 lists and objects"):
        parsing.parse_json(many)
    assert parsing.parse_json("[NaN]", nan=True)[0] != 0
    with pytest.raises(ValueError, match="there must be no NaN"):
        parsing.parse_json("[NaN]")


def folder_of(name, read):
    """A reader of a folder, given the path of a file in it."""
    return name, lambda path: read(os.path.dirname(path))


READERS = [
    ("x.json", parsing.read_json),
    ("x.json", reading.read_json),
    ("x.json", files.read_squad),
    ("x.jsonl", files.read_json),
    folder_of("manifest.json", Manifest.read),
    folder_of("manifest.json", retrieval.Index.load),
    ("x.yaml", parsing.read_yaml),
    ("run.yaml", PretrainingRun.read),
    ("table.yaml", paper_tables.read_table),
]


@pytest.mark.parametrize(("name", "read"), READERS)
def test_files_that_do_harm(name, read, tmp_path):
    path = tmp_path / name
    texts = YAML if name.endswith("yaml") else JSON
    contents = [t.encode() for t in texts if t] + [b'"a\n\xff"', b"\xff"]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=name) as caught:
            read(str(path))
        assert len(str(caught.value)) < 1_000
    path.unlink()
    os.mkfifo(path)
    with seconds(5), pytest.raises(ValueError, match="must be a file|is not a file"):
        read(str(path))


def test_a_text_that_is_not_utf8_is_named_by_its_line(tmp_path):
    (tmp_path / "x.json").write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(ValueError, match="x.json, line 2: text must be UTF-8"):
        parsing.read_json(tmp_path / "x.json")


def test_nothing_else_reads_json_or_yaml():
    # What a process says to itself, or another library's own text.
    allowed = {
        *("cli/demo.py", "corpora/batch_source.py", "corpora/manifest.py"),
        *("corpora/preparing/word_counts.py", "models/exported.py"),
        *("cli/reproduce/results.py", "parsing.py", "tokenizers/training.py"),
        *("corpora/mixed_source.py", "tasks/phases.py"),
    }
    root = pathlib.Path(keras_bertfam.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                pair = node.value.id, node.attr
                if pair in (("json", "load"), ("json", "loads"), ("yaml", "load")):
                    found.add(path.relative_to(root).as_posix())
    assert found == allowed
