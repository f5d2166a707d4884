"""The example that translates, on pairs that are easy to learn."""

import importlib.util
import pathlib

import pytest

from keras_bertfam.tasks import TextToText
from tests.checkout import ROOT
from tests.tasks.generation.text_to_text_tokenizers import random_texts

PATH = ROOT / "examples" / "translate.py"
TINY = {"vocabulary_size": 120, "length": 24, "layers": 1, "width": 64, "epochs": 1}


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_translate(tmp_path):
    pytest.importorskip("sacrebleu")
    spec = importlib.util.spec_from_file_location("translate", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    texts = random_texts(40, most=8)
    files = [str(tmp_path / name) for name in ("a", "b")]
    for path, words in zip(files, (texts, map(str.upper, texts)), strict=True):
        pathlib.Path(path).write_text("\n".join(words), "utf-8")
    output = str(tmp_path / "model")
    scores = module.main(*files, tuple(files), output, **TINY, batch_size=8)
    assert scores.keys() == {"bleu", "chrf"}
    model = TextToText.from_preset(output)
    assert isinstance(model.generate(texts[0], 8), str)
    (tmp_path / "b").write_text("one line")
    with pytest.raises(Exception, match="have not as many lines"):
        module.main(*files, tuple(files), output, **TINY)
