"""The pictures of papers' pages: each has one, which shows what layers compute."""

import functools
import importlib.util
import re
import sys
import types
from xml.etree import ElementTree

import numpy as np
import pytest

from keras_bertfam import layers
from tests.checkout import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(page.stem for page in (DOCS / "papers").glob("*.md"))
PAGES.remove("index")
pytestmark = pytest.mark.any_backend


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def objectives():
    """The script, which computes each picture once."""
    module = load("objectives")
    module.PICTURES = {k: functools.cache(f) for k, f in module.PICTURES.items()}
    yield module
    del sys.modules["objectives"]


@pytest.fixture(scope="module")
def rows_of(objectives):
    """The rows of a page's picture: labels, and cells without gaps."""

    def rows(name):
        found = []
        for block in objectives.PICTURES[name]():
            for band in block:
                if isinstance(band, objectives.Row):
                    found.append((band.label, band.cells))
        return found

    return rows


def texts(cells):
    return [cell.text for cell in cells]


def seen(rows):
    return np.array([[cell.kind == "seen" for cell in cells] for _, cells in rows])


def test_each_page_has_a_picture(objectives):
    assert sorted(objectives.PICTURES) == PAGES


def test_it_stands_before_the_first_section(objectives, monkeypatch):
    hooks = load("hooks")
    monkeypatch.setattr(hooks, "objectives", lambda: objectives)
    text = (DOCS / "papers" / "gpt.md").read_text("utf-8")

    def page(uri):
        file = types.SimpleNamespace(src_uri=uri, name=uri.split("/")[-1][:-3])
        return types.SimpleNamespace(file=file)

    def made(uri):
        return hooks.on_page_markdown(text, page(uri), config=None, files=None)

    assert made("papers/index.md") == made("quick_start.md") == text
    shown = made("papers/gpt.md")
    (figure,) = re.findall(r"\n<figure .*</figure>\n", shown)
    assert shown.replace(figure, "") == text
    assert shown.index("# GPT") < shown.index(figure) < shown.index("\n## ")
    whole = hooks.on_post_page(shown, page("papers/gpt.md"), config=None)
    svg = objectives.drawn("gpt")
    assert whole == shown.replace(hooks.PLACE, svg) and svg in whole


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_what_is_drawn(objectives, name):
    """Well-formed, small, in the page's colours, described, and nothing is cut off."""
    drawn = objectives.drawn(name)
    assert len(drawn) < 9000 and len(objectives.caption(name)) > 60
    svg = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    (title,) = svg.findall(f"{space}title")
    width, height = map(float, svg.get("viewBox").split()[2:])
    assert 0.72 * width <= 366  # what a narrow page has
    assert svg.get("role") == "img" and not svg.findall(f".//{space}rect")
    assert not re.search(r"#[0-9a-f]{3}|rgb|hsl", drawn)
    for element in svg.iter():
        assert element.get("fill", "none") in ("none", "currentColor")
        assert element.get("stroke", "none") in ("none", "currentColor")
    styles = (DOCS / "site.css").read_text("utf-8")
    for path in svg.iter(f"{space}path"):
        assert f".{path.get('class')}" in styles
        for x, y in re.findall(r"M([\d.]+) ([\d.]+)", path.get("d")):
            assert 0 < float(x) < width and 0 < float(y) < height
    for group in svg.iter(f"{space}g"):
        size = float(group.get("font-size", 0))
        for text in group.findall(f"{space}text"):
            assert text.text
            letter = 0.6 if group.get("font-family") == "monospace" else 0.52
            long = letter * size * len(text.text)
            anchor = group.get("text-anchor", "start")
            left = {"start": 0, "middle": long / 2, "end": long}[anchor]
            assert 0 <= float(text.get("x")) - left <= width - long
            assert text.text in title.text  # the alternative text


def test_masks_are_the_layers(objectives, rows_of):
    """RoBERTa's four epochs, and what an ELECTRA generator was given."""
    words = objectives.TEXT.split()
    ids = [objectives.CLS, *map(objectives.WORDS.index, words), objectives.SEP]
    names = {"<s>": "[CLS]", "</s>": "[SEP]", "<mask>": "[MASK]"}
    layer = layers.MaskTokens(
        len(objectives.WORDS),
        objectives.MASK,
        unselectable_token_ids=[objectives.CLS, objectives.SEP],
        random_token_ids=objectives.PLAIN,
        mask_selection_rate=0.2,
    )
    drawn = [texts(cells) for label, cells in rows_of("roberta") if "epoch" in label]
    assert len({*map(tuple, drawn)}) == 4
    for epoch, row in enumerate(drawn):
        expected = np.array(layer(ids, seed=[0, 2 + epoch])["token_ids"])
        assert [names.get(word, word) for word in row] == [
            objectives.WORDS[number] for number in expected
        ]


@pytest.mark.parametrize("name", ["macbert", "neobert", "spanbert"])
def test_targets_restore_the_text(rows_of, name):
    rows = dict(rows_of(name)[::-1])
    restored = [
        target.text or cell.text
        for cell, target in zip(rows["input"], rows["target"], strict=True)
    ]
    assert restored == texts(rows["text"]) != texts(rows["input"])
    changed = [cell.kind in ("mask", "noise", "kept") for cell in rows["input"]]
    assert changed == [cell.kind == "target" for cell in rows["target"]]


def test_replaced_tokens(objectives, rows_of):
    again = load("objectives")
    assert again.drawn("electra") == objectives.drawn("electra")
    rows = dict(rows_of("electra"))
    replaced = [
        str(int(a != b))
        for a, b in zip(texts(rows["text"]), texts(rows["sampled"]), strict=True)
    ]
    assert texts(rows["target"]) == replaced
    assert {cell.kind for cell in rows["sampled"]} >= {"noise", "kept"}
    for masked, sampled in zip(rows["masked"], rows["sampled"], strict=True):
        assert (masked.kind == "mask") == (sampled.kind in ("noise", "kept"))


def test_sentinels_and_noises(objectives, rows_of):
    (_, text), (_, reads), (_, writes), *_ = rows_of("t5")
    spans = re.split(r" ?(<.>) ?", " ".join(texts(writes)))[1:]
    spans = dict(zip(spans[::2], spans[1::2], strict=True))
    assert len(spans) > 1
    restored = " ".join(spans.get(word, word) for word in texts(reads))
    assert restored.split() == texts(text)
    rows = {label: texts(cells) for label, cells in rows_of("bart")}
    whole = rows["writes"]
    for name in ("sentences", "rotated"):
        assert sorted(rows[name]) == sorted(whole) and rows[name] != whole
    assert " ".join(rows["rotated"]) in " ".join(whole * 2)
    for name in ("masked", "infilled"):
        pattern = {"masked": r"\\S+", "infilled": ".*"}[name].replace("\\\\", "\\")
        parts = [pattern if w == "[MASK]" else re.escape(w) for w in rows[name]]
        assert "[MASK]" in rows[name] and re.fullmatch(" ".join(parts), " ".join(whole))
    left = iter(whole)
    assert all(word in left for word in rows["deleted"]) and len(rows["deleted"]) < 9


def test_what_is_seen(rows_of):
    lines = [row for row in rows_of("gpt") if row[1][0].kind in ("seen", "unseen")]
    assert np.array_equal(seen(lines), np.tri(len(lines)))
    first = seen(rows_of("longformer"))
    place = np.arange(10)
    apart = abs(place[:, None] - place)
    is_global = (place == 0) | (place[:, None] == 0)
    blank = np.zeros((10, 1), bool)
    near, gaps = apart <= 2, (apart <= 4) & (apart % 2 == 0)
    expected = np.hstack([near, blank, gaps, blank, near | is_global])
    assert np.array_equal(first, expected)
    (_, order), (_, _), *lines = rows_of("xlnet")
    ranks = np.array([int(cell.text or 0) for cell in order])
    told = np.flatnonzero(ranks)
    assert [*ranks[told]] != sorted(ranks[told])
    content = ranks[:, None] >= ranks
    query = ranks[told][:, None] > ranks
    assert np.array_equal(seen(lines), np.vstack([content, query]))


@pytest.mark.slow
def test_orders_of_sentences(rows_of):
    rows = rows_of("albert")
    (_, ordered), _, (_, swapped) = rows[:3]
    halves = " ".join(texts(swapped))[6:-6].split(" [SEP] ")
    assert " ".join(texts(ordered))[6:-6].split(" [SEP] ") == halves[::-1]
    assert texts(rows[4][1]) == ["30,000 x 768", "", "23.0 million"]
    assert rows[5][1][-1].text == "3.9 million"
    labels = [cells[0].text for label, cells in rows_of("structbert")[3:]]
    assert labels[1::2] == ["next", "before", "other"]
