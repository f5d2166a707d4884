"""Numbers that no model has, in every place of a config."""

import contextlib
import copy
import itertools
import json
import signal
import warnings

import pytest

HUGE = (10**9, 10**30)
# Limits that are then none, and where random numbers begin.
HARMLESS = {"seed", "clamp_length", "clamp_len", "reuse_length", "relative_distance"}
HARMLESS |= {"relative_attention_max_distance"}


@contextlib.contextmanager
def seconds(most):
    """Ends what takes longer, with an error that nothing takes for its own."""

    def end(*arguments):
        pytest.fail(f"it took more than {most} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, most, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def numbers(config, at=()):
    """The places of all whole numbers in a config."""
    items = config.items() if isinstance(config, dict) else enumerate(config)
    for name, value in items:
        if isinstance(value, dict | list):
            yield from numbers(value, (*at, name))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*at, name)


def with_value(config, place, value):
    config = copy.deepcopy(config)
    inner = config
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return config


def refuses(path, load):
    """Whether loading ends with the one error for it, and soon."""
    try:
        with seconds(20), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load(str(path))
    except ValueError:
        return True
    return False


def check_numbers(path, file, load, values=(), harmless=HARMLESS):
    """Every number of a file, made huge, is refused, unless it has no effect.

    It becomes one of `HUGE`, or each of the `values`.
    """
    content = json.loads((path / file).read_text())
    places = list(numbers(content))
    accepted = set()
    one_each = zip(places, itertools.cycle(HUGE), strict=False)
    pairs = itertools.product(places, values) if values else one_each
    for place, value in pairs:
        (path / file).write_text(json.dumps(with_value(content, place, value)))
        if not refuses(path, load):
            accepted.add(place[-1])
    (path / file).write_text(json.dumps(content))
    assert accepted <= harmless
    return places
