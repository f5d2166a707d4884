"""The example that translates, on pairs that are easy to learn."""

import importlib.util
import pathlib

import pytest
import typer

from keras_bertfam.tasks import TextToText
from tests.checkout import ROOT
from tests.tasks.generation.text_to_text_tokenizers import random_texts

PATH = ROOT / "examples" / "translate.py"
TINY = {"vocabulary_size": 120, "length": 24, "layers": 1, "width": 64, "epochs": 1}


def example():
    spec = importlib.util.spec_from_file_location("translate", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.any_backend
def test_lines_of_pairs(tmp_path):
    files = [tmp_path / name for name in ("a", "b")]
    sides = [["one\u2028line", "two\x0c"], ["eins", "zwei\u0085"]]
    for path, lines in zip(files, sides, strict=True):
        path.write_text("\ufeff" + "".join(f"{line}\r\n" for line in lines), "utf-8")
    assert example().read_pairs(*files) == sides
    for text in ("one line", ""):
        files[1].write_text(text)
        with pytest.raises(typer.BadParameter, match="as many lines.* Received: 2 and"):
            example().read_pairs(*files)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_translate(tmp_path):
    pytest.importorskip("sacrebleu")
    module = example()
    texts = random_texts(40, most=8)
    files = [str(tmp_path / name) for name in ("a", "b")]
    for path, words in zip(files, (texts, map(str.upper, texts)), strict=True):
        pathlib.Path(path).write_text("\n".join(words), "utf-8")
    output = str(tmp_path / "model")
    scores = module.main(*files, tuple(files), output, **TINY, batch_size=8)
    assert scores.keys() == {"bleu", "chrf"}
    model = TextToText.from_preset(output)
    assert isinstance(model.generate(texts[0], 8), str)
