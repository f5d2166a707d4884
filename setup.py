"""Everything about the package is declared in pyproject.toml."""

from setuptools import setup

setup()
