"""The example that answers questions from files."""

import importlib.util

import pytest
import typer

from tests import tiny_passages
from tests.checkout import ROOT


def example():
    path = ROOT / "examples" / "answer_with_sources.py"
    spec = importlib.util.spec_from_file_location("answer_with_sources", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.any_backend
def test_files_of_pairs_and_passages(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\ufeffq one\tred\n\nq two\tblue\n", "utf-8")
    assert example().read_pairs(path) == [["q one", "q two"], ["red", "blue"]]
    for text, message in (
        ("a\tb\nc\td\te\n", "line 2: expected a question, a tab and an answer"),
        ("\n", "must have a question and its answer"),
    ):
        path.write_text(text)
        with pytest.raises(typer.BadParameter, match=message):
            example().read_pairs(path)
    with pytest.raises(typer.BadParameter, match="must name files that have a parag"):
        example().read_passages(str(tmp_path / "*.txt"))


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_answers_with_their_sources(tmp_path, capsys):
    module = example()
    tiny_passages.make_retriever().save_to_preset(str(tmp_path / "retriever"))
    texts = tiny_passages.passages()
    (tmp_path / "a.txt").write_text("\n\n".join(texts[:6]))
    (tmp_path / "b.txt").write_text("\n\n".join([*texts[6:], texts[0]]))
    pairs = [f"{text}\t{text.split()[0]}" for text in texts]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs))
    arguments = [str(tmp_path / "retriever"), tmp_path / "pairs.tsv"]
    answers, sources = module.main(
        *arguments, str(tmp_path / "*.txt"), texts[:2], length=20, epochs=1
    )
    assert len(answers) == 2 and [len(found) for found in sources] == [5, 5]
    printed = capsys.readouterr().out
    for number, found in enumerate(sources):
        assert f"{texts[number]} {answers[number]}\n" in printed
        for passage, _ in found:
            name = "a.txt" if passage in texts[:6] else "b.txt"
            assert f"{name}: {passage}" in printed
