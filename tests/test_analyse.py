"""The command that writes a page of all that can be said of a model and texts."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from keras_bertfam import models, tasks
from keras_bertfam.analysis import overview, pseudo_log_likelihood
from keras_bertfam.cli import analysis, scoring
from keras_bertfam.cli.app import app
from tests import tiny_fine_tuning as tiny
from tests import tiny_masked_lm, tiny_text_to_text

TEXTS = ["the cat sat", "a <dog>", "a", "the", "red"]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    path = tmp_path_factory.mktemp("analyse") / "masked"
    tiny_masked_lm.make_model().save_to_preset(str(path))
    return path


def run(*arguments, **kwargs):
    result = CliRunner().invoke(app, ["analyse", *map(str, arguments)], **kwargs)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.slow
def test_all_that_applies_to_a_masked_lm(preset, tmp_path):
    (tmp_path / "x.txt").write_text("\n".join([*TEXTS[:2], "", *TEXTS[2:]]), "utf-8")
    path = tmp_path / "report.html"
    code, text = run(preset, tmp_path / "x.txt", "--output", path)
    assert code == 0 and text == f"Wrote {path}."
    html = path.read_text("utf-8")
    for title in ("Attention", "Heads", "Layers", "Likelihood"):
        assert f"<h2>{title}</h2>" in html
    assert "<h1>MaskedLM on BertBackbone</h1>" in html
    assert "don't apply here: saliency." in html
    assert "These are the first 4 of 5 texts." in html
    assert (
        "<tr><td>0</td>" in html
        and "<tr><td>1</td>" not in html
        and html.count("<iframe") == 1
        and html.count("data:image/png") == 2
    )
    assert "<dog>" not in html and "<td>a &lt;dog&gt;</td>" in html
    sums, counts = pseudo_log_likelihood(tasks.MaskedLM.from_preset(preset), TEXTS)
    assert f"<td>{counts[0]}</td><td>{sums[0]:.4g}</td>" in html
    assert f"Of all texts: {np.exp(-sums.sum() / counts.sum()):.4g}." in html


@pytest.mark.slow
def test_what_does_not_apply_is_named(preset, tmp_path):
    path = tmp_path / "report.html"
    code, _ = run(preset, "--output", path, input="the cat\ta dog\n")
    html = path.read_text("utf-8")
    assert code == 0 and "don't apply here: heads, likelihood, saliency." in html
    assert "<h2>Likelihood</h2>" not in html and "<h2>Layers</h2>" in html
    model = analysis.load_model(str(preset))
    mine = overview.Section("Mine", "A & B.", lambda model, texts: f"<b>{texts}</b>")
    html = overview.overview(model, "the cat", [mine])
    assert "<h2>Mine</h2>\n<p>A &amp; B.</p>\n<b>['the cat']</b>" in html


WORDS = """# text = the cat sat
1	the	_	DET	_	_	2	det	_	_
2	cat	_	NOUN	_	_	3	nsubj	_	_
3	sat	_	VERB	_	_	0	root	_	_

"""


@pytest.mark.slow
def test_words_in_context_and_probes(preset, tmp_path, monkeypatch):
    """What is asked for; each part by itself is tested where it is made."""
    monkeypatch.setattr(analysis, "SECTIONS", [])
    path = tmp_path / "report.html"
    (tmp_path / "x.conllu").write_text(WORDS * 10, "utf-8")
    arguments = ("--words", "cat, Dog,hen", "--probe", tmp_path / "x.conllu")
    texts = "The Cat sat.\na <dog> and a cat\n"
    code, text = run(preset, *arguments, "--output", path, input=texts)
    html = path.read_text("utf-8")
    assert code == 0 and "Left out" not in html and "Not in the texts: hen." in html
    assert "<td>The [Cat] sat .</td><td>a &lt; dog &gt; and a [cat]</td>" in html
    assert "<td>a &lt; [dog] &gt; and a cat</td>" in html
    assert html.count("data:image/png") == 3
    assert "<th>selectivity</th>" in html and "of the most frequent label" in html
    assert "<tr><td>det</td><td>to dependent</td><td>10</td>" in html


@pytest.mark.slow
def test_facts_and_labels_of_spans(preset, tmp_path, monkeypatch):
    """A folder as LAMA has it, and a file as edge probing has it."""
    monkeypatch.setattr(analysis, "SECTIONS", [])
    path = tmp_path / "report.html"
    (tmp_path / "facts").mkdir()
    fact = '{"masked_sentences": ["the [MASK] <sat>"], "obj_label": "cat"}'
    (tmp_path / "facts" / "a&b.jsonl").write_text(fact)
    line = '{"text": "the cat sat", "targets": [{"span1": [1, 3], "label": ["a"]}]}\n'
    (tmp_path / "x.jsonl").write_text(line * 10)
    arguments = ("--facts", tmp_path / "facts", "--probe", tmp_path / "x.jsonl")
    code, _ = run(preset, *arguments, "--output", path, input="the cat\n")
    html = path.read_text("utf-8")
    assert code == 0 and html.count("data:image/png") == 2
    assert "<h2>Facts</h2>" in html and "<td>a&amp;b</td>" in html
    assert "1 facts, 0 left out; 16 candidates." in html
    assert "Micro F1 of small classifiers of spans" in html
    assert "<th>micro_f1</th>" in html
    (tmp_path / "facts" / "b.jsonl").write_text("{}")
    code, text = run(preset, *arguments, "--output", path, input="the cat\n")
    assert code == 2 and "b.jsonl, line 1: expected obj_label" in text


@pytest.mark.slow
def test_a_fine_tuned_task_on_labelled_examples(tmp_path):
    texts, labels = tiny.texts(24)
    names = ["odd", "<even>"]
    rows = zip(texts, (names[k] for k in labels), strict=True)
    table = "\n".join(map(",".join, [("review", "side"), *rows]))
    (tmp_path / "x.csv").write_text(table, "utf-8")
    preprocessor = tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    backbone = tiny.make_backbone(num_layers=1)
    model = tasks.TextClassifier(
        backbone, preprocessor=preprocessor, label_names=names[::-1]
    )
    model.save_to_preset(str(tmp_path / "preset"))
    path = tmp_path / "report.html"
    arguments = ("--labelled", tmp_path / "x.csv", "--text", "review")
    arguments = (tmp_path / "preset", *arguments, "--output", path)
    code, text = run(*arguments, "--label", "side", input="the cat\n")
    html = path.read_text("utf-8")
    assert code == 0 and "don't apply here: likelihood." in html
    for title in ("Saliency", "Scores", "Calibration", "Importance of heads"):
        assert f"<h2>{title}</h2>" in html
    accuracy = model.report(texts, [names[k] for k in labels]).scores["accuracy"]
    assert f"<tr><td>accuracy</td><td>{accuracy:.4g}</td></tr>" in html
    assert "<td>&lt;even&gt;</td>" in html and "<even>" not in html
    code, text = run(*arguments, input="the cat\n")
    assert code == 2 and "`--label` must be the column" in text


@pytest.mark.slow
def test_labels_of_all_kinds_have_a_page(tmp_path):
    """Sets of labels, and the tags of a model whose classes have no names."""
    backbone = tiny.make_backbone(num_layers=1)
    sets = zip(TEXTS, (["a"], ["a", "b"], [], ["c"], ["b"]), strict=True)
    rows = (json.dumps({"text": text, "labels": found}) for text, found in sets)
    (tmp_path / "x.jsonl").write_text("\n".join(rows), "utf-8")
    tags = "\n\n".join(["the 0\ncat 1\nsat 0", "a 0\ndog 1"] * 3)
    (tmp_path / "x.conll").write_text(tags, "utf-8")
    classifier = tasks.TextClassifier(
        backbone,
        preprocessor=tasks.TextClassifierPreprocessor(tiny.make_tokenizer(), 16),
        label_names=["a", "b", "c"],
        multi_label=True,
    )
    tagger = tasks.TokenClassifier(
        backbone, 2, tasks.TokenClassifierPreprocessor(tiny.make_tokenizer(), 16)
    )
    for model, table, *columns in (
        (classifier, "x.jsonl", ["text"], "labels"),
        (tagger, "x.conll", (), None),
    ):
        examples = scoring.table_of(model, str(tmp_path / table), *columns)
        sections = overview.labelled_sections(examples)
        found = {s.title: s.make(model, TEXTS) for s in sections}
        assert found["Scores"] and found["Importance of heads"]
        assert found["Calibration"] is None


@pytest.mark.slow
def test_a_task_for_each_kind_of_checkpoint(preset, tmp_path):
    """The task that was saved, or one without a head; and both sides have a page."""
    assert type(analysis.load_model(str(preset))) is tasks.MaskedLM
    tokenizer = tiny.make_tokenizer()
    size = {"vocabulary_size": tokenizer.vocabulary_size()}
    backbones = {
        "encoder": (tiny.make_backbone(num_layers=1), tasks.TextEmbedder),
        "decoder": (tiny_text_to_text.make("GPT2", **size), tasks.CausalLM),
        "both": (tiny_text_to_text.make("T5", **size), tasks.TextToText),
    }
    for name, (backbone, expected) in backbones.items():
        path = str(tmp_path / name)
        backbone.save_to_preset(path)
        tokenizer.save_to_preset(path)
        model = analysis.load_model(path)
        assert type(model) is expected
        np.testing.assert_array_equal(model.backbone.weights[0], backbone.weights[0])
        if name == "decoder":
            html = overview.overview(model, ["the cat sat"])
            assert "<th>perplexity</th>" in html and "<h2>Heads</h2>" in html
    assert isinstance(model.backbone, models.EncoderDecoderBackbone)
    html = overview.overview(model, [("the cat", "a dog")])
    assert "<td>encoder 0</td>" in html and "<td>decoder 1</td>" in html


def test_mistakes_are_explained_in_a_line(preset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, given, message in [
        ((preset,), "\n", "must have at least one text"),
        ((preset,), "a\tb\tc\n", "standard input, line 1: expected a text, or two"),
        ((preset,), "a\nb\tc\n", "`texts` must be"),
        ((preset, "none.txt"), "", "none.txt"),
        (("no-preset",), "a\n", "no-preset"),
    ]:
        code, text = run(*arguments, input=given)
        assert code == 2 and message in text and "Traceback" not in text
    assert not [*tmp_path.iterdir()]
