"""The example of XLNet on real text, with tiny settings."""

import importlib.util
import pathlib

import pytest

from keras_bertfam.corpus import python_documentation
from keras_bertfam.models import XLNetBackbone

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "pretrain_xlnet.py"


@pytest.mark.slow
def test_pretrain_xlnet(tmp_path, monkeypatch):
    assert len(EXAMPLE.read_text("utf-8").splitlines()) < 60
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(python_documentation()[:4]), "utf-8")
    monkeypatch.chdir(tmp_path)
    encoder = module.main(
        str(text),
        epochs=1,
        vocabulary_size=300,
        batch_size=4,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
    )
    assert isinstance(encoder, XLNetBackbone) and encoder.num_layers == 1
    assert not (tmp_path / "backup").exists()
