"""Read files of facts for cloze tests, in LAMA's format."""

import os
import pathlib
from collections.abc import Iterable
from typing import Any

from keras_bertfam.analysis.likelihood import json_line_files
from keras_bertfam.arguments import checked
from keras_bertfam.parsing import check_keys, parse_json_lines
from keras_bertfam.types import Path

MASK, _SUBJECT, _OBJECT = "[MASK]", "[X]", "[Y]"
OWN_FACTS = pathlib.Path(__file__).parent / "facts"
_RELATIONS = "relations.jsonl"
# Google-RE's relations aren't in any file.
_GOOGLE = {
    "place_of_birth": "[X] was born in [Y] .",
    "date_of_birth": "[X] (born [Y]).",
    "place_of_death": "[X] died in [Y] .",
}
# Known keys that aren't used: sources of facts, and other questions about them.
_OF_RELATIONS = "relation template label type description template_negated".split()
_OF_FACTS = """sub_label obj_label masked_sentences judgments uuid id type pred
    predicate_id sub obj sub_uri obj_uri sub_w obj_w sub_aliases obj_aliases evidences
    negated""".split()


class Facts(list[tuple[str, str]]):
    """Holds the facts of a relation: tuples of a text with `[MASK]` and the object.

    Args:
        pairs: the tuples.
        kind: str, how many objects a subject may have, and the other way round:
            `"1-1"`, `"N-1"` or `"N-M"`; or `None`.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], kind: str | None = None):
        super().__init__(pairs)
        self.kind = kind


@checked
def read_facts(path: Path) -> dict[str, Facts]:
    """Read facts in LAMA's format.

    Each file of JSON lines has one relation. `relations.jsonl` gives templates for some
    of them, by the files' names without `.jsonl` and `_test`; the templates of
    Google-RE are built in. With a template, each pair of `sub_label` and `obj_label` is
    a fact, without duplicates. Files without a template have `masked_sentences` with
    `[MASK]` and an `obj_label`. A fact with more `judgments` against it than for it is
    left out.

    Args:
        path: path of a folder with such files or folders of them, or of LAMA's
            `data.zip`.

    Returns:
        Dict from names of relations, with the files' folders, to `Facts`. Several
        masked sentences of a fact are joined to one text.

    Raises:
        ValueError: for a path without such files, unknown keys, and facts without a
            text.

    Example:

    ```python
    import json, pathlib
    from keras_bertfam.analysis.fact_files import read_facts

    relation = {"relation": "P36", "template": "The capital of [X] is [Y] ."}
    pathlib.Path("lama/TREx").mkdir(parents=True)
    pathlib.Path("lama/relations.jsonl").write_text(json.dumps(relation))
    fact = {"sub_label": "France", "obj_label": "Paris"}
    pathlib.Path("lama/TREx/P36.jsonl").write_text(json.dumps(fact))
    read_facts("lama")  # {"TREx/P36": [("The capital of France is [MASK] .", "Paris")]}
    ```

    Reference: [Petroni et al., 2019](https://arxiv.org/abs/1909.01066), section 4, and
    the released code.
    """
    files = dict(sorted(json_line_files(path)))
    relations: dict[str, dict[str, Any]] = {
        name: {"template": template} for name, template in _GOOGLE.items()
    }
    for name in [file for file in files if pathlib.PurePath(file).name == _RELATIONS]:
        for place, row in parse_json_lines(files.pop(name), name):
            check_keys(place, row, ["relation", "template"], _OF_RELATIONS)
            relations[_text(place, row, "relation")] = row
            template = _text(place, row, "template")
            if not (_SUBJECT in template and _OBJECT in template):
                raise ValueError(
                    f"{place}: expected {_SUBJECT} and {_OBJECT} in 'template'. "
                    f"Received: {template!r}."
                )
            _check_strings(place, row, ("label", "type"))
    found = {}
    for file, text in files.items():
        stem = pathlib.PurePath(file).stem
        relation = relations.get(stem.removesuffix("_test"), {})
        pairs = [
            (_sentence(place, row, relation.get("template")), _object(place, row))
            for place, row in parse_json_lines(text, file)
            if _is_kept(place, row)
        ]
        if relation:
            pairs = [*dict.fromkeys(pairs)]
        name = ", ".join(
            filter(None, [file.removesuffix(".jsonl"), relation.get("label")])
        )
        found[name] = Facts(pairs, relation.get("type"))
    if not any(found.values()):
        raise ValueError(
            "`path` must be of a folder with facts in files of JSON lines, or of such "
            f"an archive. Received: {os.fspath(path)!r}."
        )
    return found


def _check_strings(place, row, keys):
    for key in keys:
        if not isinstance(row.get(key, ""), str):
            raise ValueError(
                f"{place}: expected a string as {key!r}. Received: {row[key]!r}."
            )


def _is_kept(place, row):
    """Check the keys of a fact, and tell whether its judges accept it."""
    check_keys(place, row, ["obj_label"], _OF_FACTS)
    try:
        judged = [each["judgment"] == "yes" for each in row.get("judgments", ())]
    except (KeyError, TypeError):
        raise ValueError(
            f"{place}: expected objects with 'judgment' in 'judgments'. "
            f"Received: {row['judgments']!r}."
        ) from None
    return 2 * sum(judged) >= len(judged)


def _object(place, row):
    return _text(place, row, "obj_label").strip()


def _sentence(place, row, template):
    if template is not None:
        subject = _text(place, row, "sub_label").strip()
        # The object is put in first: a subject may contain anything.
        return template.strip().replace(_OBJECT, MASK).replace(_SUBJECT, subject)
    given = row.get("masked_sentences")
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValueError(
            f"{place}: expected a list of strings as 'masked_sentences', as there is "
            f"no template for the file. Received: {given!r}."
        )
    if MASK not in (text := " ".join(given)):
        raise ValueError(
            f"{place}: expected {MASK} in 'masked_sentences'. Received: {text!r}."
        )
    return text


def _text(place, row, key):
    if not isinstance(row.get(key), str) or not row[key].strip():
        raise ValueError(
            f"{place}: expected a string as {key!r}. Received: {row.get(key)!r}."
        )
    return row[key]
