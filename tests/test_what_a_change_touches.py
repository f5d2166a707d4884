"""How many modules name one thing, as BUILD.md says of what a contributor touches."""

import ast
import pathlib
import re

import pytest

import keras_bertfam

PACKAGE = pathlib.Path(keras_bertfam.__file__).parent
DEFINITIONS = (ast.ClassDef, ast.FunctionDef)
# Its names, and the modules that may have them beside the records that use it.
THINGS = {
    "a BERT-shaped family": ("CamembertBackbone CAMEMBERT", 3),
    "an objective": ("SpanBoundaryLM SpanBoundaryLMPreprocessor span_boundary", 7),
    "a masking strategy": ("WholeWords whole_words", 2),
    "a denoising objective": ("SentencePermutation sentence_permutation", 3),
    "a setting of all backbones": ("relative_buckets", 4),
    "an optimizer": ("Lamb lamb", 3),
}
RECORD = re.compile(r"presets/families/(\w+\.py|parts/\w*(weights|recipes)\w*\.py)")


def names_in(tree):
    """Give the names in a module, and the words of its strings but docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, *DEFINITIONS))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.alias():
                yield from node.name.split(".")
            case ast.ClassDef() | ast.FunctionDef():
                yield node.name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield from text.split()


@pytest.mark.any_backend
def test_few_modules_name_one_thing():
    texts = {
        str(path.relative_to(PACKAGE)): {*names_in(ast.parse(path.read_text("utf-8")))}
        for path in PACKAGE.rglob("*.py")
    }
    for thing, (names, most) in THINGS.items():
        wanted = {*names.split()}
        found = sorted(file for file, words in texts.items() if words & wanted)
        own = wanted & {"CAMEMBERT"}  # whose record is what is counted
        used = [file for file in found if own or not RECORD.fullmatch(file)]
        assert used, thing
        assert len(used) <= most, f"{thing}: {used}"
