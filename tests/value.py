"""What each test costs and what only it reaches: `make test-value`.

As a plugin (`-p tests.value`) it writes for each test into the folder `TEST_VALUE` its
CPU seconds, those of processes that it starts included, and the statements of the
package that it reaches. `python -m tests.value FOLDER` prints them, the dearest first,
and writes `FOLDER/BACKEND.txt`: tests that each take long and reach next to nothing
that the others don't, on TensorFlow of the slow ones. CI leaves out those of the files
in `tests/only_for_releases`.

`coverage` with a context for each test says the same in three times the time, as Python
before 3.12 then stops at each line of all packages. Here each statement of the package
alone notes that it ran: `lines[7] = 1; x = y` for `x = y` in line 7.
"""

import ast
import collections
import importlib.machinery
import json
import os
import pathlib
import sys

import pytest

PACKAGE = "keras_bertfam"
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")
FIRST_BACKEND = BACKEND == "tensorflow"
LONG = 2 if FIRST_BACKEND else 1  # seconds of CPU, with the notes
WORTH = 3  # seconds that a statement which no other test reaches may take
# What stays though it reaches nothing alone: comparisons on each backend; on the first
# laws, runs by two replicas and one that is killed, imports, the README, and what a
# user does from end to end; and on the others what runs there alone.
COMPARISONS = "hf sentence embedding cross sparse".split()
STAYS = tuple(f"tests/conformance/test_{name}" for name in COMPARISONS)
if FIRST_BACKEND:
    STAYS += tuple(
        f"tests/{name}"
        for name in """
        layers/ models/ tokenizers/ presets/tokenizer_formats/ test_imports.py
        test_documented_code.py::test_readme
        tasks/test_objective_runs.py::test_two_replicas
        tasks/test_accumulation.py::test_uneven_batches
        callbacks/test_backup.py::test_killed_run
        test_cli.py test_product.py test_pretraining_runs.py::test_a_killed_run
        """.split()
    )
else:
    STAYS += (
        "tests/layers/attention/test_kernels.py",
        "tests/tasks/test_lowered_steps.py",
        "tests/tasks/test_torch_graph.py",
        "tests/test_distribution.py",
        "tests/test_sharding.py",
    )
NOTES = "__lines_that_ran__"
ran = {}  # by file, a byte for each line


class NotingLoader(importlib.machinery.SourceFileLoader):
    """Load a module each of whose statements notes that it ran."""

    def get_code(self, fullname):
        source = self.get_data(self.path)
        ran[self.path] = bytearray(source.count(b"\n") + 2)
        return compile(noting(ast.parse(source)), self.path, "exec")

    def exec_module(self, module):
        code = self.get_code(module.__name__)
        vars(module)[NOTES] = ran[self.path]
        exec(code, vars(module))


def noting(tree):
    """Put a note before each statement that may have one before it."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, field, [part for one in block for part in noted(one)])
    return ast.fix_missing_locations(tree)


def noted(statement):
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    if text or future:  # a docstring stays the first statement
        return [statement]
    note = ast.parse(f"{NOTES}[{statement.lineno}] = 1").body[0]
    for node in ast.walk(note):
        ast.copy_location(node, statement)
    return [note, statement]


class NotingFinder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] != PACKAGE:
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = NotingLoader(spec.loader.name, spec.loader.path)
        return spec


if "TEST_VALUE" in os.environ:
    sys.meta_path.insert(0, NotingFinder)


def _cpu_seconds():
    return sum(os.times()[:4])


def _take():
    """Give the lines that ran since the last call."""
    taken = {}
    for path, lines in ran.items():
        if any(lines):
            taken[path] = [number for number, one in enumerate(lines) if one]
            lines[:] = bytes(len(lines))
    return taken


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    _take()  # Code that runs at import belongs to no test.
    item.cpu_at_start = _cpu_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    if call.when == "teardown":
        levels = [arg for mark in item.iter_markers("slow") for arg in mark.args]
        record = {
            "test": item.nodeid,
            "release": "release" in levels,
            "slow": item.get_closest_marker("slow") is not None,
            "seconds": round(_cpu_seconds() - item.cpu_at_start, 3),
            "lines": _take(),
        }
        path = pathlib.Path(os.environ["TEST_VALUE"], f"{os.getpid()}.jsonl")
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def records_of(folder):
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        with path.open() as file:
            yield from map(json.loads, file)


def left_out(seconds, tests_of):
    """Choose the tests that take long and reach next to nothing alone.

    The dearest are left out first, as long as what they reach is reached by others, but
    for a statement in `WORTH` seconds.

    Args:
        seconds: dict from the tests that may be left out to their seconds.
        tests_of: dict from statements to the set of tests that reach it.
    """
    lines_of, chosen = collections.defaultdict(list), []
    for line, tests in tests_of.items():
        for test in tests:
            lines_of[test].append(line)
    others = {line: len(tests) - 1 for line, tests in tests_of.items()}
    for test in sorted(seconds, key=seconds.get, reverse=True):
        if seconds[test] < LONG or test.startswith(STAYS):
            continue
        alone = sum(others[line] <= 0 for line in lines_of[test])
        if alone * WORTH <= seconds[test]:
            chosen.append(test)
            for line in lines_of[test]:
                others[line] -= 1
    return chosen


def main(folder):
    seconds, tests_of = collections.Counter(), collections.defaultdict(set)
    may_go, of_releases = set(), set()
    for record in records_of(folder):
        test = record["test"]
        seconds[test] += record["seconds"]
        if record["release"]:
            of_releases.add(test)
        elif record["slow"] or not FIRST_BACKEND:
            may_go.add(test)
        for path, lines in record["lines"].items():
            for line in lines:
                tests_of[path, line].add(test)
    in_ci = {line: tests - of_releases for line, tests in tests_of.items()}
    chosen = left_out({test: seconds[test] for test in may_go}, in_ci)
    pathlib.Path(folder, f"{BACKEND}.txt").write_text(
        "".join(f"{test}\n" for test in sorted(chosen))
    )
    alone = collections.Counter(min(t) for t in tests_of.values() if len(t) == 1)
    without = sum(bool(tests) for tests in in_ci.values())
    files = collections.defaultdict(lambda: [0, 0.0, 0])
    for test in seconds:
        of_file = files[test.partition("::")[0]]
        of_file[0] += 1
        of_file[1] += seconds[test]
        of_file[2] += alone[test]
    print(f"{len(seconds)} tests, {sum(seconds.values()):.0f} s of CPU")
    print(f"{len(tests_of)} statements of the package are reached,")
    print(f"{without} of them without the tests that only releases run")
    print("\nfile: tests, CPU seconds, statements that no other test reaches")
    for file, (count, spent, lines) in sorted(files.items(), key=lambda f: -f[1][1]):
        print(f"{count:6}{spent:9.1f}{lines:7}  {file}")
    print("\ntest: CPU seconds, statements that no other test reaches")
    for test, spent in seconds.most_common():
        print(f"{spent:9.2f}{alone[test]:7}  {test}")


if __name__ == "__main__":
    main(*sys.argv[1:])
