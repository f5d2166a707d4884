"""What `mkdocs` makes of more than Markdown: tutorials, notebooks, pictures, colours.

A tutorial is a script of cells, which begin with `# %%`; those with `# %% [markdown]`
are text in comments. It becomes a page and a notebook beside the script itself. After
a cell that writes `"gallery/NAME"` the page shows that file, once `make docs-gallery`
has made it. A paper's page begins with a picture of `objectives.py`.
"""

import functools
import importlib.util
import json
import pathlib
import re
import sys

from mkdocs.structure.files import File
from pygments.formatters import HtmlFormatter

DOCS = pathlib.Path(__file__).parent
PICTURES = DOCS.parent / "build" / "gallery"
# It needs a model that comes with the extra `bench`.
WITHOUT_NOTEBOOK = ("senses.py",)
SCRIPTS = ("tutorials/*.py", "gallery.py", "senses.py")
# Guides link to scripts and to files above this folder, so that links work without the
# site, too. These are the pages that are made from such files.
PAGES_OF = {"BENCHMARKS": "benchmarks", "BUILD": "building", "CHANGELOG": "changes"}
# What notebooks need beside the library.
EXTRAS = {"classify": "[evaluation]", "gallery": "[analysis]", "search": "[retrieval]"}
INSTALL = """\
# Installs the library where it isn't there, as in a new Colab.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("keras_bertfam") is None:
    # From a checkout, the last argument is its folder, as in "./[analysis]".
    command = [sys.executable, "-m", "pip", "install", "-q", "keras-bertfam{extras}"]
    subprocess.run(command, check=True)"""
_CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)
# Of the picture of a paper's page.
PLACE = "<!-- picture -->"
_TO_SCRIPT = re.compile(r"(\]\((?:\.\./)*(?:tutorials/\w+|gallery|senses))\.py\b")
_TO_FILE = re.compile(rf"(\]\((?:\.\./)*)\.\./({'|'.join(PAGES_OF)})\.md\b")
_PICTURE = re.compile(r'"gallery/([\w.-]+)"')


def on_files(files, config):
    for script in sorted(path for part in SCRIPTS for path in DOCS.glob(part)):
        parts = cells(script.read_text("utf-8"))
        name = script.relative_to(DOCS).with_suffix("").as_posix()
        page = as_page(parts, script.stem)
        files.append(File.generated(config, f"{name}.md", content=page))
        if script.name not in WITHOUT_NOTEBOOK:
            notebook = json.dumps(as_notebook(parts, script.stem), indent=1)
            files.append(File.generated(config, f"{name}.ipynb", content=notebook))
    for picture in sorted(PICTURES.glob("*")):
        uri = f"gallery/{picture.name}"
        files.append(File.generated(config, uri, abs_src_path=str(picture)))
    files.append(File.generated(config, "pygments.css", content=colours()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Link to pages, and give a paper's a place for its picture before its sections."""
    markdown = _TO_SCRIPT.sub(r"\1.md", markdown)
    markdown = _TO_FILE.sub(lambda m: f"{m[1]}{PAGES_OF[m[2]]}.md", markdown)
    if not is_of_a_paper(page):
        return markdown
    head, mark, rest = markdown.partition("\n## ")
    text = f"<figcaption>{objectives().caption(page.file.name)}</figcaption>"
    return f'{head}\n<figure class="objective">{PLACE}{text}</figure>\n{mark}{rest}'


def on_post_page(output, page, config):
    """Put the picture there, late enough that its words aren't what search finds."""
    if not is_of_a_paper(page):
        return output
    return output.replace(PLACE, objectives().drawn(page.file.name))


def is_of_a_paper(page):
    return page.file.src_uri.startswith("papers/") and page.file.name != "index"


@functools.cache
def objectives():
    """Import the script of the pictures, and the library, which takes seconds."""
    spec = importlib.util.spec_from_file_location("objectives", DOCS / "objectives.py")
    module = sys.modules["objectives"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_post_build(config):
    """Make a script of what is searched, which pages can load from the disk."""
    folder = pathlib.Path(config.site_dir) / "search"
    index = folder / "search_index.json"
    text = f"window.search_index = {index.read_text('utf-8')};\n"
    index.with_suffix(".js").write_text(text, "utf-8")
    index.unlink()
    (folder / "worker.js").unlink(missing_ok=True)


def cells(script):
    """Pairs of `"markdown"` or `"code"` and the text of a cell."""
    _, *parts = _CELL.split(script)
    found = []
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        if mark:
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        found.append(("markdown" if mark else "code", text.strip("\n")))
    return found


def as_page(parts, stem):
    """Markdown with the code in fences, and a line that says where to get it."""
    blocks = []
    for kind, text in parts:
        blocks.append(text if kind == "markdown" else f"```python\n{text}\n```")
        blocks += [_shown(name) for name in _PICTURE.findall(text) if kind == "code"]
    if f"{stem}.py" not in WITHOUT_NOTEBOOK:
        links = f"*As [a notebook]({stem}.ipynb), or [a script]({stem}.py).*"
        blocks.insert(1, links)
    return "\n\n".join(blocks) + "\n"


def _shown(name):
    if not (PICTURES / name).exists():
        return "*(`make docs-gallery` makes this picture.)*"
    if name.endswith(".html"):
        return f'<iframe class="view" src="gallery/{name}" title="{name}"></iframe>'
    return f"![{name}](gallery/{name})"


def as_notebook(parts, stem):
    """Make a notebook of format 4.5, which Jupyter and Colab open.

    Its first code cell installs the library; the other cells are the script's.
    """
    install = INSTALL.format(extras=EXTRAS.get(stem, ""))
    parts = [parts[0], ("code", install), *parts[1:]]
    made = []
    for number, (kind, text) in enumerate(parts):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "markdown":  # to the pages beside it
            text = re.sub(r"(\]\([\w./]+)\.md([#)])", r"\1.html\2", text)
        cell["source"] = text.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def colours():
    """Style sheets of Pygments for a light and a dark page."""
    light, dark = (HtmlFormatter(style=s) for s in ("default", "github-dark"))
    return "\n".join(
        [
            light.get_style_defs(".highlight"),
            dark.get_style_defs('[data-bs-theme="dark"] .highlight'),
        ]
    )
