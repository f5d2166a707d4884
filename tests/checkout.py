"""Say where the checkout is, for tests that start processes or read its files."""

import pathlib

ROOT = pathlib.Path(__file__).parents[1]
