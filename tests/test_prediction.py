"""The commands that answer examples from files and standard input."""

import io
import json
import re

import keras_hub
import pytest
from typer.testing import CliRunner

from keras_bertfam import models, tasks
from keras_bertfam.cli import prediction
from keras_bertfam.cli.app import app
from keras_bertfam.tasks.generation.nucleus import NucleusSampler
from keras_bertfam.tasks.generation.settings import SAMPLERS
from tests import tiny_fine_tuning as tiny
from tests import tiny_masked_lm, tiny_questions

TEXTS = ["the cat sat", "a dog ran"]


def make(cls, **kwargs):
    names = {k: v for k, v in kwargs.items() if k == "label_names"}
    preprocessor = cls.preprocessor_cls(tiny.make_tokenizer(), 24, **names)
    backbone = tiny.make_backbone(num_layers=1)
    return tiny.compiled(cls(backbone, preprocessor=preprocessor, **kwargs))


def answers(model, text="the cat sat\na dog ran", files=(), columns=()):
    return [*prediction.predict(model, files, columns, io.StringIO(text))]


@pytest.mark.slow
def test_labels_of_texts():
    model = make(tasks.TextClassifier, label_names=["bad", "good"])
    expected = [
        {"text": text, "label": pairs[0][0], "probability": pytest.approx(pairs[0][1])}
        for text, pairs in zip(TEXTS, model.classify(TEXTS), strict=True)
    ]
    # White lines are none, as at a file's end.
    assert answers(model, f"{TEXTS[0]}\r\n\n{TEXTS[1]}\n") == expected
    assert answers(model, "") == []


@pytest.mark.slow
def test_pairs_of_a_table(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text('a,b,c\n1,"the cat, sat",x\n2,a dog,y\n')
    model = make(tasks.TextClassifier, label_names=["no", "yes"])
    received = answers(model, files=[str(path)], columns=["b", "c"])
    pairs = model.classify((["the cat, sat", "a dog"], ["x", "y"]))
    assert [row["label"] for row in received] == [pair[0][0] for pair in pairs]
    assert received[0]["b"] == "the cat, sat" and "a" not in received[0]
    with pytest.raises(ValueError, match="`text` must be a column of .*'text'"):
        answers(model, files=[str(path)])
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"b": "a", "c": "x"}\n{"b": "a", "c": null}\n')
    with pytest.raises(ValueError, match=r"pairs.jsonl, line 2, column 'c': .* None\."):
        answers(model, files=[str(path)], columns=["b", "c"])


@pytest.mark.slow
def test_marks_and_names_in_what_is_read(tmp_path):
    model = make(tasks.TextClassifier, label_names=["bad", "good"])
    assert answers(model, "\ufeffthe cat")[0]["text"] == "the cat"
    (tmp_path / "a.csv").write_text("label\nthe cat\n")
    with pytest.raises(ValueError, match=r"named as an answer is. .*\['label'\]"):
        answers(model, files=[str(tmp_path / "a.csv")], columns=["label"])


@pytest.mark.slow
def test_more_examples_than_a_batch(monkeypatch):
    model = make(tasks.TextClassifier, label_names=["bad", "good"])
    monkeypatch.setattr(prediction, "BATCH", 2)
    received = answers(model, "\n".join(TEXTS * 2 + TEXTS[:1]))
    assert [row["text"] for row in received] == TEXTS * 2 + TEXTS[:1]


@pytest.mark.slow
def test_words_of_a_file_in_conlls_format(tmp_path):
    path = tmp_path / "words.conll"
    path.write_text("the O\ncat B\n\na O\n")
    received = answers(
        make(tasks.TokenClassifier, label_names=["O", "B"]), files=[str(path)]
    )
    assert [len(row["tags"]) for row in received] == [2, 1]
    assert [[*row["tokens"]] for row in received] == [["the", "cat"], ["a"]]


@pytest.mark.slow
def test_numbers_vectors_and_tags():
    (first, _) = answers(make(tasks.TextRegressor))
    assert isinstance(first["score"], float)
    (first, _) = answers(make(tasks.TextEmbedder))
    assert len(first["embedding"]) == 16
    (first, _) = answers(make(tasks.TokenClassifier, label_names=["O", "B"]))
    assert first["words"] == ["the", "cat", "sat"] and len(first["tags"]) == 3
    assert json.loads(json.dumps(first)) == first
    (first, _) = answers(make(tasks.DependencyParser, label_names=["root", "x"]))
    assert first["words"] == ["the", "cat", "sat"] and first["heads"].count(0) == 1
    assert json.loads(json.dumps(first)) == first


@pytest.mark.slow
def test_questions_and_choices_in_lines_of_json():
    model = tiny_questions.make_model()
    row = {
        "question": "where is the cat ?",
        "context": "the cat sat on a mat .",
        "n": 1,
    }
    (answer,) = answers(model, json.dumps(row))
    expected = model.predict({k: row[k] for k in ("question", "context")}, verbose=0)
    assert answer["answer"] == expected["text"] and "n" not in answer
    row = {"context": "the cat sat", "choices": ["a dog", "a cat", "the mat"]}
    (answer,) = answers(make(tasks.MultipleChoice), json.dumps(row))
    assert answer["choice"] in range(3) and 1 / 3 <= answer["probability"] <= 1
    row = {"text": "the cat sat", "first": [0, 3], "second": [4, 7]}
    model = make(tasks.RelationClassifier, label_names=["a", "b"])
    (answer,) = answers(model, json.dumps(row))
    assert answer["label"] in ("a", "b") and answer["first"] == [0, 3]
    model = tiny_questions.make_model()
    for line in ("where is it ?", "[1]", '{"question": "x"}'):
        with pytest.raises(ValueError, match="standard input, line 1: expected a JSON"):
            answers(model, line)


@pytest.mark.any_backend
def test_standard_input_of_other_bytes():
    # As Python reads in the C locale, where other bytes aren't errors.
    given = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfa\r\nb\n"), "ascii")
    assert [*prediction.lines_of_input(given)] == ["a\r\n", "b\n"]
    bytes_ = io.BytesIO("d\xe9j\xe0\n".encode() + b"d\xe9ran\n")
    given = prediction.lines_of_input(
        io.TextIOWrapper(bytes_, "ascii", "surrogateescape")
    )
    assert next(given) == "d\xe9j\xe0\n"
    with pytest.raises(ValueError, match="in UTF-8.* in line 2: 'utf-8'"):
        next(given)


@pytest.mark.slow
def test_the_commands(tmp_path):
    def run(*arguments, **kwargs):
        result = CliRunner().invoke(app, [*map(str, arguments)], **kwargs)
        return result.exit_code, result.stdout, " ".join(result.output.split())

    preset = tmp_path / "masked"
    tiny_masked_lm.make_model().save_to_preset(str(preset))
    code, lines, _ = run("fill-mask", preset, "--top-k", 2, input="the [MASK] sat\n")
    (answer,) = map(json.loads, lines.splitlines())
    model = tasks.MaskedLM.from_preset(str(preset))
    expected = model.fill_mask("the [MASK] sat", 2)
    assert code == 0 and [
        [(token["token"], token["probability"]) for token in slot]
        for slot in answer["masks"]
    ] == [[(token, pytest.approx(float(p))) for token, p in slot] for slot in expected]
    code, _, text = run("fill-mask", preset, input="no mask\n")
    assert code == 2 and "mask" in text
    code, _, text = run("predict", preset, input="the cat\n")
    assert code == 2 and "`PRESET` must be of one of CrossEncoder," in text
    make(tasks.TextClassifier, label_names=["a", "b"]).save_to_preset(
        str(tmp_path / "classifier")
    )
    (tmp_path / "x.txt").write_text("the cat\na dog\n")
    code, lines, _ = run("predict", tmp_path / "classifier", tmp_path / "x.txt")
    rows = [json.loads(line) for line in lines.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == ["the cat", "a dog"]


@pytest.mark.slow
def test_texts_are_written(tmp_path):
    def run(*arguments, **kwargs):
        asked = ["generate", *map(str, arguments), "--max-length", "8"]
        result = CliRunner().invoke(app, asked, **kwargs)
        rows = [json.loads(x) for x in result.stdout.splitlines() if x[:1] == "{"]
        return result.exit_code, rows, " ".join(result.output.split())

    tokenizer = tiny_masked_lm.make_model().preprocessor.tokenizer
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = models.GPT2Backbone(tokenizer.vocabulary_size(), **sizes)
    preprocessor = tasks.CausalLMPreprocessor(tokenizer, 16)
    model = tasks.CausalLM(backbone, preprocessor)
    preset = tmp_path / "writer"
    model.save_to_preset(preset)
    (tmp_path / "prompts.txt").write_text("a dog\n\nthe mat\n")
    file = tmp_path / "prompts.txt"
    code, rows, said = run(preset, "the cat", "--file", file)
    assert code == 0, said
    prompts = ["the cat", "a dog", "the mat"]
    assert [row["prompt"] for row in rows] == prompts
    assert [row["text"] for row in rows] == model.generate(prompts, 8)
    sampled = ["--sampler", "top_p", "--top-p", "0.9", "--temperature", "2", "--seed"]
    code, rows, said = run(preset, *sampled, "3", input="the cat\n")
    assert code == 0, said
    sampler = keras_hub.samplers.TopPSampler(0.9, temperature=2.0, seed=3)
    assert rows[0]["text"] == model.generate("the cat", 8, sampler)
    beams = ["--sampler", "beam", "--num-beams", 3, "--num-return-sequences", 2]
    code, rows, said = run(preset, *beams, input="the cat\n")
    settings = tasks.GenerationSettings(num_beams=3, num_return_sequences=2)
    assert code == 0, said
    assert rows[0]["texts"] == model.generate("the cat", 8, "beam", settings=settings)


@pytest.mark.slow
def test_options_of_the_models_own_sampler():
    tokenizer = tiny_masked_lm.make_model().preprocessor.tokenizer
    size, width = tokenizer.vocabulary_size(), {"hidden_dim": 8, "intermediate_dim": 16}
    backbone = models.GPT2Backbone(size, num_layers=1, num_heads=2, **width)
    preprocessor = tasks.CausalLMPreprocessor(tokenizer, 16)

    def written(generation, sampler=None, **options):
        model = tasks.CausalLM(backbone, preprocessor, generation=generation)
        assert prediction.own_sampler(model) in SAMPLERS
        rows = prediction.generate(model, ["the cat"], 8, sampler, options)
        return model, [*rows][0]

    draws = {"do_sample": True, "top_k": 5, "temperature": 2.0}
    model, row = written(draws, seed=3, top_p=0.9)
    sampler = NucleusSampler(0.9, 5, temperature=2.0, seed=3)
    assert row["text"] == model.generate("the cat", 8, sampler)
    assert row == written(draws, seed=3, top_p=0.9)[1]
    several = {"num_beams": 2, "num_return_sequences": 2}
    assert len(written(several)[1]["texts"]) == 2
    model, row = written(several, "greedy")
    one = {"num_return_sequences": 1}
    assert row["text"] == model.generate("the cat", 8, "greedy", settings=one)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--sampler top_p --num-beams 3", "`--num-beams` must be left out unless"),
        ("--sampler greedy --top-p 0.3", "`--top-p` must be left out unless"),
        ("--sampler top_k --top-p 0.3", "one of ['top_p']. Received: 0.3"),
        ("--sampler best", "`--sampler` must be one of"),
    ],
)
def test_options_that_a_sampler_does_not_read(options, said):
    result = CliRunner().invoke(app, ["generate", ".", *options.split()])
    text = " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())
    assert result.exit_code == 2 and said in text, text
