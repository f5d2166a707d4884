"""Ranges of numbers, and their check."""

import math
import numbers
from typing import Any

Range = tuple[float, float]

# Least and greatest; ints where numbers must be ints.
COUNT: Range = (0, 2**31 - 1)
SIZE: Range = (1, 2**31 - 1)
INTEGER: Range = (1 - 2**31, 2**31 - 1)
RATE: Range = (0.0, 1.0)
POSITIVE: Range = (0.0, math.inf)
ANY: Range = (-math.inf, math.inf)


def check_number(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Raise a `ValueError` unless a value is a finite number in a range.

    Args:
        name: str, the argument's name.
        value: anything.
        least, most: the range, both ends included. If `least` is an int, the value must
            be an int too.
    """
    whole = isinstance(least, int)
    kind = numbers.Integral if whole else numbers.Real
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not least <= value <= most:
        what = "an int" if whole else "a finite number"
        if least == INTEGER[0]:
            what += f" of at most {most}"
        elif math.isfinite(least):
            bounded = most < SIZE[1]
            what += f" from {least} to {most}" if bounded else f" of at least {least}"
        raise ValueError(f"`{name}` must be {what}. Received: {value!r}.")
