"""`python -m tests.public_names`: what is public, and what names it to users.

It prints each namespace with its number of names, and how often each is in README.md,
the guides in `docs/` without those of the API, the tutorials, the examples and the
benchmarks. Nothing of the library is imported.
"""

import ast
import collections
import re

from tests.checkout import ROOT

PACKAGE = ROOT / "keras_bertfam"
# What a user reads and copies from.
PLACES = {
    "README": ["README.md"],
    "guides": ["docs/*.md", "docs/coming_from/*.md", "docs/papers/*.md"],
    "tutorials": ["docs/tutorials/*.py", "docs/gallery.py", "docs/senses.py"],
    "examples": ["examples/**/*.py"],
    "benchmarks": ["benchmarks/**/*.py"],
}


def listed(init):
    """Read the names that a file's `__all__` writes out."""
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            parts = getattr(node.value, "elts", ())
            return [part.value for part in parts if isinstance(part, ast.Constant)]
    return []


def namespaces():
    """Give the public names of each namespace; each name is in one of them.

    Returns:
        Dict from `"tasks"`, `"layers.data"` and so on to lists of names.
    """
    found = {}
    for name in listed(PACKAGE / "__init__.py"):
        for init in sorted((PACKAGE / name).rglob("__init__.py")):
            names = listed(init)
            if names:
                found[".".join(init.parent.relative_to(PACKAGE).parts)] = names
        module = PACKAGE / f"{name}.py"
        if module.exists():
            found[name] = listed(module)
    return found


def texts():
    """Read what users read: for each of `PLACES`, all of it."""
    return {
        place: "\n".join(
            path.read_text(encoding="utf-8")
            for pattern in patterns
            for path in sorted(ROOT.glob(pattern))
        )
        for place, patterns in PLACES.items()
    }


def uses(name, found):
    """Count how often each of `texts()` has a name.

    Words that aren't written as classes are also English ones. They count as code only:
    after a dot, before a bracket, between backquotes, or in an import.
    """
    word = re.escape(name)
    if name.islower():
        pattern = rf"(?<=\.){word}\b|\b{word}\(|`{word}`|import .*\b{word}\b"
    else:
        pattern = rf"\b{word}\b"
    counts = {place: len(re.findall(pattern, text)) for place, text in found.items()}
    return {place: count for place, count in counts.items() if count}


def main():
    """Print the table."""
    found, total = texts(), collections.Counter()
    for namespace, names in namespaces().items():
        print(f"{namespace}: {len(names)}")
        for name in names:
            counts = uses(name, found)
            total["all"] += 1
            total["unnamed"] += not counts
            said = ", ".join(f"{place} {count}" for place, count in counts.items())
            print(f"    {name:40}{said or '-'}")
    print(f"{total['all']} public names, {total['unnamed']} of them named nowhere")


if __name__ == "__main__":
    main()
