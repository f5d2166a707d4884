import shutil

import pytest

from keras_bertfam.models import BertBackbone
from tests.tiny_preset import make


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "preset"
    make().save_to_preset(str(path))
    return path


@pytest.fixture
def preset(saved, tmp_path):
    """A copy of a whole preset, to be damaged."""
    return shutil.copytree(saved, tmp_path / "preset")


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The content of a checkpoint's files, by name."""
    from tests.tiny_checkpoint import SIZES  # not without safetensors

    folder = tmp_path_factory.mktemp("whole") / "model"
    BertBackbone(**SIZES).export_to_transformers(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}
