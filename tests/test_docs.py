"""What the site says is so: its links, tables, commands, messages and code."""

import ast
import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys

import keras
import pytest
import typer

import keras_bertfam
from keras_bertfam import layers, models, optimizers, tasks
from keras_bertfam.cli.app import app
from keras_bertfam.presets.families import BACKBONES
from tests.checkout import ROOT
from tests.chromium import Chromium
from tests.test_documented_code import BLOCK, files, no_uploads  # noqa: F401

DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
PAPERS = [page for page in PAGES if page.startswith("papers/")]
pytestmark = pytest.mark.any_backend
# Pages run with numbers like these in place of their own.
TINY = {
    "accumulation_steps": 2,
    "batch_size": 4,
    "epochs": 1,
    "mask_selection_length": 5,
    "memory_length": 12,
    "passage_length": 16,
    "query_length": 16,
    "reuse_length": 8,
    "sequence_length": 32,
}


def text_of(page):
    return (DOCS / page).read_text("utf-8")


def hooks():
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Scripts that are pages and notebooks, and the guides that they belong to.
NOTEBOOKS = {
    "tutorials/pretrain.py": "quick_start.md",
    "tutorials/classify.py": "fine_tuning.md",
    "tutorials/search.py": "fine_tuning.md",
    "gallery.py": "fine_tuning.md",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site; links and anchors inside of it are checked by the build."""
    pytest.importorskip("mkdocstrings_handlers.python")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", folder], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > len(PAGES)
    loaded = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"(https?:[^\"]*)\"")
    styles = re.compile(r"<link[^>]*\shref=\"(https?:[^\"]*)\"[^>]*stylesheet")
    for page in pages:
        html = page.read_text("utf-8")
        assert not loaded.findall(html) + styles.findall(html), page
    for page in {*PAPERS} - {"papers/index.md"}:
        html = (site / page).with_suffix(".html").read_text("utf-8")
        assert html.count('<figure class="objective"><svg') == 1, page
    built = (site / "api" / "layers.html").read_text("utf-8")
    assert "<strong>Call arguments:</strong>" in built
    assert 'id="keras_bertfam.layers.corruption.MaskTokens"' in built


@pytest.mark.slow("release")
def test_search_from_the_disk(site, tmp_path):
    """Without a server, and without the words of pictures."""
    browser = Chromium(tmp_path)
    try:
        browser.open(site / "papers" / "bert.html")
        browser.click("[data-bs-target='#mkdocs_search_modal']")
        browser.wait_for("document.activeElement.id === 'mkdocs-search-query'")
        found = "[...document.querySelectorAll('#mkdocs-search-results a')]"
        for text, title, place in (
            ("MaskTok", "layers: MaskTokens", "layers.corruption.MaskTokens"),
            ("span boundary", "SpanBERT", "papers/spanbert.html"),
            ("howls", None, None),  # of the pictures' text
        ):
            browser.run(
                f"document.activeElement.value = {text!r};"
                "document.activeElement.dispatchEvent(new Event('input'))"
            )
            if title is None:
                browser.wait_for("document.body.innerText.includes('No results')")
                continue
            browser.wait_for(f"{found}.some(a => a.textContent === {title!r})")
            [link] = browser.run(
                f"{found}.filter(a => a.textContent === {title!r}).map(a => a.href)"
            )
            assert link.startswith("file:") and link.endswith(place)
        assert not browser.complaints()
    finally:
        browser.close()


@pytest.mark.parametrize("page", PAGES)
def test_links_to_the_outside_are_well_formed(page):
    text = text_of(page)
    for link in re.findall(r"\]\((https?:[^)\s]*)\)", text):
        assert re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[\w./?=&#%~-]*)?", link), link
    assert "](http://" not in text


@pytest.mark.parametrize("page", PAGES)
def test_links_work_without_the_site(page):
    """And outside of pages that are another file's text."""
    text = text_of(page)
    for link in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text):
        target = (DOCS / page).parent / link
        assert target.exists(), link
        assert target.suffix != ".md" or "--8<--" not in target.read_text("utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_names_are_there(page):
    names = re.findall(
        r"\bkeras_bertfam\.([A-Za-z]\w*(?:\.[A-Za-z]\w*)*)", text_of(page)
    )
    for name in {*names} - {"presets.families"}:
        found = keras_bertfam
        for part in name.split("."):
            if not hasattr(found, part) and inspect.ismodule(found):
                importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)


def rows_of(text):
    """The heads of tables, and the cells of their rows."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [
            [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            for line in table.splitlines()
        ]
        yield [cell.strip("| ") for cell in lines[0]], lines[2:]


def default_of(argument):
    """That of `Class(argument)`, as the family has it."""
    name, argument = re.fullmatch(r"`(\w+)\((\w+)\)`", argument).groups()
    holders = (tasks, models, layers, optimizers)
    cls = next(getattr(each, name) for each in holders if hasattr(each, name))
    record = getattr(cls, "record", None)
    if record is not None and argument in record.arguments:
        return record.arguments[argument]
    for each in cls.__mro__:
        own = vars(each).get("__init__")
        parameter = own and inspect.signature(own).parameters.get(argument)
        if parameter is not None:
            return parameter.default
        if argument in vars(each).get("settings", {}):
            return each.settings[argument].default
    raise AssertionError(f"{name} has no {argument}")


@pytest.mark.parametrize("page", PAPERS)
def test_tables_of_choices(page):
    for head, rows in rows_of(text_of(page)):
        if head[-2:] == ["argument", "default"]:
            for _, argument, default in rows:
                expected = ast.literal_eval(default.strip("`"))
                assert default_of(argument) == expected, (page, argument)
        if head[0].startswith("`pretraining_recipe("):
            known = {name: getattr(tasks, name) for name in tasks.__all__}
            recipe = eval(head[0].strip("`"), known)
            for setting, value, _ in rows:
                given = getattr(recipe, setting.strip("`"))
                assert given == ast.literal_eval(value.strip("`")), (page, setting)


def commands():
    found = {}
    for page in [*PAGES, "../README.md"]:
        text = text_of(page).replace("\\\n", " ")
        spans = re.findall(r"`(python -m keras_bertfam [^`]*)`", text)
        lines = re.findall(r"^ {4}.*?(python -m keras_bertfam .*)$", text, re.MULTILINE)
        for line in [*spans, *lines]:
            found.setdefault(re.split(r"[|>]", " ".join(line.split()))[0], page)
    return found


@pytest.mark.parametrize("line", commands())
def test_commands_take_their_options(line):
    name, *arguments = shlex.split(line)[3:]
    command = typer.main.get_command(app).commands[name]
    if arguments != ["..."]:
        command.make_context(name, arguments)


def test_messages_are_those_of_the_code():
    said = []
    for path in (ROOT / "keras_bertfam").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.append(node.value)
    quoted = re.findall(r"^> (.+)$", text_of("errors.md"), re.MULTILINE)
    assert len(quoted) > 20
    for part in (part.strip() for line in quoted for part in line.split("…")):
        assert any(part in each for each in said), part


def notebook_of(name):
    """The sources of a notebook's cells, by their kinds, as Jupyter reads them."""
    module, script = hooks(), DOCS / name
    cells = module.cells(script.read_text("utf-8"))
    notebook = json.loads(json.dumps(module.as_notebook(cells, script.stem)))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    return [(c["cell_type"], "".join(c["source"])) for c in notebook["cells"]]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks(name):
    module, script = hooks(), DOCS / name
    text, cells = script.read_text("utf-8"), module.cells(script.read_text("utf-8"))
    assert cells[0][0] == "markdown" and cells[0][1].startswith("# ")
    install, *code = [part for kind, part in notebook_of(name) if kind == "code"]
    assert install.startswith("# Installs") and "keras-bertfam" in install
    assert ast.dump(ast.parse("\n".join(code))) == ast.dump(ast.parse(text))
    said = "".join(part for kind, part in notebook_of(name) if kind == "markdown")
    assert ".md" not in said and ".html" in said  # links to the site's pages
    page = module.as_page(cells, script.stem)
    assert f"[a notebook]({script.stem}.ipynb)" in page
    assert BLOCK.findall(page) == [f"{part}\n" for part in code]
    assert f"({name})" in text_of(NOTEBOOKS[name])


@pytest.mark.parametrize("page", PAGES)
def test_code_that_is_only_shown_is_python(page):
    """And what it calls of the library is there, with these arguments."""
    for block in re.findall(r"```py\n(.*?)```", text_of(page), re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call):
                check_call(node)


def check_call(node):
    place, *names = ast.unparse(node.func).split(".")
    if place not in ("layers", "models", "optimizers", "tasks", "tokenizers"):
        return
    found = importlib.import_module(f"keras_bertfam.{place}")
    for name in names:
        found = getattr(found, name)
    parameters = inspect.signature(found).parameters.values()
    known = [parameter.name for parameter in parameters]
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        for keyword in node.keywords:
            assert keyword.arg in (None, *known), ast.unparse(node)


def shrunk(code):
    """Code with tiny numbers, and few characters for a vocabulary."""
    for name, number in TINY.items():
        code = re.sub(rf"{name}=[\d_]+", f"{name}={number}", code)
    return code


@pytest.fixture
def tiny_sizes(monkeypatch):
    """Published sizes, tiny in all that may be."""
    small = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    for cls in BACKBONES.values():
        sizes = {}
        for name, size in cls.presets_table.items():
            more = {n: 8 for n in ("embedding_dim", "head_dim") if n in size}
            sizes[name] = {**size, **small, **more}
        monkeypatch.setattr(cls, "presets_table", sizes)


@pytest.fixture
def eager_steps(monkeypatch):
    """Steps that aren't traced, which takes longer than to run a few of them."""
    compile, fit = keras.Model.compile, keras.Model.fit

    def eager(self, *args, **kwargs):
        compile(self, *args, **{**kwargs, "run_eagerly": True, "jit_compile": False})

    def short(self, *args, **kwargs):
        return fit(self, *args, **{**kwargs, "steps_per_epoch": 1, "verbose": 0})

    monkeypatch.setattr(keras.Model, "compile", eager)
    monkeypatch.setattr(keras.Model, "fit", short)


@pytest.mark.slow
@pytest.mark.usefixtures("eager_steps", "tiny_sizes", "no_uploads")
@pytest.mark.filterwarnings("ignore:.*was loaded in part")  # heads are new
@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(text_of(p))])
def test_page(page, files, tmp_path, monkeypatch):  # noqa: F811
    """Blocks of a page run one after the other, as they stand."""
    monkeypatch.chdir(files)
    names = {"keras": keras}
    for block in BLOCK.findall(text_of(page)):
        if "onnx" in block and importlib.util.find_spec("tf2onnx") is None:
            continue
        exec(compile(shrunk(block), page, "exec"), names)


@pytest.mark.slow
@pytest.mark.usefixtures("eager_steps")
@pytest.mark.filterwarnings("ignore:.*was loaded in part")  # heads are new
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name, tmp_path, monkeypatch):
    """From top to bottom, alone in a folder; with less text and fewer steps."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for kind, code in notebook_of(name):
        if kind == "code":
            code = re.sub(r"epochs=\d+", "epochs=1", code)
            code = code.replace("documentation()", "documentation()[:8]")
            code = code.replace("docstrings(packages)", "docstrings(packages)[::15]")
            exec(compile(code, name, "exec"), names)
    assert [*tmp_path.iterdir()]
