"""Real text that comes with every Python: its own documentation."""

import ast
import pathlib
import re
import sysconfig
from collections.abc import Iterable


def python_documentation() -> list[str]:
    """List the documents of `pydoc_data.topics`, with one paragraph in a line.

    About 65,000 words of English prose in 79 documents, for demonstrations and
    tests that must not download anything.

    Returns:
        List of str.

    Example:

    ```python
    documents = tf.data.Dataset.from_tensor_slices(
        keras_bertfam.corpus.python_documentation())
    ```
    """
    from pydoc_data.topics import topics

    return [_one_paragraph_a_line(topics[name]) for name in sorted(topics)]


def python_docstrings(packages: Iterable[str]) -> list[tuple[str, str]]:
    """List the docstrings of packages of the standard library, each once.

    They are texts with labels for demonstrations of fine-tuning: docstrings of modules,
    classes and functions with at least six words. No package is imported.

    Args:
        packages: names of packages, such as `"email"`.

    Returns:
        List of tuples: a docstring, with one paragraph in a line, and its package.

    Raises:
        ValueError: for a name that isn't a package of the standard library.

    Example:

    ```python
    texts, labels = zip(*keras_bertfam.corpus.python_docstrings(["email", "json"]))
    ```
    """
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    found: dict[str, str] = {}
    for package in packages:
        files = sorted((library / package).rglob("*.py")) if package else []
        if not files:
            raise ValueError(
                "`packages` must be packages of the standard library. "
                f"Received: {package!r}."
            )
        for file in files:
            for node in ast.walk(ast.parse(file.read_bytes())):
                if not isinstance(node, _DOCUMENTED):
                    continue
                text = _one_paragraph_a_line(ast.get_docstring(node) or "")
                if len(text.split()) >= 6:
                    found.setdefault(text, package)
    return [*found.items()]


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _one_paragraph_a_line(text):
    text = re.sub(r"^[*=~^\-\"]{3,}$", "", text, flags=re.MULTILINE)
    paragraphs = re.split(r"\n\s*\n", text)
    lines = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return "\n".join(line for line in lines if line)
