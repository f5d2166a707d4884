"""The command that pre-trains: its settings, its file, and what it makes of them."""

import dataclasses
import os
import pathlib
import re

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from keras_bertfam import tasks
from keras_bertfam.cli import building, inputs, pretraining, runs
from keras_bertfam.cli.app import app
from keras_bertfam.cli.runs import PretrainingRun, families
from keras_bertfam.corpus import python_documentation
from keras_bertfam.layers import mark_languages
from keras_bertfam.models import XlmBackbone
from keras_bertfam.presets import locks
from keras_bertfam.presets.families import FAMILIES
from keras_bertfam.presets.families.parts.objectives import OBJECTIVES
from keras_bertfam.tokenizers import BertTokenizer
from tests import tiny_masked_lm

TINY = ["--size", "tiny", "--sequence-length", 32, "--vocabulary-size", 500]
SHORT = ["--batch-size", 4, "--epochs", 1, "--steps-per-epoch", 2]


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(python_documentation()[:8]), "utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def same_policy():
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


def command(*arguments):
    result = CliRunner().invoke(app, ["pretrain", *map(str, arguments)])
    return result.exit_code, " ".join(re.sub(r"[│╭╰─╮╯]", "", result.output).split())


@pytest.mark.parametrize(
    ("family", "objective"),
    [
        ("bert", "nsp"),
        ("roberta", "mlm"),
        ("albert", "sop"),
        ("spanbert", "sbo"),
        ("electra", "rtd"),
        ("xlnet", "plm"),
        ("gpt2", "clm"),
        ("neobert", "mlm"),
        ("t5", "random_spans"),
        ("bart", "bart"),
    ],
)
def test_objectives_and_sizes_of_the_families(family, objective):
    run = PretrainingRun(family=family)
    assert run.objective_name == objective
    name, shape = run.published_size()
    published = FAMILIES[family].sizes[name].arguments
    assert {**published, **shape}["hidden_dim"] == 256
    name, shape = run.changed(size="base").published_size()
    assert "_base_" in name and shape == {}
    assert run.changed(size=name).published_size() == (name, {})


@pytest.mark.parametrize(
    ("family", "objective"), [("ettin", "mlm"), ("modernbert-decoder", "clm")]
)
def test_sizes_that_are_called_by_their_parameters(family, objective):
    run = PretrainingRun(family=family, size="150m")
    assert run.objective_name == objective
    name, shape = run.published_size()
    assert "_150m_" in name and shape == {}
    assert run.changed(size="mini").published_size()[1]["hidden_dim"] == 256
    assert run.longest_row() == 8192


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "gpt"}, "`family` must be one of"),
        ({"objective": "lm"}, "`objective` must be one of"),
        ({"family": "t5", "strategy": "words"}, "`strategy` must be left out"),
        ({"objective": "tsdae", "strategy": "words"}, "`strategy` must be left out"),
        ({"family": "t5", "cased": False}, "`cased` must be left out or true for a s"),
        ({"family": "gpt2", "cased": False}, "for a byte_pair vocabulary of"),
        ({"precision": "int4"}, "`precision` must be one of"),
        ({"packing": "full"}, "`packing` must be one of [None, 'segments',"),
        ({"family": "xlnet", "packing": "best_fit"}, "one of [None]. Received: 'best"),
        ({"epochs": 0}, "`epochs` must be at least 1. Received: 0."),
        ({"epochs": "many"}, "`epochs` must be of type int. Received: 'many'."),
        ({"epochs": True}, "`epochs` must be of type int. Received: True."),
        ({"learning_rate": "fast"}, "`learning_rate` must be of type float."),
        ({"files": [1]}, "`files` must be of type a list of strings."),
        ({"objective": "plm"}, "`family` must be one of ['xlnet'] for the ob"),
        ({"teacher": "x"}, "`teacher` must be left out unless `objective` is"),
        (
            {"family": "distilbert", "teacher": "x", "size": "tiny"},
            "`size` and `tokenizer` must be left out",
        ),
        ({"preset": "x", "tokenizer": "byte_pair"}, "must be left out: they come from"),
        ({"new_words": 5}, "`new_words` must be left out without a `preset`"),
        ({"new_words": -5}, "`new_words` must be at least 0."),
        ({"steps_per_epoch": 0}, "`steps_per_epoch` must be at least 1. Received: 0."),
        ({"text_share": 0.0}, "`text_share` must be in (0, 1]. Received: 0.0."),
        ({"text_share": 1.5}, "`text_share` must be in (0, 1]. Received: 1.5."),
        (
            {"text_share": 0.5, "files": ["de=a.txt"], "mix_exponent": 0.3},
            "`text_share` must be left out with `mix_exponent`. Received: 0.5.",
        ),
        ({"mix_exponent": 1.5}, "`mix_exponent` must be a finite number fro"),
        ({"mix_exponent": "nan"}, "`mix_exponent` must be a finite number"),
        (
            {"mix_exponent": 0.3, "files": ["de.txt"]},
            "`files` must each be LANGUAGE=FILES with a `mix_exponent`, such as",
        ),
        (
            {"mix_exponent": 0.3, "files": ["de+is=de.txt"]},
            "`files` of two languages must be one each of either, in order, such as",
        ),
        (
            {"mix_exponent": 1, "files": ["a=a"], "validation": ["a=a", "b.txt"]},
            "`validation` must each be LANGUAGE=FILES with a `mix_exponent`, such as",
        ),
        (
            {"mix_exponent": 1, "files": ["a=a"], "validation": ["b"], "family": "xlm"},
            "`validation` must each be LANGUAGE=FILES, with a `mix_exponent`, of the",
        ),
        (
            {"mix_exponent": 1, "files": ["a+b=a", "a+b=b"], "objective": "nsp"},
            "`packing` must be one of [None, 'segments', 'sentences', 'best_fit', 'b",
        ),
    ],
)
def test_settings_that_are_wrong(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        PretrainingRun(**settings)


def test_a_killed_run_is_known_by_what_its_file_says(text_file, tmp_path):
    """Tuples, as configs of ModernBERT have, are lists in it."""
    run = PretrainingRun(
        (text_file,),
        str(tmp_path / "out"),
        family="modernbert",
        resume=True,
        backbone_arguments={"attention_window": (0, 128)},
    )
    folder = pathlib.Path(inputs.backup_folder(run))
    folder.mkdir()
    run.write(folder / "run.yaml")
    for name in ("backup.npz", ".unfinished"):
        (folder / name).write_bytes(b"")
    inputs.check_run(run)
    run = run.changed(backbone_arguments={"attention_window": (0, 64)})
    with pytest.raises(ValueError, match="`backbone_arguments` must be .*128"):
        inputs.check_run(run)


def test_files_by_language(text_file, tmp_path):
    files = (f"de={text_file}", f"en={text_file}", "de=a=b.txt")
    run = PretrainingRun(files=files, mix_exponent=0.3)
    assert runs.by_language(run.files) == {
        "de": [text_file, "a=b.txt"],
        "en": [text_file],
    }
    assert run.paths() == [text_file, "a=b.txt", text_file]
    run.write(tmp_path / "run.yaml")
    assert PretrainingRun.read(tmp_path / "run.yaml") == run
    with pytest.raises(FileNotFoundError, match="`files` must name existing files"):
        inputs.check_run(run.changed(output=str(tmp_path / "out")))
    assert PretrainingRun(files=("a=b.txt",)).paths() == ["a=b.txt"]


@pytest.mark.slow
def test_several_languages(text_file, tmp_path):
    other = tmp_path / "is.txt"
    other.write_text("hafið var hafið", "utf-8")
    output = tmp_path / "out"
    files = [f"en={text_file}", f"is={tmp_path}/is*", "--mix-exponent", 0]
    code, text = command(*files, "--output", output, *TINY, *SHORT)
    assert code == 0, text
    run = PretrainingRun.read(output / "run.yaml")
    assert run.mix_exponent == 0 and run.files[0] == files[0]
    tokenizer = tasks.MaskedLM.from_preset(str(output)).preprocessor.tokenizer
    assert "hafið" in tokenizer.get_vocabulary()
    other.write_text(" ", "utf-8")
    code, text = command(*files, "--output", tmp_path / "two", *TINY, *SHORT)
    assert code and "must all have text. Received: none for 'is'." in text


def test_translations_beside_texts(text_file, tmp_path):
    for name, line in (("en", "the sea was blue"), ("is", "hafið var blátt")):
        (tmp_path / f"pairs.{name}").write_text(f"{line}\n" * 9, "utf-8")
    pairs = [f"en+is={tmp_path}/pairs.{name}" for name in ("en", "is")]
    files = (*pairs, f"en={text_file}")
    run = PretrainingRun(files=files, mix_exponent=0.5, objective="mlm")
    assert run.packing == "translations"
    documents = pretraining.read_corpora(run)
    texts = {*documents.corpora["en+is"].as_numpy_iterator()}
    assert run.languages() is None
    run = run.changed(family="xlm", size="tiny", files=files[-1:], packing=None)
    assert (run.languages(), run.packing) == (["en"], "translations")
    pair = mark_languages({"en": "the sea was blue", "is": "hafið var blátt"})
    assert texts == {pair.numpy()}
    assert next(iter(documents.corpora["en"])).numpy().startswith(b"\x1een\x1e")


def test_validation_by_language(text_file, tmp_path):
    for name, line in (("en", "the sea"), ("is", "hafið")):
        (tmp_path / name).write_text(line, "utf-8")
    told = [f"is={tmp_path}/is", f"en={tmp_path}/en"]
    run = PretrainingRun(files=[f"en={text_file}"], mix_exponent=1, validation=told)
    inputs.check_run(run.changed(output=str(tmp_path / "out")))
    texts = [*pretraining.read_validation(run).as_numpy_iterator()]
    marked = [mark_languages({"is": "hafið"}), mark_languages({"en": "the sea"})]
    assert texts == [each.numpy() for each in marked]
    plain = str(tmp_path / "a=b")  # a path, not a language
    (tmp_path / "a=b").write_text("the sea", "utf-8")
    run = run.changed(validation=[plain])
    assert [*pretraining.read_validation(run).as_numpy_iterator()] == [b"the sea"]
    missing = run.changed(validation=["en=none.txt"], output=str(tmp_path / "out"))
    with pytest.raises(FileNotFoundError, match="`validation` must name existing"):
        inputs.check_run(missing)


def tiny_xlm(words=("sea", "blue", "the")):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertTokenizer([*special, *words], lowercase=True)
    backbone = XlmBackbone(tokenizer.vocabulary_size(), 1, 1, 8, 8, num_languages=2)
    preprocessor = tasks.MaskedLMPreprocessor(
        tokenizer, 16, languages=["is", "en"], separators=3
    )
    return tasks.MaskedLM(backbone, preprocessor)


def test_languages_of_a_preset(monkeypatch):
    model = tiny_xlm()
    monkeypatch.setattr(tasks.MaskedLM, "from_preset", lambda *_, **__: model)
    run = PretrainingRun(
        files=["en=a"], mix_exponent=0.7, preset="my_xlm", sequence_length=12
    )
    fed = building.build(run, None).preprocessor
    assert (fed.languages, fed.separators) == (["is", "en"], 3)
    assert run.packing is None and fed.parts()[0].languages == fed.languages
    with pytest.raises(ValueError, match="`validation` must each be LANGUAGE=FILES, "):
        building.build(run.changed(validation=["a"]), None)
    plain = run.changed(preprocessor_arguments={"languages": None}, validation=["a"])
    assert building.build(plain, None).preprocessor.languages is None


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"files": ["is=a", "de=a"]}, "files"),
        ({"files": ["a"], "mix_exponent": None}, "files"),
        ({"validation": ["de=a"]}, "validation"),
    ],
)
def test_texts_without_a_known_language(wrong, argument):
    run = PretrainingRun(files=["en=a"], mix_exponent=0.7, preset="my_xlm")
    runs.check_languages(run, ["is", "en"])
    wrong = run.changed(**wrong)
    runs.check_languages(wrong, None)
    with pytest.raises(ValueError, match=f"`{argument}` must each be LANGUAGE=FILES, "):
        runs.check_languages(wrong, ["is", "en"])


@pytest.mark.slow
def test_rows_of_a_preset_have_its_languages(tmp_path):
    path, preset = tmp_path / "text", str(tmp_path / "xlm")
    tiny_xlm().save_to_preset(preset)
    path.write_text("the sea\n\nthe blue sea", "utf-8")
    given = {"files": [f"en={path}"], "mix_exponent": 0.7, "sequence_length": 12}
    distilled = PretrainingRun(objective="distillation", teacher=preset, **given)
    student = building.build(distilled, None)
    assert student.preprocessor.languages == ["is", "en"]
    run = PretrainingRun(preset=preset, **given)
    documents = pretraining.read_corpora(run)
    fed = building.build(run, documents).preprocessor
    row = next(iter(fed.dataset(documents, 1, packing=run.packing)))[0]
    ids, inside = (np.array(row[n]) for n in ("language_ids", "padding_mask"))
    assert (ids[inside] == 1).all() and inside.any()


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 0),
        ({"objective": "rtd", "files": ["en=a"], "mix_exponent": 0.7}, 0),
        ({"files": ["en=a", "en+is=a", "en+is=b"], "mix_exponent": 0.7}, 2),
    ],
)
def test_languages_of_a_new_encoder(settings, count):
    shape = {"num_layers": 1, "num_heads": 1, "hidden_dim": 8, "intermediate_dim": 8}
    shape |= {"vocabulary_size": 9}
    run = PretrainingRun(family="xlm", backbone_arguments=shape, **settings)
    assert building.make_backbone(run).num_languages == count


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"phases": "x"}, "`phases` must be of type list. Received: 'x'."),
        ({"phases": [3]}, "`phases` must be dicts with `steps` and the settings"),
        ({"phases": [{"steps": 1, "lr": 1}]}, "A setting of `phases` must be one of"),
        ({"steps_per_epoch": 2}, "`steps_per_epoch` must be left out with `phases`"),
        ({"distribution": "jax"}, "`distribution` must be left out with `phases`"),
        (
            {"phases": [{"steps": 1, "sequence_length": 600}]},
            "must be at most 512, the",
        ),
        (
            {"phases": [{"steps": 1, "objective": "bart"}]},
            "must be one that trains an encoder.",
        ),
        ({"family": "xlnet"}, "`phases` must be left out with the objective 'plm'."),
        (
            {"phases": [{"steps": 1, "mix_exponent": 0.3}]},
            "`phases` must not mix languages unless the run has a",
        ),
    ],
)
def test_phases_that_are_wrong(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        PretrainingRun(**{"phases": [{"steps": 1}], **settings})


@pytest.mark.slow
def test_phases_of_a_file(text_file, tmp_path, monkeypatch):
    other = tmp_path / "is.txt"
    other.write_text("hafið var hafið\n\nblátt var hafið", "utf-8")
    path, output = tmp_path / "run.yaml", tmp_path / "out"
    path.write_text(
        f"files: ['en={text_file}', 'is={other}']\noutput: {output}\n"
        "mix_exponent: 0.7\nobjective: mlm\nsize: tiny\nbatch_size: 4\n"
        "vocabulary_size: 300\nphases:\n"
        "- {steps: 2, sequence_length: 16}\n"
        "- {steps: 3, sequence_length: 32, batch_size: 2, mix_exponent: 0.3,\n"
        "   learning_rate: 1e-4, preprocessor_arguments: {mask_selection_rate: 0.3}}\n"
    )
    seen = []

    class Killed(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(self.model.preprocessor.sequence_length)
            if len(seen) == 4:
                raise InterruptedError

    made = pretraining._callbacks
    monkeypatch.setattr(
        pretraining, "_callbacks", lambda *args: [*made(*args), Killed()]
    )
    run = PretrainingRun.read(path)
    with pytest.raises(InterruptedError):
        pretraining.pretrain(run, lambda line: None)
    with pytest.raises(ValueError, match="`resume` must be given to continue"):
        pretraining.pretrain(run, lambda line: None)
    model = pretraining.pretrain(run.changed(resume=True), lambda line: None)
    assert seen == [16, 16, 32, 32, 32, 32, 32]  # from the phase's only backup
    assert model.preprocessor.mask_selection_rate == 0.3
    assert PretrainingRun.read(output / "run.yaml") == run
    assert not os.path.exists(f"{output}-backup")


def test_warm_up_in_steps_or_as_a_share(tmp_path):
    for given, expected in [("100", 100), (100.0, 100), ("0.1", 0.1), (None, None)]:
        warmup_steps = PretrainingRun(warmup_steps=given).warmup_steps
        assert warmup_steps == expected and type(warmup_steps) is type(expected)
    run = PretrainingRun(warmup_steps=100)
    run.write(tmp_path / "run.yaml")
    assert PretrainingRun.read(tmp_path / "run.yaml") == run


def test_an_unknown_size_is_named():
    with pytest.raises(ValueError, match="`size` must be one of .*'huge'"):
        PretrainingRun(size="huge").published_size()


def test_a_file_has_every_setting(tmp_path):
    run = PretrainingRun(
        files=("a.txt", "b.txt"),
        learning_rate=1e-4,
        cased=True,
        task_arguments={"variant": "electra_15"},
        resume=True,
    )
    run.write(tmp_path / "run.yaml")
    assert os.listdir(tmp_path) == ["run.yaml"]
    assert PretrainingRun.read(tmp_path / "run.yaml") == run.changed(resume=False)
    again = PretrainingRun.read(tmp_path / "run.yaml", epochs=3)
    assert again == run.changed(resume=False, epochs=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs: [", "must be YAML"),
        ("", "must have settings"),
        ("- epochs", "must have settings"),
        ("epoch: 3", "Received: 'epoch'; the nearest is 'epochs'"),
        ("vocabulary_size: many", "`vocabulary_size` must be of type int"),
    ],
)
def test_files_that_are_wrong(text, message, tmp_path):
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        PretrainingRun.read(tmp_path / "run.yaml")


def test_numbers_that_yaml_takes_for_strings(tmp_path):
    (tmp_path / "run.yaml").write_text("learning_rate: 1e-4\nfiles: corpus.txt\n")
    run = PretrainingRun.read(tmp_path / "run.yaml")
    assert run.learning_rate == 1e-4 and run.files == ("corpus.txt",)


def test_each_setting_but_dicts_has_an_option():
    code, text = command("--help")
    assert code == 0
    for field in dataclasses.fields(PretrainingRun):
        if field.name not in ("files", "phases") and "_arguments" not in field.name:
            assert f"--{field.name.replace('_', '-')}" in text, field.name


@pytest.fixture
def received(monkeypatch):
    """The runs that would have begun, whatever their files."""
    runs = []
    monkeypatch.setattr(inputs, "check_run", lambda run: None)
    monkeypatch.setattr(pretraining, "pretrain", lambda run, report: runs.append(run))
    return runs


def test_options_take_the_place_of_a_file_s_settings(tmp_path, received):
    PretrainingRun(epochs=3, seed=5, cased=True).write(tmp_path / "run.yaml")
    code, text = command(
        "a.txt", "b.txt", "--config", tmp_path / "run.yaml", "--epochs", 7, "--resume"
    )
    assert code == 0, text
    expected = PretrainingRun(
        files=("a.txt", "b.txt"), epochs=7, seed=5, cased=True, resume=True
    )
    assert received == [expected]


def test_recipes_are_settings(received):
    code, text = command("a.txt", "--recipe", "quick", "--learning-rate", 2e-4)
    assert code == 0, text
    settings = {**runs.RECIPES["quick"], "learning_rate": 2e-4}
    assert received == [PretrainingRun(files=("a.txt",), **settings)]
    others = {"num_layers": 3}
    merged = runs.with_recipe("quick", {"backbone_arguments": others})
    assert merged["backbone_arguments"] == {"dropout": 0.0, **others}


def test_arguments_of_classes_are_options(tmp_path, received):
    (tmp_path / "run.yaml").write_text("recipe: quick\nepochs: 3\n")
    given = [
        "--set",
        "backbone.num_layers=3",
        "--set",
        "preprocessor.random_token_rate=0",
    ]
    code, text = command("a.txt", "--mask-rate", 0.3, *given, "--recipe", "quick")
    assert code == 0, text
    assert received[-1].backbone_arguments == {"dropout": 0.0, "num_layers": 3}
    masking = {"random_token_rate": 0, "mask_selection_rate": 0.3}
    assert received[-1].preprocessor_arguments == masking
    code, text = command("a.txt", "--config", tmp_path / "run.yaml", *given)
    assert code == 0, text
    assert received[-1].epochs == 3 and received[-1].learning_rate == 1e-3
    assert received[-1].backbone_arguments == {"dropout": 0.0, "num_layers": 3}
    for wrong, message in [
        (["--set", "layers=3"], "`--set` must name an argument of backbone,"),
        (["--set", "task.x"], "`--set` must be a name, = and a value, such"),
        (["--family", "t5", "--mask-rate", 0.3], "`--mask-rate` must be left out with"),
    ]:
        code, text = command("a.txt", *wrong)
        assert code == 2 and message in text


@pytest.mark.slow("release")
@pytest.mark.parametrize("family", families())
def test_a_vocabulary_of_each_family(family, text_file, tmp_path):
    arguments = ["--vocabulary-size", 320, "--family", family]
    asked = ["vocabulary", text_file, "--output", tmp_path / "words", *arguments]
    result = CliRunner().invoke(app, [*map(str, asked)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "words" / "tokenizer.json").exists()


def test_a_vocabulary_alone(text_file, tmp_path):
    def learn(*arguments):
        asked = ["vocabulary", text_file, "--output", tmp_path / "words", *arguments]
        result = CliRunner().invoke(app, [*map(str, asked)])
        return result.exit_code, " ".join(
            re.sub(r"[│╭╰─╮╯]", "", result.output).split()
        )

    code, text = learn("--vocabulary-size", 300, "--cased")
    saved = BertTokenizer.from_preset(str(tmp_path / "words"))
    size = saved.vocabulary_size()
    assert code == 0 and text.endswith(f"words: {size} tokens."), text
    assert 250 < size <= 300 and not saved.lowercase
    code, text = learn("--tokenizer", "vocab.txt")
    assert code == 2 and "`--tokenizer` must be one of" in text
    code, text = learn("--epochs", 3)
    assert code == 2 and "No such option" in text


def test_mistakes_in_options_are_a_line(tmp_path):
    for arguments, message in [
        (("a.txt",), "`--output` must be given"),
        (("--output", tmp_path / "out"), "`FILES` must be given"),
        (("a.txt", "--family", "gpt"), "`--family` must be one of"),
        (
            ("a.txt", "--family", "distilbert", "--output", tmp_path / "out"),
            "`--teacher` must be the preset to distil",
        ),
        (("--config", "none.yaml"), "'none.yaml'"),
        (
            ("--recipe", "slow"),
            "`--recipe` must be one of ['published', 'quick', 'quick_muon']",
        ),
        (("--recipe", "quick", "--config", "a"), "`--recipe` must be left out"),
    ]:
        code, text = command(*arguments)
        assert code == 2 and message in text and "Traceback" not in text
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("family", "objective"), [("bert", "bart"), ("t5", "clm"), ("xlnet", "clm")]
)
def test_families_that_an_objective_does_not_fit(family, objective):
    with pytest.raises(
        ValueError, match="`family` must be one of .* for the objective"
    ):
        PretrainingRun(family=family, objective=objective)


# Of other families the examples, which are made of the same, tell.
@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "t5",
        pytest.param("roberta", marks=pytest.mark.slow("release")),
        pytest.param("xlnet", marks=pytest.mark.slow("release")),
    ],
)
def test_a_family_from_one_command(family, text_file, tmp_path):
    preset = tmp_path / "preset"
    files = [text_file, "--output", preset, "--family", family]
    others = ["--validation", text_file, "--accumulate", 2]
    code, text = command(*files, *TINY, *SHORT, *others)
    assert code == 0, text
    name = OBJECTIVES[PretrainingRun(family=family).objective_name].task
    model = getattr(tasks, name).from_preset(str(preset))
    assert type(model.backbone).__name__.lower() == f"{family}backbone"
    assert "learning_rate" in text  # the recipe, beside the published one
    assert sorted(os.listdir(tmp_path)) == ["preset", "text.txt"]


@pytest.mark.slow
def test_the_file_beside_a_preset_repeats_the_run(text_file, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    options = ["--output", one, "--objective", "mlm", *TINY, *SHORT]
    options += ["--packing", "best_fit"]
    for arguments in (
        [text_file, *options],
        ["--config", one / "run.yaml", "--output", other],
    ):
        code, text = command(*arguments)
        assert code == 0, text
    first, second = (tasks.MaskedLM.from_preset(str(path)) for path in (one, other))
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        assert (a == b).all()


@pytest.mark.slow
def test_electra_with_logs_checkpoints_and_half_precision(text_file, tmp_path):
    preset = tmp_path / "preset"
    options = ["--family", "electra", "--precision", "bfloat16", "--checkpoints", 1]
    options += ["--tensorboard", tmp_path / "logs", "--output", preset]
    code, text = command(text_file, *options, *TINY, *SHORT)
    assert code == 0, text
    assert sorted(os.listdir(tmp_path)) == [
        "logs",
        "preset",
        "preset-checkpoints",
        "preset-generator",
        "text.txt",
    ]


@pytest.mark.slow
def test_a_preset_goes_on_with_new_words(text_file, tmp_path):
    preset = tmp_path / "preset"
    code, text = command(text_file, "--output", preset, *TINY, *SHORT)
    assert code == 0, text
    options = ["--preset", preset, "--new-words", 3, "--sequence-length", 16]
    code, text = command(text_file, "--output", tmp_path / "on", *options, *SHORT)
    assert code == 0, text
    before, after = (
        tasks.MaskedLM.from_preset(str(path)) for path in (preset, tmp_path / "on")
    )
    assert after.preprocessor.sequence_length == 16
    size = before.backbone.vocabulary_size
    assert size < after.backbone.vocabulary_size <= size + 3
    # By two steps with a small rate the old rows have hardly moved.
    rows = [
        model.backbone.token_embedding.embeddings[:size] for model in (before, after)
    ]
    one, other = (keras.ops.convert_to_numpy(row) for row in rows)
    assert 0 < abs(one - other).max() < 1e-2


def test_an_output_is_of_one_run_at_a_time(tmp_path):
    run = PretrainingRun(files=("a.txt",), output=str(tmp_path / "preset"))
    with pytest.raises(KeyboardInterrupt), pretraining._alone(run) as folder:
        with pytest.raises(ValueError, match="`output` must be used by one run"):
            with pretraining._alone(run):
                raise AssertionError("two at once")
        assert os.listdir(tmp_path) == [os.path.basename(folder)]
        raise KeyboardInterrupt
    # It has no backup to go on from, and so it leaves nothing.
    assert os.listdir(tmp_path) == []


def test_a_share_of_the_text_is_trained_on(tmp_path, monkeypatch):
    def wait(seconds):
        raise AssertionError("The run waits for a lock, which can only be its own.")

    monkeypatch.setattr(locks.time, "sleep", wait)
    words = [f"w{number:02}" for number in range(20)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"{word} is a word." for word in words), "utf-8")
    seen = []

    def train(run, model, documents, callbacks, verbose):
        vocabulary = model.preprocessor.tokenizer.get_vocabulary()
        texts = [text.decode()[:3] for text in documents.as_numpy_iterator()]
        seen.append((vocabulary, texts))
        return model

    monkeypatch.setattr(pretraining, "_fit", train)
    run = PretrainingRun(
        files=(str(path),),
        output=str(tmp_path / "preset"),
        size="tiny",
        objective="mlm",
        vocabulary_size=300,
        sequence_length=16,
    )
    for share in (1.0, 0.25):
        pretraining.pretrain(run.changed(text_share=share), lambda line: None)
    (vocabulary, texts), (same, some) = seen
    assert vocabulary == same
    assert texts == words and some == words[::4]


class Killed(RuntimeError):
    pass


@pytest.mark.slow
def test_a_killed_run_is_resumed_only_when_asked_to(text_file, tmp_path, monkeypatch):
    run = PretrainingRun(
        files=(text_file,),
        output=str(tmp_path / "preset"),
        size="tiny",
        objective="mlm",
        vocabulary_size=500,
        sequence_length=32,
        batch_size=8,
        epochs=2,
    )
    save = pretraining.callbacks.BackupAndResume._save

    def save_and_die(self, *args, **kwargs):
        save(self, *args, **kwargs)
        raise Killed

    with monkeypatch.context() as context:
        context.setattr(pretraining.callbacks.BackupAndResume, "_save", save_and_die)
        context.setattr(pretraining, "SAVE_FREQ", 3)
        with pytest.raises(Killed):
            pretraining.pretrain(run, lambda line: None)
    assert sorted(os.listdir(tmp_path / "preset-backup")) == [
        ".unfinished",
        "backup.npz",
        "files.json",
        "run.yaml",
        "tokenizer",
    ]
    with pytest.raises(ValueError, match="`resume` must be given"):
        pretraining.pretrain(run)
    with pytest.raises(ValueError, match="`epochs` must be 2, as in the killed run"):
        pretraining.pretrain(run.changed(epochs=3, resume=True))
    again = run.changed(resume=True, precision="auto")
    before = pathlib.Path(text_file).read_text("utf-8")
    for other in (f"{before}\n\nmore", before.replace("a", "b", 1)):
        pathlib.Path(text_file).write_text(other, "utf-8")
        with pytest.raises(ValueError, match=rf"`files` and .*{text_file}.* bytes"):
            pretraining.pretrain(again)
    pathlib.Path(text_file).write_text(before, "utf-8")
    lines = []
    with monkeypatch.context() as context:  # its tokenizer is kept
        context.setattr(building.tokenizers, "train_word_piece", None)
        pretraining.pretrain(again, lines.append)
    assert lines[0] == "Precision: float32, as in the killed run."
    assert lines[-1].startswith(f"Wrote {run.output}")
    assert PretrainingRun.read(tmp_path / "preset/run.yaml").precision == "float32"
    assert sorted(os.listdir(tmp_path)) == ["preset", "text.txt"]


def test_a_folder_with_a_slash_at_its_end():
    run = PretrainingRun(output="my_electra/", objective="rtd")
    assert inputs.beside(run, "generator") == os.path.abspath("my_electra-generator")
    assert inputs.beside(run.changed(output="/"), "backup") == "/-backup"


def test_another_vocabulary_in_a_killed_run(tmp_path):
    tokenizer = tiny_masked_lm.make_model().preprocessor.tokenizer
    run = PretrainingRun(output=str(tmp_path / "out"), preset="a_preset", resume=True)
    backup = inputs.backup_folder(run)
    os.makedirs(backup)
    pretraining._keep_text(run, tokenizer, backup)
    pathlib.Path(backup, "backup.npz").touch()
    pretraining._keep_text(run, tokenizer, backup)
    other = BertTokenizer([*tokenizer.get_vocabulary(), "new"])
    with pytest.raises(ValueError, match="The vocabulary of 'a_preset' must be as it"):
        pretraining._keep_text(run, other, backup)


@pytest.mark.parametrize("name", ["1e-3", "on", "12", "a: b"])
def test_names_that_look_like_other_values(name, tmp_path):
    run = PretrainingRun(files=(name,), output=name, learning_rate=1e-3)
    run.write(tmp_path / "run.yaml")
    assert PretrainingRun.read(tmp_path / "run.yaml") == run
