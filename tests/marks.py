"""Which cases of a parametrised test are for releases only."""

from collections.abc import Iterable
from typing import Any

import pytest


def in_ci(names: Iterable[Any], *kept: Any) -> list[Any]:
    """Mark for releases all cases but those that are one of each mechanism."""
    return [
        name if name in kept else pytest.param(name, marks=pytest.mark.slow("release"))
        for name in names
    ]
