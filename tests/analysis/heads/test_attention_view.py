"""The page of attentions in a browser: what is drawn, and what a text can't do."""

import re

import numpy as np
import pytest

from keras_bertfam.analysis.heads.attention import TextAttention
from keras_bertfam.analysis.heads.attention_view import AttentionView, attention_page
from keras_bertfam.analysis.pages import page
from tests.chromium import Chromium

HOSTILE = "</script><img src=x onerror='window.hacked = 1'><b>&quot;"
TOKENS = ["[CLS]", "the", HOSTILE, "[SEP]", "a", "dog", "[SEP]"]
SEGMENTS = [0, 0, 0, 0, 1, 1, 1]
LINES = "document.querySelector('#lines')?.toDataURL()"
PRESSED = "[...document.querySelectorAll('.head[aria-pressed=true]')].map(b => b.id)"
READY = "document.body?.dataset.ready === 'true'"


def made(tokens=TOKENS, heads=(3, 2), width=4, causal=False, name="self", to=None):
    """Attention of random queries and keys, its weights without any bias."""
    rng = np.random.default_rng(len(tokens))
    to = to or tokens
    segments = [SEGMENTS[k % 7] for k in range(max(len(tokens), len(to)))]
    queries, keys = (
        [
            rng.normal(size=(count, len(side), width)).astype("float32")
            for count in heads
        ]
        for side in (tokens, to)
    )
    queries = [query / width**0.5 for query in queries]
    weights = []
    for query, key in zip(queries, keys, strict=True):
        scores = query @ key.transpose(0, 2, 1)
        if causal:
            scores += np.triu(np.full(scores.shape[1:], -1e9), 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        weights.append(scores / scores.sum(-1, keepdims=True))
    sides = (tokens, to, segments[: len(tokens)], segments[: len(to)])
    return TextAttention(name, *sides, causal, weights, queries, keys)


ONE = made()
TWO_SIDES = [
    made(["x", "y", "z"], name="encoder"),
    made(["u", "v"], name="decoder", causal=True),
    made(["u", "v"], name="cross", to=["x", "y", "z"]),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def opened(browser, tmp_path):
    """The browser with the page of a pair and of a model of two sides."""
    path = tmp_path / "attention.html"
    path.write_text(attention_page([HOSTILE, "two"], [[ONE], TWO_SIDES]), "utf-8")
    browser.prefer("light")
    browser.open(path)
    browser.wait_for(READY)
    yield browser
    assert not browser.complaints()
    assert browser.loaded() == [path.as_uri()]


def after(browser, act, expression=LINES):
    """What an expression is before an act, and then; the page draws at once."""
    before = browser.run(expression)
    act()
    browser.run("new Promise((then) => setTimeout(then, 50))")
    return before, browser.run(expression)


def test_heads_are_clicked(opened):
    assert opened.run(PRESSED) == ["head-0", "head-1", "head-2"]
    before, without = after(opened, lambda: opened.click("#head-1"))
    assert before != without and opened.run(PRESSED) == ["head-0", "head-2"]
    _, again = after(opened, lambda: opened.click("#head-1"))
    assert again == before
    _, alone = after(opened, lambda: opened.click("#head-2", times=2))
    assert alone not in (before, without) and opened.run(PRESSED) == ["head-2"]
    _, all_heads = after(opened, lambda: opened.click("#all"))
    assert all_heads == before


def test_a_token_under_the_mouse_says_its_weights(opened):
    weights = "[...document.querySelectorAll('.to .token')].map(t => t.dataset.weight)"
    none, seen = after(opened, lambda: opened.point("#from-4"), weights)
    expected = 100 * np.rint(255 * ONE.weights[0])[:, 4].mean(0) / 255
    assert set(none) == {""}
    shown = [float(text.split()[0]) for text in seen]
    np.testing.assert_allclose(shown, expected, atol=0.051)
    opened.run("document.querySelector('#segments').value = '1 0'")
    opened.run("document.querySelector('#segments').dispatchEvent(new Event('change'))")
    _, seen = after(opened, lambda: opened.point("#from-5"), weights)
    assert seen[4:] == ["0.0 %"] * 3 and "0.0 %" not in seen[:4]


def test_the_model_has_a_picture_of_each_head(opened):
    pictures = "document.querySelectorAll('.thumbnail').length"
    after(opened, lambda: opened.press("2"))
    assert opened.run(pictures) == 5
    one = "document.querySelector('#thumbnail-1-1 canvas').toDataURL()"
    assert opened.run(one) != opened.run(one.replace("1-1", "1-0"))
    opened.click("#layerFilter")
    opened.ask("Input.insertText", text="1")
    opened.wait_for(f"{pictures} === 2")
    after(opened, lambda: opened.click("#thumbnail-1-1"))
    assert opened.run(PRESSED) == ["head-1"]
    assert opened.run("document.querySelector('#layer').value") == "1"


def test_neurons_explain_the_weights(opened):
    after(opened, lambda: opened.press("3"))
    opened.press("]")
    _, rows = after(
        opened,
        lambda: opened.press("ArrowRight"),
        "[...document.querySelectorAll('.neurons tr')].slice(1).map(row => "
        "[...row.cells].map(cell => cell.innerText))",
    )
    [head] = opened.run(PRESSED)
    number = int(head[-1])
    scores = ONE.keys[0][number] @ ONE.queries[0][number, 1]
    assert [row[0] for row in rows] == TOKENS
    np.testing.assert_allclose([float(row[3]) for row in rows], scores, atol=0.1)
    shown = [float(row[4].split()[0]) for row in rows]
    np.testing.assert_allclose(shown, 100 * ONE.weights[0][number, 1], atol=0.3)


def test_two_sides_and_what_is_hidden(opened):
    def choose(name, value):
        element = f"document.querySelector('#{name}')"
        opened.run(f"{element}.value = '{value}'")
        opened.run(f"{element}.dispatchEvent(new Event('change'))")

    tokens = "['from', 'to'].map(side => [...document.querySelectorAll("
    tokens += "`.${side} .token`)].map(token => token.innerText))"
    after(opened, lambda: choose("text", 1))
    assert opened.run(tokens) == [["x", "y", "z"]] * 2
    after(opened, lambda: choose("kind", 2))
    assert opened.run(tokens) == [["u", "v"], ["x", "y", "z"]]
    after(opened, lambda: choose("kind", 1))
    after(opened, lambda: opened.press("3"))
    cells = "document.querySelectorAll('.neurons td:nth-child(4)')"
    first, second = opened.run(f"[...{cells}].map(cell => cell.innerText)")
    assert second == "not seen" != first


def test_keys_and_colours(opened):
    layer = "document.querySelector('#layer').value"
    assert after(opened, lambda: opened.press("ArrowDown"), layer) == ("0", "1")
    assert after(opened, lambda: opened.press("ArrowDown"), layer) == ("1", "0")
    assert after(opened, lambda: opened.press("ArrowRight"), PRESSED)[1] == ["head-0"]
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = after(opened, lambda: opened.prefer("dark"), paper)
    assert light == "rgb(255, 255, 255)" != dark
    assert after(opened, lambda: opened.click("#theme"), paper) == (dark, dark)
    assert after(opened, lambda: opened.click("#theme"), paper) == (dark, light)


def test_a_text_is_only_a_text(opened):
    assert opened.run("document.querySelector('#from-2').innerText") == HOSTILE
    options = "[...document.querySelectorAll('#text option')].map(o => o.innerText)"
    assert opened.run(options)[0] == f"1: {HOSTILE}"
    assert opened.run("[window.hacked, document.querySelector('img, b')]") == [None] * 2


def test_several_in_a_page(browser, tmp_path):
    """Also within a page that runs no scripts itself."""
    views = [AttentionView(attention_page(["x"], [[part]])) for part in TWO_SIDES[:2]]
    frames = "".join(view._repr_html_() for view in views)
    for name, text in [
        ("notebook", f"<!doctype html><body>{frames}"),
        ("report", page("two", frames, ["overview.css"])),
    ]:
        path = tmp_path / f"{name}.html"
        path.write_text(text, "utf-8")
        browser.open(path)
        browser.wait_for_frames(2, READY)
        counts = "document.querySelectorAll('.from .token').length"
        assert browser.run_in_frames(counts) == [3, 2]
        assert not browser.complaints()


@pytest.mark.slow
def test_the_page_is_small_and_loads_nothing():
    tokens = [f"token{k}" for k in range(64)]
    html = attention_page(["x"], [[made(tokens, heads=[12] * 12, width=64)]])
    assert len(html.encode()) <= 1_000_000
    assert not re.findall(r"https?://|url\(|import[ (]", html)
    small = attention_page(["x"], [[made(tokens, heads=[12] * 12)]], neurons=False)
    assert len(small.encode()) < 450_000 and '"queriesUnits":' not in small
