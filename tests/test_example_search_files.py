"""The example that searches text files."""

import importlib.util

import pytest

from keras_bertfam.tasks import TextEmbedder, TextEmbedderPreprocessor
from tests import tiny_fine_tuning as tiny
from tests import tiny_questions
from tests.checkout import ROOT

PATH = ROOT / "examples" / "search_files.py"


@pytest.mark.any_backend
@pytest.mark.slow
def test_passages_with_their_files(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("search_files", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "a.txt").write_text("the cat sat\n\na red\nmat\n\n \n")
    (tmp_path / "b.txt").write_text("a blue hat\n\nthe cat sat")
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 16)
    model = TextEmbedder(tiny.make_backbone(num_layers=1), preprocessor)
    model.save_to_preset(str(tmp_path / "preset"))
    tiny_questions.make_model().save_to_preset(str(tmp_path / "reader"))
    preset, reader = str(tmp_path / "preset"), str(tmp_path / "reader")
    module.main(preset, str(tmp_path / "*.txt"), ["a red mat"], reader=reader, k=2)
    question, first, second = capsys.readouterr().out.splitlines()[-3:]
    assert question.startswith("a red mat ")  # and an answer
    assert first.strip() == f"1.000  {tmp_path / 'a.txt'}: a red mat"
    assert "txt: " in second
    folder = str(tmp_path / "index")
    files, asked = str(tmp_path / "*.txt"), ["a red mat"]
    module.main(preset, files, asked, index=folder, k=1)
    before = capsys.readouterr().out.splitlines()[-2:]
    module.main(preset, files, asked, index=folder, k=1)
    told, *again = capsys.readouterr().out.splitlines()[-3:]
    assert told == "0 paragraphs are new, 0 are gone." and again == before
    (tmp_path / "a.txt").write_text("the cat sat\n\na dog")
    module.main(preset, files, ["a dog"], index=folder, k=1)
    told, _, found = capsys.readouterr().out.splitlines()[-3:]
    assert told == "1 paragraphs are new, 1 are gone." and "a.txt: a dog" in found
