"""What README.md says is so: its names, links, figures, and that it is short."""

import operator
import re

import pytest

import keras_bertfam
from tests.checkout import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"\bkeras_bertfam\.([A-Za-z]\w*(?:\.\w+)*)", README)))
GUIDES = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.md")]
EXAMPLES = sorted(set(re.findall(r"\bexamples/\w+\.py", "".join(GUIDES))))


@pytest.mark.parametrize("name", NAMES)
def test_name_is_reachable(name):
    operator.attrgetter(name)(keras_bertfam)


@pytest.mark.parametrize("path", EXAMPLES)
def test_example_exists(path):
    assert (ROOT / path).is_file()


def test_it_can_be_read_at_once():
    lines = README.splitlines()
    assert len(lines) <= 150
    first_screen = "\n".join(lines[:25])
    assert "    make demo" in first_screen and "    make test" in first_screen
    prose = re.sub(r"```.*?```|^\|.*$|^    .*$|^!.*$", "", README, flags=re.S | re.M)
    sentences = re.split(r"[.:!?]\s", prose)
    assert max(len(sentence.split()) for sentence in sentences) <= 35


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]*)\)", README))))
def test_links_lead_somewhere(link):
    path, _, anchor = link.partition("#")
    text = (ROOT / path).read_text(encoding="utf-8")
    heads = {
        re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-")
        for head in re.findall(r"^#+ (.*)$", text, re.M)
    }
    assert not anchor or anchor in heads


def test_figures_are_those_that_were_measured():
    measured = (ROOT / "BENCHMARKS.md").read_text(encoding="utf-8")
    (table,) = re.findall(
        r"(?:^\| (?:masked accuracy after|step of) .*\n)+", README, re.M
    )
    figures = re.findall(r"\b(?:0\.\d+|[\d,]+(?= ms))", table)
    assert len(figures) == 8
    for figure in figures:
        assert re.search(rf"\| {re.escape(figure)} \|", measured), figure
    for name in re.findall(r"`'?([\w-]+)\*?'? --rounds", table):
        assert name.removesuffix("-*") in measured


def test_tasks_and_families_of_the_table():
    for name in re.findall(r"`([A-Z]\w+)`", README):
        assert hasattr(keras_bertfam.tasks, name), name
    pages = (ROOT / "docs/papers/index.md").read_text(encoding="utf-8")
    (rows,) = re.findall(
        r"\| masked language models .*\n\| other .*\n\| text to .*", README
    )
    for name in re.findall(r"[A-Z][\w-]+", rows):
        assert name in pages, name
