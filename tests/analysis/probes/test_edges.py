"""The files of edge probing, a line of each kind of the paper's data."""

import dataclasses
import json

import numpy as np
import pytest

from keras_bertfam import datasets
from keras_bertfam.analysis import read_edges
from keras_bertfam.analysis.probes.data import read_targets
from keras_bertfam.analysis.probes.edges import has_edges

pytestmark = pytest.mark.any_backend
NOTES = {"document_id": "nw/1", "sentence_id": 0}
TEXT = "The old man sold his car ."
WORDS = TEXT.split()
KINDS = {
    "constituents": (
        [
            {"span1": [0, 1], "label": "DT", "info": {"height": 1, "adverbials": []}},
            {"span1": [0, 7], "label": "S", "info": {"height": 4, "adverbials": []}},
        ],
        [((0, 1), "DT"), ((0, 7), "S")],
    ),
    "entities": ([{"span1": [0, 3], "label": "PERSON"}], [((0, 3), "PERSON")]),
    "dependencies": (
        [{"span1": [3, 4], "span2": [3, 4], "label": "root"}],
        [((3, 4), (3, 4), "root")],
    ),
    "semantic roles": (
        [{"span1": [3, 4], "span2": [0, 3], "label": "ARG0"}],
        [((3, 4), (0, 3), "ARG0")],
    ),
    "coreference": (
        [{"span1": [0, 3], "span2": [4, 5], "label": "1"}],
        [((0, 3), (4, 5), "1")],
    ),
    "relations": (
        [
            {
                "label": "Other",
                "span1": [2, 3],
                "span2": [5, 6],
                "info": {"comment": ""},
            }
        ],
        [((2, 3), (5, 6), "Other")],
    ),
    "proto-roles": (
        [
            {"span1": [3, 4], "span2": [2, 3], "label": ["volition", "awareness"]},
            {"span1": [3, 4], "span2": [5, 6], "label": [], "info": {"is_pilot": 0}},
        ],
        [((3, 4), (2, 3), ["volition", "awareness"]), ((3, 4), (5, 6), [])],
    ),
    "pronouns": (
        [
            {
                "span1": [4, 5],
                "span2": [0, 3],
                "label": "entailed",
                "span1_text": "his",
                "span2_text": "The old man",
            }
        ],
        [((4, 5), (0, 3), "entailed")],
    ),
    "nothing": ([], []),
}


def write(path, *lines):
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(texts), "utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_the_papers_data(kind, tmp_path):
    targets, expected = KINDS[kind]
    line = {"text": TEXT, "info": NOTES, "targets": targets}
    empty = {"targets": [], "text": " Ça  va\u2028? "}
    path = write(tmp_path / "edges.json", line, "", json.dumps(empty), line)
    assert has_edges(path)
    words, labels = read_edges(path)
    assert words == [WORDS, ["Ça", "va", "?"], WORDS]
    assert labels == [expected, [], expected]
    assert read_edges(path, limit=2) == (words[:2], labels[:2])
    if expected:
        targets = read_targets(words, labels)
        spans = [[*span] for span in expected[0][:-1]]
        moved = [[begin + 10, end + 10] for begin, end in spans]
        assert targets.places[0].tolist() == spans
        assert targets.places[len(expected)].tolist() == moved
        names = {name for *_, label in expected for name in _listed(label)}
        assert targets.names == sorted(names)


def _listed(label):
    return label if isinstance(label, list) else [label]


TARGET = {"span1": [0, 1], "label": "a"}


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "must have a line. Received: none"),
        ("[]", r"line 1: expected an object. Received: \[\]"),
        ("{", "line 1: expected JSON"),
        ({"text": "a"}, "line 1: expected targets. Received: text"),
        ({"targets": []}, "line 1: expected text"),
        ({"text": "a", "targets": [], "label": 1}, "no other keys.*Received: label"),
        ({"text": ["a"], "targets": []}, "a string as 'text'"),
        ({"text": "a", "targets": {}}, "a list of 'targets'"),
        ({"text": "a", "targets": ["a"]}, "expected objects as targets"),
        ({"text": "a", "targets": [{"span1": [0, 1]}]}, "expected label"),
        ({"text": "a", "targets": [{**TARGET, "span3": 1}]}, "Received: span3"),
        ({"text": "", "targets": [TARGET]}, "within the 0 words"),
        *(
            ({"text": "a b", "targets": [{**TARGET, "span2": span}]}, "within the 2 w")
            for span in ([0, 3], [1, 1], [-1, 1], [1, 0], [0], 0, None, [0, 1.0])
        ),
        *(
            ({"text": "a", "targets": [{**TARGET, "label": label}]}, "as 'label'")
            for label in (1, None, [1], {"a": 1}, [["a"]])
        ),
    ],
)
def test_what_is_no_line(line, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_edges(write(tmp_path / "edges.json", line))


def test_other_files_are_told_apart(tmp_path):
    assert not has_edges(tmp_path / "x.conllu")
    for text in ("", "[", "5", '{"tokens": ["a"]}', '[{"targets": []}]'):
        assert not has_edges(write(tmp_path / "x.jsonl", text))


@pytest.mark.data
def test_parts_of_speech_are_those_of_the_other_reader(data_dir, tmp_path):
    """The same words and labels, and so the same probes."""
    path = str(data_dir / "ud_ewt" / "en_ewt-ud-dev.conllu")
    given = datasets.load_examples(path, label="upos", limit=300)
    lines = (
        {
            "text": " ".join(words),
            "info": {"source": "EWT"},
            "targets": [
                {"span1": [k, k + 1], "label": tag} for k, tag in enumerate(tags)
            ],
        }
        for words, tags in zip(given.x, given.y, strict=True)
    )
    words, labels = read_edges(write(tmp_path / "pos.json", *lines))
    assert words == [*map(list, given.x)] and len(words) == 300
    one, other = read_targets(words, labels), read_targets(given.x, given.y)
    for field in dataclasses.fields(one):
        values = (getattr(each, field.name) for each in (one, other))
        np.testing.assert_array_equal(*values)
