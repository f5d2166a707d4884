import json
import zipfile

import pytest

from keras_bertfam.analysis.fact_files import OWN_FACTS, Facts, read_facts

pytestmark = pytest.mark.any_backend
RELATIONS = [
    {
        "relation": "P36",
        "template": "The capital of [X] is [Y] . ",
        "template_negated": "The capital of [X] is not [Y] .",
        "label": "capital",
        "description": "seat of government",
        "type": "1-1",
    },
    {"relation": "P999", "template": "[X] has no file like [Y] ."},
]
FILES = {
    "relations": RELATIONS,
    "TREx/P36": [
        {
            "uuid": "1",
            "obj_uri": "Q90",
            "obj_label": "Paris",
            "sub_uri": "Q142",
            "sub_label": "France ",
            "predicate_id": "P36",
            "evidences": [
                {
                    "sub_surface": "France",
                    "obj_surface": "Paris",
                    "masked_sentence": "[MASK], France",
                }
            ],
        },
        {"sub_label": "France", "obj_label": "Paris", "uuid": "2"},  # once more
        {"sub_label": "[Y] île", "obj_label": "Ôté"},
    ],
    "Google_RE/date_of_birth_test": [
        {
            "pred": "/people/person/date_of_birth",
            "sub": "/m/1",
            "obj": "1911",
            "evidences": [{"url": "u", "snippet": "s", "considered_sentences": []}],
            "judgments": [{"rater": "7", "judgment": said} for said in judged],
            "sub_w": None,
            "sub_label": name,
            "sub_aliases": [],
            "obj_w": None,
            "obj_label": "1911",
            "obj_aliases": [],
            "uuid": "3",
            "masked_sentences": ["Ann was born in [MASK]."],
        }
        for name, judged in [
            ("Ann", ["yes", "no"]),
            ("Ben", ["yes", "no", "no"]),
            ("Cid", []),
        ]
    ],
    "ConceptNet/test": [
        {
            "sub": "alive",
            "obj": "think",
            "pred": "HasSubevent",
            "masked_sentences": ["Who is alive can [MASK]."],
            "obj_label": "think",
            "uuid": "4",
        }
    ],
    "Squad/test": [
        {
            "masked_sentences": ["Who won?", "It was [MASK]."],
            "obj_label": "Denver",
            "id": "5_0",
            "sub_label": "Squad",
            "negated": ["It was not [MASK]."],
        }
    ]
    * 2,
}
EXPECTED = {
    "ConceptNet/test": [("Who is alive can [MASK].", "think")],
    "Google_RE/date_of_birth_test": [
        ("Ann (born [MASK]).", "1911"),
        ("Cid (born [MASK]).", "1911"),
    ],
    "Squad/test": [("Who won? It was [MASK].", "Denver")] * 2,
    "TREx/P36, capital": [
        ("The capital of France is [MASK] .", "Paris"),
        ("The capital of [Y] île is [MASK] .", "Ôté"),
    ],
}


def lines(rows):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n"


def write(folder, files):
    for name, rows in files.items():
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows if isinstance(rows, str) else lines(rows), "utf-8")
    return folder


def test_all_four_sources_from_a_folder_and_an_archive(tmp_path):
    folder = write(tmp_path / "data", FILES)
    found = read_facts(folder)
    assert found == EXPECTED and [*found] == sorted(found)
    assert {name: facts.kind for name, facts in found.items() if facts.kind} == {
        "TREx/P36, capital": "1-1"
    }
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for path in folder.rglob("*.jsonl"):
            archive.write(path, path.relative_to(tmp_path))
    packed = read_facts(tmp_path / "data.zip")
    assert packed == {f"data/{name}": facts for name, facts in EXPECTED.items()}


@pytest.mark.parametrize("packed", [False, True])
def test_files_and_members_of_archives_are_decoded_alike(packed, tmp_path):
    fact = json.dumps(FILES["ConceptNet/test"][0]).encode()

    def read(content):
        (tmp_path / "a.jsonl").write_bytes(content)
        if not packed:
            return read_facts(tmp_path)
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.write(tmp_path / "a.jsonl", "a.jsonl")
        return read_facts(tmp_path / "x.zip")

    assert read(b"\xef\xbb\xbf" + fact) == {"a": EXPECTED["ConceptNet/test"]}
    with pytest.raises(ValueError, match="a.jsonl, line 2: text must be UTF-8"):
        read(fact + b"\n\xff")


def test_own_facts():
    """Each relation has facts, none twice; templated ones and whole sentences."""
    found = read_facts(OWN_FACTS)
    assert len(found) == 7 and sum(map(len, found.values())) == 58
    for facts in found.values():
        assert isinstance(facts, Facts) and len({*facts}) == len(facts) > 5
        assert all(text.count("[MASK]") == 1 for text, _ in facts)
    assert found["everyday"].kind is None and found["capital"].kind == "1-1"


FACT = {"sub_label": "France", "obj_label": "Paris"}


@pytest.mark.parametrize(
    "files, message",
    [
        ({}, "`path` must be of a folder with facts"),
        ({"a": ""}, "`path` must be of a folder with facts"),
        ({"relations": RELATIONS}, "`path` must be of a folder with facts"),
        ({"a": "[]"}, r"a.jsonl, line 1: expected an object. Received: \[\]"),
        ({"a": "\n{"}, "a.jsonl, line 2: expected JSON"),
        ({"a": [{}]}, "line 1: expected obj_label. Received: ."),
        ({"a": [{**FACT, "answer": 1}]}, "no other keys than .*Received: answer"),
        ({"a": [FACT]}, "list of strings as 'masked_sentences'.*Received: None"),
        ({"a": [{**FACT, "masked_sentences": "[MASK]"}]}, "list of strings as 'm"),
        ({"a": [{**FACT, "masked_sentences": ["a"]}]}, r"expected \[MASK\] in"),
        ({"a": [{**FACT, "judgments": ["yes"]}]}, "objects with 'judgment'"),
        ({"a": [{**FACT, "judgments": 1}]}, "objects with 'judgment'"),
        ({"a": [{"obj_label": " ", "masked_sentences": ["[MASK]"]}]}, "as 'obj_label'"),
        (
            {"relations": RELATIONS, "P36": [{"obj_label": "Paris"}]},
            "P36.jsonl, line 1: expected a string as 'sub_label'. Received: None",
        ),
        ({"relations": [{"relation": "a"}]}, "expected template. Received: relation"),
        ({"relations": [{**RELATIONS[0], "x": 1}]}, "Received: x"),
        ({"relations": [{**RELATIONS[0], "template": "[X]"}]}, r"\[X\] and \[Y\] in"),
        ({"relations": [{**RELATIONS[0], "type": 1}]}, "a string as 'type'"),
    ],
)
def test_what_is_no_fact(files, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_facts(write(tmp_path, files))
