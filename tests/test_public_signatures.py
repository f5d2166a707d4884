"""What no argument may be is refused by its name: in public signatures and layers."""

import collections
import importlib
import inspect
import math
import types
import typing

import pytest

from keras_bertfam import arguments
from keras_bertfam.keras_quirks.functional_bases import Subclassed
from tests.model_layers import model_layers

SPACES = """analysis callbacks corpora datasets distribution export layers metrics
    models optimizers presets retrieval tasks tokenizers""".split()
# Numbers that may be negative.
ANY_SIGN = set(
    "seed attention_scale scale initial null_threshold first cardinality target "
    "length_penalty decay_exponent".split()
)


def public():
    """Names and what they stand for, each once; layers of models are among them."""
    found = {id(cls): (name, cls) for name, cls in model_layers().items()}
    for space in SPACES:
        module = importlib.import_module(f"keras_bertfam.{space}")
        for name in dir(module):
            value = getattr(module, name)
            own = getattr(value, "__module__", "").startswith("keras_bertfam")
            if callable(value) and own and not name.startswith("_"):
                found.setdefault(id(value), (f"{space}.{name}", value))
    return sorted(found.values(), key=lambda pair: pair[0])


def kinds_of(parameter):
    """The types of an annotation, and whether it is of several strings."""
    annotation = parameter.annotation
    union = isinstance(annotation, types.UnionType)
    kinds = typing.get_args(annotation) if union else (annotation,)
    strings = any(arguments._is_of_strings(kind) for kind in kinds)
    return kinds, strings and str not in kinds


def signatures():
    """Names, what is called, and its parameters, where some are to be checked."""
    for name, value in public():
        if isinstance(value, types.GenericAlias):
            continue
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):
            continue  # a class of Python's own, such as an error
        if isinstance(value, Subclassed):
            parameters = [*inspect.signature(value.__init__).parameters.values()][1:]
        named = [
            p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.POSITIONAL_ONLY)
        ]
        yield name, value, [p for p in named if p.kind != p.VAR_POSITIONAL]


def wrong_values(parameter):
    """What a parameter mustn't be: pairs of a kind of mistake and a value."""
    kinds, strings = kinds_of(parameter)
    if strings:
        yield "a bare string", "ab"
    numbers = {kind for kind in kinds if kind in (int, float)}
    if not numbers:
        return
    yield "NaN", math.nan
    if not {str, typing.Any} & {*kinds}:
        yield "a string", "3"
    if parameter.name not in ANY_SIGN:
        yield "negative", -2 if numbers == {int} else -2.5
    if numbers == {int}:
        yield "huge", 2**31
        if bool not in kinds:
            yield "not whole", 2.5
    else:
        yield "huge", math.inf
    if set(kinds) <= {int, float, type(None)}:
        yield "a list", [1]


def placeholder(parameter):
    """What is right, or at least looked at after the numbers."""
    kinds, strings = kinds_of(parameter)
    if strings:
        return ["a"]
    if {int, float} & {*kinds}:
        least, _ = arguments._NUMBERS.get(parameter.name, (1, 1))
        return 1 if int in kinds else max(0.5, least)
    return None


def sweep():
    """Counts of checks by mistake, and those that nothing refused by name."""
    counts, missed = collections.Counter(), []
    for name, value, parameters in signatures():
        needed = {p.name: placeholder(p) for p in parameters if p.default is p.empty}
        for parameter in parameters:
            for kind, odd in wrong_values(parameter):
                counts[kind] += 1
                try:
                    value(**{**needed, parameter.name: odd})
                except ValueError as error:
                    if f"`{parameter.name}`" in str(error):
                        continue
                except Exception:
                    pass
                missed.append(f"{name}({parameter.name}={odd!r})")
        counts["signatures"] += any(list(wrong_values(p)) for p in parameters)
    return counts, missed


@pytest.mark.slow
def test_every_public_signature():
    counts, missed = sweep()
    print(dict(counts))
    assert not missed
    assert counts["NaN"] > 500 and counts["a bare string"] > 12


if __name__ == "__main__":
    found, left = sweep()
    print(dict(found))
    print("\n".join(left))
