"""The lists of what only releases run name tests that there are.

`.ci/run` refuses other names by all that pytest has collected; this says so at once.
"""

import ast

from tests.checkout import ROOT


def test_names_are_of_tests():
    lists = (ROOT / "tests" / "only_for_releases").glob("*.txt")
    names = {name for path in lists for name in path.read_text().splitlines()}
    functions, wrong = {}, []
    for name in sorted(names):
        file, _, test = name.partition("::")
        if file not in functions:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions[file] = {
                node.name: ast.unparse(ast.Module(node.decorator_list, []))
                for node in tree.body
                if isinstance(node, ast.FunctionDef)
            }
        function, _, case = test.partition("[")
        marks = functions[file].get(function)
        if marks is None or (".parametrize(" in marks and not case):
            wrong.append(name)
    assert names and wrong == []
