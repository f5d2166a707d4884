"""Which file of the package imports which; `python tests/import_graph.py` shows it.

With a path it shows that of another checkout: its rooms, with lines of code and what
they import, and the circles among its files.
"""

import ast
import collections
import pathlib
import sys

NAME = "keras_bertfam"


def imports_of(root):
    """What each file of the package imports of it, also inside functions.

    Args:
        root: path of a checkout.

    Returns:
        Dict from paths within the package to sets of such paths.
    """
    package = pathlib.Path(root, NAME)
    return {
        path.relative_to(package).as_posix(): {*_imported(path, package)} - {None}
        for path in sorted(package.rglob("*.py"))
    }


def _imported(path, package):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (_file(alias.name, package) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = _file(f"{node.module}.{alias.name}", package)
                yield inner or _file(node.module, package)


def _file(dotted, package):
    """The file of a dotted name, or `None` if it is no module of the package."""
    path = package.parent.joinpath(*dotted.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    inside = dotted.split(".")[0] == NAME
    found = (f.relative_to(package).as_posix() for f in files if inside and f.exists())
    return next(found, None)


def circles(imports):
    """Groups of files that import each other, by way of others or not."""

    def reach(start):
        seen, todo = set(), [start]
        while todo:
            new = imports[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    reached = {name: reach(name) for name in imports}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }


def _room(name):
    parts = name.split("/")
    deep = parts[0] in ("layers", "tasks", "presets") and len(parts) > 2
    return "/".join(parts[:2] if deep else parts[:1])


def main(root="."):
    imports = imports_of(root)
    arrows, lines = collections.defaultdict(set), collections.Counter()
    for name, others in imports.items():
        arrows[_room(name)] |= {_room(other) for other in others} - {_room(name)}
        text = pathlib.Path(root, NAME, name).read_text(encoding="utf-8")
        lines[_room(name)] += len(text.splitlines())
    for room in sorted(arrows):
        print(f"{room:24}{lines[room]:6}  {', '.join(sorted(arrows[room]))}")
    found = circles(imports)
    print(f"{sum(lines.values())} lines, {len(found)} circles")
    for circle in found:
        print(f"{len(circle)} files import each other: {', '.join(sorted(circle))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
