"""What each test costs and what only it reaches: `make test-value`.

As a plugin (`-p tests.value`) it notes in the file of `--junitxml` the CPU seconds of
each test, those of processes that it starts included. `python -m tests.value FOLDER`
reads these files and the contexts of `FOLDER/.coverage`, and prints for each test its
seconds and how many lines of the package no other test reaches, the dearest first.
"""

import collections
import os
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def _cpu_seconds():
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.cpu_at_start = _cpu_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    if call.when == "teardown":
        spent = _cpu_seconds() - item.cpu_at_start
        item.user_properties.append(("cpu_seconds", f"{spent:.3f}"))


def seconds_of_tests(folder):
    """CPU seconds by test, as the file's path, the class and the test's name."""
    seconds = collections.Counter()
    for path in sorted(pathlib.Path(folder).glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            file = case.get("classname").replace(".", "/") + ".py"
            for one in case.iter("property"):
                if one.get("name") == "cpu_seconds":
                    seconds[f"{file}::{case.get('name')}"] += float(one.get("value"))
    return seconds


def lines_of_tests(folder):
    """Count the lines that tests reach, and those that only one test does, by test."""
    from coverage import CoverageData

    data = CoverageData(str(pathlib.Path(folder, ".coverage")))
    data.read()
    reached, alone = 0, collections.Counter()
    for file in data.measured_files():
        for contexts in data.contexts_by_lineno(file).values():
            # Code that runs at import belongs to no test.
            tests = {context.rpartition("|")[0] for context in contexts} - {""}
            reached += bool(contexts)
            if len(tests) == 1:
                alone[tests.pop()] += 1
    return reached, alone


def main(folder):
    seconds = seconds_of_tests(folder)
    reached, alone = lines_of_tests(folder)
    files = collections.defaultdict(lambda: [0, 0.0, 0])
    for test in seconds.keys() | alone.keys():
        of_file = files[test.partition("::")[0]]
        of_file[0] += 1
        of_file[1] += seconds[test]
        of_file[2] += alone[test]
    print(f"{len(seconds)} tests, {sum(seconds.values()):.0f} s of CPU")
    print(f"{reached} lines of the package are reached")
    print("\nfile: tests, CPU seconds, lines that no other test reaches")
    for file, (count, spent, lines) in sorted(files.items(), key=lambda f: -f[1][1]):
        print(f"{count:6}{spent:9.1f}{lines:7}  {file}")
    print("\ntest: CPU seconds, lines that no other test reaches")
    for test in sorted(seconds.keys() | alone.keys(), key=lambda t: -seconds[t]):
        print(f"{seconds[test]:9.2f}{alone[test]:7}  {test}")


if __name__ == "__main__":
    main(*sys.argv[1:])
