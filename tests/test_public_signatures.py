"""What no argument may be is refused by its name: in public signatures and layers."""

import collections
import functools
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
# Numbers that may be negative, or what an instance has to say of it.
ANY_SIGN = set(
    "share seed attention_scale scale initial null_threshold first cardinality target "
    "length_penalty decay_exponent margin relative_margin max_score "
    "hard_negative_weight".split()
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


# Spaces of classes whose methods users call, and methods that Keras or this library
# calls: those begin so. Freezing looks at its number by the layers there are.
OF_METHODS = "datasets metrics models retrieval tasks tokenizers".split()
CALLED_FOR_USERS = """on_ call compute_ empty_cache batch batcher adopt check_count
    look_up counted repeated_labels heads_of inputs prediction_batches answers
    resolve rows_up_to freeze""".split()


def methods():
    """As `signatures()`: functions that take an instance, or a class, besides."""
    found = {}
    for name, value in public():
        if name.partition(".")[0] not in OF_METHODS or not inspect.isclass(value):
            continue
        for cls in value.__mro__:
            if not cls.__module__.startswith("keras_bertfam."):
                continue
            for method, function in vars(cls).items():
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function) and not method.startswith(
                    ("_", *CALLED_FOR_USERS)
                ):
                    found.setdefault(function, f"{cls.__name__}.{method}")
    for function, name in found.items():
        first, *others = inspect.signature(function).parameters.values()
        fitting = [p for p in others if p.kind in (p.KEYWORD_ONLY, first.kind)]
        bound = functools.partial(function, None)
        yield name, bound, fitting


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


def sweep(found):
    """Counts of checks by mistake, and those that nothing refused by name."""
    counts, missed = collections.Counter(), []
    for name, value, parameters in found:
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
    counts, missed = sweep(signatures())
    print(dict(counts))
    assert not missed
    assert counts["NaN"] > 500 and counts["a bare string"] > 12


def test_every_public_method():
    """No instance is needed to refuse what comes with it."""
    counts, missed = sweep(methods())
    print(dict(counts))
    assert not missed
    assert counts["NaN"] > 50 and counts["a bare string"] > 2


if __name__ == "__main__":
    for each in (signatures(), methods()):
        found, left = sweep(each)
        print(dict(found))
        print("\n".join(left))
