"""The example that writes summaries, on texts that are easy to learn."""

import importlib.util
import json
import sys

import pytest

from keras_bertfam.tasks import TextToText
from tests.checkout import ROOT
from tests.tasks.generation.text_to_text_tokenizers import random_texts

PATH = ROOT / "examples" / "summarize.py"
TINY = {"vocabulary_size": 120, "length": 24, "target_length": 12, "layers": 1}
TINY |= {"width": 64, "epochs": 1, "batch_size": 8, "num_beams": 2, "max_length": 10}
TEXTS = random_texts(40, most=8)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("summarize", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(*names):
    return [dict(zip(names, (text, text.split()[0]), strict=True)) for text in TEXTS]


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_summarize(example, tmp_path):
    pytest.importorskip("rouge_score")
    for part in ("train", "validation"):
        lines = map(json.dumps, rows("document", "summary"))
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines))
    output = str(tmp_path / "model")
    scores = example.main("xsum", output, folder=str(tmp_path), **TINY, min_length=3)
    assert scores.keys() == {"rouge1", "rouge2", "rougeL", "rougeLsum"}
    model = TextToText.from_preset(output)
    assert isinstance(model.generate(TEXTS[0], 8), str)
    # What it left is gone on from, with a table of one's own.
    path = tmp_path / "mine.tsv"
    lines = [f"{text}\t{text.split()[0]}" for text in TEXTS]
    path.write_text("\n".join(["text\tshort", *lines]))
    columns = {"text": "text", "label": "short", "preset": output}
    scores = example.main(str(path), str(tmp_path / "again"), **columns, **TINY)
    assert 0 <= scores["rouge1"] <= 100


@pytest.mark.any_backend
def test_data_is_read_from_where_it_is_said_to_be(example, tmp_path, monkeypatch):
    with pytest.raises(Exception, match="--text and --label must name columns"):
        example.load("mine.csv")
    for name, data in (("tensorflow_datasets", "xsum"), ("datasets", "hf:me/it")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(Exception, match=f"{data}.* needs {name}, which isn't"):
            example.load(data, text="text", label="short")

    class Library:
        @staticmethod
        def load_dataset(name, split):
            assert (name, split) == ("me/it", "train")
            return str(path)

    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows("text", "short"))))
    monkeypatch.setitem(sys.modules, "datasets", Library)
    train, held_out = example.load("hf:me/it", text="text", label="short")
    assert (len(train), len(held_out)) == (36, 4)
    assert train.y[0] == train.x[0].split()[0]
