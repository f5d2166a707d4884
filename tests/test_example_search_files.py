"""The example that searches text files."""

import importlib.util
import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest
import typer

from keras_bertfam.tasks import TextEmbedder, TextEmbedderPreprocessor
from tests import tiny_fine_tuning as tiny
from tests import tiny_questions
from tests.checkout import ROOT

PATH = ROOT / "examples" / "search_files.py"
SERVICE = ROOT / "examples" / "search_service.py"


def example():
    spec = importlib.util.spec_from_file_location("search_files", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.any_backend
@pytest.mark.slow
def test_passages_with_their_files(tmp_path, capsys):
    module = example()
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
    (tmp_path / "a.txt").write_text("the cat sat\n\na dog ran")
    module.main(preset, files, ["a dog ran"], index=folder, k=1)
    told, _, found = capsys.readouterr().out.splitlines()[-3:]
    assert told == "1 paragraphs are new, 1 are gone." and "a.txt: a dog ran" in found


@pytest.mark.any_backend
def test_without_passages(tmp_path):
    (tmp_path / "a.txt").write_text("heading")
    for files in ("*.txt", "*.md"):
        with pytest.raises(typer.BadParameter, match="must name files that have a par"):
            example().search(None, str(tmp_path / files), ["what"])


def get(port, **query):
    url = f"http://localhost:{port}/?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.any_backend
@pytest.mark.slow
def test_a_service_of_the_folder(tmp_path):
    pytest.importorskip("faiss")
    module = example()
    (tmp_path / "a.txt").write_text("the cat sat\n\na red mat")
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 16)
    model = TextEmbedder(
        tiny.make_backbone(num_layers=1), preprocessor, prompts={"query": "the blue "}
    )
    files, folder = str(tmp_path / "*.txt"), str(tmp_path / "service")
    module.search(model, files, [], folder=folder, export=True)
    run = [sys.executable, str(SERVICE), folder, "--port", "0"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().rpartition(":")[2].strip()
            (_, expected), *_ = module.search(model, files, ["red mat"], folder=folder)
            found = get(port, question="red mat", k=9)
            for one, (score, file, passage) in zip(found, expected, strict=True):
                assert (one["file"], one["passage"]) == (file, passage)
                assert one["score"] == pytest.approx(score, abs=1e-5)
            (tmp_path / "b.txt").write_text("a dog ran")
            module.search(model, files, [], folder=folder)
            assert {one["passage"] for one in get(port, question="a", k=9)} == {
                "the cat sat",
                "a red mat",
                "a dog ran",
            }
            for wrong in ({"k": 3}, {"question": "a", "k": 0}):
                with pytest.raises(urllib.error.HTTPError, match="400"):
                    get(port, **wrong)
        finally:
            process.kill()
