"""Fine-tuning by recipe, from the command line too."""

import dataclasses
import functools
import json
import math
import re
import types

import numpy as np
import pytest
from typer.testing import CliRunner

from keras_bertfam.cli import finetuning, finetuning_heads
from keras_bertfam.cli.app import app
from keras_bertfam.cli.finetuning import load_own
from keras_bertfam.cli.inputs import check_finetuning
from keras_bertfam.datasets import Examples, load_examples
from keras_bertfam.datasets.task_data import TASKS, TaskData
from keras_bertfam.metrics import TaskMetrics, squad_scores
from keras_bertfam.tasks import (
    MaskedLMPreprocessor,
    SpanQuestionAnswering,
    TextClassifier,
    TokenClassifier,
    fine_tuning_recipe,
)
from keras_bertfam.tasks.recipes import FINE_TUNING_RECIPES
from tests import tiny_questions
from tests.tiny_fine_tuning import make_backbone, make_tokenizer, texts


@pytest.fixture
def preset(tmp_path):
    path = str(tmp_path / "preset")
    make_backbone().save_to_preset(path)
    make_tokenizer().save_to_preset(path)
    return path


@pytest.fixture
def data(tmp_path):
    """SST-2's folder: the cat is the good one."""
    folder = tmp_path / "sst2"
    folder.mkdir()
    for name, seed in (("train.tsv", 0), ("dev.tsv", 1)):
        lines = [
            f"{text}\t{label}" for text, label in zip(*texts(48, seed), strict=True)
        ]
        (folder / name).write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    (folder / "test.tsv").write_text("index\tsentence\n0\ta cat\n")
    return str(folder)


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_finds_the_best_of_a_grid(preset, data, tmp_path):
    lines = []
    best = finetuning.finetune(
        "sst2",
        preset,
        data,
        str(tmp_path / "best"),
        learning_rates=(1e-7, 2e-2),
        batch_sizes=(8,),
        epochs=(4,),
        seeds=(0, 1),
        sequence_length=16,
        report=lines.append,
        jit=False,
    )
    assert best["settings"] == (2e-2, 8, 4)
    assert best["accuracy"] > 0.9
    assert len(lines) == 10
    assert lines[0] == (
        "4 runs (2 rates x 2 seeds): learning rate 1e-07 or 0.02, batch size 8, "
        "epochs 4."
    )
    assert "seed 1: accuracy" in lines[3]
    assert lines[-2].startswith("best, median of 2: learning rate 0.02, batch size 8")
    assert lines[-1] == f"Wrote {tmp_path / 'best' / 'SST-2.tsv'}."
    model = TextClassifier.from_preset(str(tmp_path / "best"))
    assert model.preprocessor.sequence_length == 16
    validation = load_examples("sst2", "validation", data)
    scores = TaskMetrics(validation).compute(model)
    assert scores["accuracy"] >= best["accuracy"]


@pytest.mark.slow
@pytest.mark.any_backend
def test_says_it_of_rows_longer_than_those_of_pre_training(preset, data, tmp_path):
    MaskedLMPreprocessor(make_tokenizer(), 12).save_to_preset(preset)
    said = {}
    for length in (None, 12):
        lines = said[length] = []
        settings = {"learning_rates": (1e-2,), "batch_sizes": (8,), "epochs": (4,)}
        settings |= {"limit": 8, "sequence_length": length, "jit": False}
        finetuning.finetune("sst2", preset, data, report=lines.append, **settings)
    [warned] = [line for line in said[None] if line.startswith("Rows")]
    assert warned.startswith("Rows have 24 tokens, and those of")
    assert "had 12:" in warned and "--sequence-length 12 leaves" in warned
    assert not any(line.startswith("Rows") for line in said[12])
    # Early stopping looks two epochs ahead.
    [run] = [line for line in said[12] if ", seed 0: " in line]
    assert "up to 4 epochs, seed 0: accuracy" in run
    epoch, trained = map(int, re.search(r"epoch (\d) of (\d) trained", run).groups())
    assert trained == min(4, epoch + 2)


@pytest.mark.slow
def test_command(preset, data):
    arguments = f"finetune --task sst2 --preset {preset} --data {data} --epochs 1"
    arguments += " --learning-rate 1e-3 --batch-size 16 --limit 20 --packed"
    done = CliRunner().invoke(app, arguments.split())
    assert done.exit_code == 0, done.output
    assert (
        "best, median of 1: learning rate 0.001, batch size 16, 1 epoch:" in done.output
    )
    done = CliRunner().invoke(app, arguments.replace("sst2 ", "sst3 ", 1).split())
    assert done.exit_code == 2
    assert "sst3" in done.output
    with pytest.raises(ValueError, match="`packed` must be .*'multiple_choice'"):
        finetuning_heads.make_model(TASKS["race"], preset, packed=True)


@pytest.mark.slow
@pytest.mark.any_backend
def test_command_on_texts_with_lists_of_classes(preset, tmp_path):
    data, best = tmp_path / "my.jsonl", str(tmp_path / "best")
    rows = [
        {"review": text, "topics": [["cat"], ["dog", "cat"], []][k % 3]}
        for k, text in enumerate(texts(24)[0])
    ]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = f"finetune --preset {preset} --data {data} --text review"
    arguments += f" --label topics --epochs 1 --output {best}"
    done = CliRunner().invoke(app, arguments.split())
    assert done.exit_code == 0, done.output
    assert "micro_f1" in done.output
    model = TextClassifier.from_preset(best)
    assert model.multi_label and model.label_names == ["cat", "dog"]
    assert {name for name, _ in model.classify("a cat")} == {"cat", "dog"}
    done = CliRunner().invoke(app, [*arguments.split(), "--packed"])
    assert done.exit_code == 2 and "packed" in done.output


@pytest.mark.slow
@pytest.mark.any_backend
def test_command_on_a_file_of_ones_own(preset, tmp_path):
    rows = [f"{t},{'good' if k else 'bad'}" for t, k in zip(*texts(30), strict=True)]
    path, held_out = str(tmp_path / "my.csv"), tmp_path / "held_out.csv"
    (tmp_path / "my.csv").write_text("\n".join(["review,sentiment", *rows]))
    held_out.write_text("\n".join(["review,sentiment", *rows[:3]]))
    columns = ["--text", "review", "--label", "sentiment"]
    arguments = ["finetune", "--preset", preset, "--data", path, *columns]
    best = str(tmp_path / "best")
    once = "--epochs 1 --output".split()
    done = CliRunner().invoke(app, [*arguments, *once, best])
    assert done.exit_code == 0, done.output
    assert "1 run: learning rate 3e-05, batch size 16, epochs 1. What" in done.output
    assert "best, median of 1: learning rate 3e-05" in done.output
    model = TextClassifier.from_preset(best)
    assert model.label_names == ["bad", "good"]
    card = (tmp_path / "best" / "README.md").read_text()
    assert "| steps | 2 |" in card and "| learning_rate | 3e-05 |" in card
    assert "pipeline_tag: text-classification" in card and path not in card
    load = functools.partial(load_own, path, "review", "sentiment")
    train, validation = load(None, 0.1, None)
    assert (len(train), len(validation)) == (27, 3)
    train, validation = load(held_out, 0.1, 20)
    assert (len(train), len(validation)) == (20, 3)
    assert validation.label_names == train.label_names
    held_out.write_text("review,sentiment\na,so so\n")
    for given, message in {
        ("--validation", str(held_out)): "so so",
        ("--task", "sst2"): "without a task",
        ("--text", "reviews"): "reviews",
        ("--validation-split", "2"): "less than or equal to 1",
    }.items():
        done = CliRunner().invoke(app, [*arguments, *given])
        assert done.exit_code == 2
        assert message in " ".join(done.output.replace("│", "").split())
    for wrong, message in {
        "--data": "Received: neither",
        "--label": "a column with labels",
    }.items():
        place = arguments.index(wrong)
        done = CliRunner().invoke(app, arguments[:place] + arguments[place + 2 :])
        assert done.exit_code == 2
        assert message in " ".join(done.output.replace("│", "").split())


@pytest.mark.any_backend
def test_an_output_that_would_replace_the_preset(tmp_path):
    """All runs but the first would begin with what another run has learned."""
    preset = tmp_path / "run" / "preset"
    preset.mkdir(parents=True)
    (tmp_path / "other").symlink_to(preset)
    for output in (preset, tmp_path / "run", tmp_path / "other"):
        with pytest.raises(ValueError, match="`output` must be another folder than"):
            check_finetuning(str(preset), "sst2", None, str(output))
    check_finetuning(str(preset), "all-glue", None, str(tmp_path / "run"))
    check_finetuning("hf://google/bert", "sst2", None, str(tmp_path))
    (tmp_path / "cola").mkdir()
    with pytest.raises(ValueError, match="`output` must be another folder than"):
        check_finetuning(str(tmp_path / "cola"), "all-glue", None, str(tmp_path))


def test_data_without_labels(preset, tmp_path):
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        (tmp_path / name).write_text("sentence\tlabel\na cat\t-1\n")
    with pytest.raises(ValueError, match="'sst2', split 'train', .* 'label'"):
        finetuning.finetune("sst2", preset, tmp_path)
    (tmp_path / "dev.tsv").write_text("sentence\na cat\n")
    (tmp_path / "train.tsv").write_text("sentence\tlabel\na cat\t1\n")
    arguments = f"finetune --task sst2 --preset {preset} --data {tmp_path}"
    done = CliRunner().invoke(app, arguments.split())
    assert done.exit_code == 2
    assert "label" in done.output


@pytest.mark.slow("release")
@pytest.mark.any_backend
def test_tagging(preset, tmp_path):
    words = "\n".join(
        f"{w}\t{'B-person' if w in 'cat dog' else 'O'}"
        for w in "the cat sat on the dog and the mat".split()
    )
    paths = {}
    for split, name in (("train", "wnut17train.conll"), ("dev", "emerging.dev.conll")):
        paths[split] = tmp_path / name
        paths[split].write_text("\n\n".join([words] * 40) + "\n")
    (tmp_path / "emerging.test.annotated").write_text(words)
    best = finetuning.finetune(
        "wnut17",
        preset,
        str(tmp_path),
        str(tmp_path / "best"),
        learning_rates=(2e-2,),
        batch_sizes=(4,),
        epochs=(4,),
        report=lambda line: None,
        jit=False,
    )
    assert best["entity_f1"] == 1.0
    model = TokenClassifier.from_preset(str(tmp_path / "best"))
    assert model.tag(["the", "cat"])[1][1] == "B-person"


def test_what_cannot_be_fine_tuned(preset, data, tmp_path):
    def finetune(task, data):
        finetuning.finetune(task, preset, data)

    with pytest.raises(ValueError, match="'wikipedia', of kind 'text'"):
        finetune("wikipedia", data)
    with pytest.raises(ValueError, match="train and to validate on.*'ax', which has "):
        finetune("ax", data)
    with pytest.raises(ValueError, match="`data` must be a folder.*train.tsv"):
        finetune("sst2", f"{data}/train.tsv")
    own = dataclasses.replace(TASKS["sst2"], name="own", label_names=None)
    with pytest.raises(ValueError, match="'own' must have `label_names`"):
        finetune(own, data)


def test_metrics_of_a_kind():
    assert TaskData("own", "regression").metrics == TASKS["stsb"].metrics
    assert TaskData("own", "tagging", metrics=("word_accuracy",)).metrics == (
        "word_accuracy",
    )


@pytest.mark.slow
def test_choices_have_their_names(preset):
    model = finetuning_heads.make_model(TASKS["race"], preset, sequence_length=24)
    x = {"context": ["the cat"], "choices": [["a", "dog", "sat", "mat"]]}
    ((best, _),) = model.choose(x)
    assert best in tuple("ABCD")


@pytest.mark.slow
def test_the_best_is_a_number(preset, data, monkeypatch):
    scores = iter([float("nan"), 0.5, 0.25])
    monkeypatch.setattr(
        finetuning, "train", lambda *args, **kwargs: ({"accuracy": next(scores)}, 1, 1)
    )
    best = finetuning.finetune(
        "sst2", preset, data, learning_rates=(1, 2, 3), batch_sizes=(8,)
    )
    assert best["accuracy"] == 0.5 and best["settings"][0] == 2


@pytest.fixture
def settings_tried(monkeypatch):
    """A list of the settings that are trained by, in the place of all training."""
    tried = []

    def train(model, train_set, validation_set, settings, *args, **kwargs):
        tried.append(settings)
        return {name: 0.5 for name in train_set.task.metrics}, 1, 1

    monkeypatch.setattr(finetuning, "train", train)
    model = types.SimpleNamespace(backbone=None)
    monkeypatch.setattr(finetuning_heads, "make_model", lambda *args, **kwargs: model)
    return tried


OWN = [("a cat", "good"), ("a dog", "bad")] * 8


@pytest.fixture
def own_table(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("\n".join(["text,label", *(f"{t},{k}" for t, k in OWN)]))
    return str(path)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "count", "said"),
    [
        # The preset is as wide as no miniature of BERT, so its grid is that of BERT.
        ("", 1, "1 run: learning rate 3e-05, batch size 16, epochs 4."),
        ("", 1, "the middle of the published grid (Devlin et al., 2018, appendix A.3"),
        ("", 1, "With --search all of it: 6 runs."),
        ("--seed 1 --seed 2", 2, "With --search all of it: 12 runs."),
        (
            "--search",
            6,
            "6 runs (3 rates x 2 batch sizes): learning rate 5e-05 or 3e-05",
        ),
        ("--learning-rate 1e-3", 1, "What isn't given is the middle of the published"),
        ("--epochs 1 --epochs 2", 2, "2 runs: learning rate 3e-05, batch size 16, epo"),
        ("--search --epochs 1", 6, "What isn't given is the published grid"),
    ],
)
def test_own_data_is_one_run(options, count, said, preset, own_table, settings_tried):
    command = f"finetune --preset {preset} --data {own_table} --label label {options}"
    done = CliRunner().invoke(app, [*command.split(), "--text", "text"])
    assert done.exit_code == 0, done.output
    assert len(settings_tried) == count
    assert said in done.output.splitlines()[0]


@pytest.mark.any_backend
def test_a_task_with_a_name_is_searched_for(preset, data, settings_tried):
    command = f"finetune --task sst2 --preset {preset} --data {data}".split()
    done = CliRunner().invoke(app, command)
    lines = done.output.splitlines()
    assert lines[0].startswith("6 runs (3 rates x 2 batch sizes): learning rate 5e-05")
    said = [line for line in lines if line.startswith("Run ")]
    assert len(said) == 5 and said[2].startswith("Run 3 of 6, about ")
    assert "--search" not in done.output and len({*settings_tried}) == 6
    done = CliRunner().invoke(app, [*command, "--no-search"])
    assert done.output.startswith("1 run: learning rate 3e-05, batch size 16, epochs 4")
    assert len(settings_tried) == 7


@pytest.mark.any_backend
@pytest.mark.parametrize("key", FINE_TUNING_RECIPES)
def test_the_middle_of_a_grid(key):
    recipe = FINE_TUNING_RECIPES[key]
    middle = recipe.middle()
    (setting,) = middle.grid()
    assert setting in recipe.grid()
    assert (
        dataclasses.replace(
            middle,
            learning_rates=recipe.learning_rates,
            batch_sizes=recipe.batch_sizes,
            epochs=recipe.epochs,
        )
        == recipe
    )
    # As many are above as below; of two in the middle it learns faster.
    rate, size, epochs = setting
    assert sum(r > rate for r in recipe.learning_rates) == (
        (len(recipe.learning_rates) - 1) // 2
    )
    assert sum(s < size for s in recipe.batch_sizes) == (
        (len(recipe.batch_sizes) - 1) // 2
    )
    assert epochs == max(recipe.epochs)
    points = [(r, s) for r in recipe.learning_rates for s in recipe.batch_sizes]
    assert [point[:2] for point in recipe.grid()] == points


@pytest.mark.any_backend
def test_middles_of_some_families():
    expected = {
        "bert": (3e-5, 16, 4),
        "bert_miniature": (1e-4, 32, 4),
        "albert": (2e-5, 16, 3),
        "roberta": (2e-5, 16, 10),
        "electra": (1e-4, 32, 3),
        "xlnet": (3e-5, 32, 3),
        "modernbert": (5e-5, 16, 4),
    }
    for family, setting in expected.items():
        assert FINE_TUNING_RECIPES[family].middle().grid() == [setting]


def test_the_recipe_of_a_name_needs_no_weights():
    facts = TASKS["sst2"]
    name = "electra_small_discriminator_uncased_en"
    recipe, longest = finetuning._recipe_of(name, facts)
    assert recipe == FINE_TUNING_RECIPES["electra"] and longest == 512
    recipe, _ = finetuning._recipe_of("bert_tiny_en_uncased", facts)
    assert recipe == FINE_TUNING_RECIPES["bert_miniature"]


@pytest.mark.slow
@pytest.mark.any_backend
def test_questions_without_an_answer(tmp_path):
    """The best epoch's threshold is the saved model's."""
    made = tiny_questions.make_model()
    path = str(tmp_path / "preset")
    config = {**made.backbone.get_config(), "max_sequence_length": 72}
    type(made.backbone).from_config(config).save_to_preset(path)
    made.preprocessor.tokenizer.save_to_preset(path)
    for part, seed in (("train", 0), ("dev", 1)):
        x, y = tiny_questions.questions(24, impossible=0.5, sentences=(1, 2), seed=seed)
        rows = zip(x["question"], x["context"], y, strict=True)
        paragraphs = [
            {"context": context, "qas": [_question(str(k), question, answer)]}
            for k, (question, context, answer) in enumerate(rows)
        ]
        content = {"data": [{"title": "Animals", "paragraphs": paragraphs}]}
        (tmp_path / f"{part}-v2.0.json").write_text(json.dumps(content))
    best = finetuning.finetune(
        "squad_v2",
        path,
        str(tmp_path),
        str(tmp_path / "best"),
        learning_rates=(1e-2,),
        batch_sizes=(8,),
        epochs=(2,),
        sequence_length=72,
        report=lambda line: None,
        jit=False,
    )
    model = SpanQuestionAnswering.from_preset(str(tmp_path / "best"))
    assert model.null_threshold is not None
    validation = load_examples("squad_v2", "validation", str(tmp_path))
    answers = model.predict(validation.x, verbose=0)
    scores = squad_scores(validation.y, [answer["text"] for answer in answers])
    assert scores["f1"] == pytest.approx(best["squad_f1"], abs=1e-4)
    assert scores["no_answer_f1"] > 0
    said = json.loads((tmp_path / "best" / "predictions.json").read_text("utf-8"))
    said = [said[number] for number in validation.ids]
    assert squad_scores(validation.y, said) == scores
    odds = json.loads((tmp_path / "best" / "null_odds.json").read_text("utf-8"))
    assert odds.keys() == {*validation.ids}


def _question(name, question, answer):
    parts = zip(answer["text"], answer["answer_start"], strict=True)
    answers = [{"text": text, "answer_start": start} for text, start in parts]
    return {"id": name, "question": question, "answers": answers}


def test_recipes_are_complete():
    families = {key.split("/")[0] for key in FINE_TUNING_RECIPES}
    assert {"bert", "roberta", "albert", "distilbert", "electra", "xlnet"} <= families
    for key, recipe in FINE_TUNING_RECIPES.items():
        assert "/" not in key or key.split("/")[1] in TASKS
        assert 0 < max(recipe.learning_rates) <= 1e-3
        assert all(
            isinstance(size, int) for size in (*recipe.batch_sizes, *recipe.epochs)
        )
        assert 0 <= recipe.warmup_steps < 1 and 0 < recipe.layer_decay <= 1
        dataclasses.replace(recipe)
    assert fine_tuning_recipe("ElectraBackbone", "rte").epochs == (10,)
    assert fine_tuning_recipe("electra_large", "rte").epochs == (10,)
    swag = fine_tuning_recipe("BertBackbone", "swag")
    assert (swag.learning_rates, swag.batch_sizes) == ((2e-5,), (16,))
    assert swag.epochs == (3,)
    assert fine_tuning_recipe("BertBackbone", "sst2").learning_rates == (
        5e-5,
        3e-5,
        2e-5,
    )
    with pytest.raises(ValueError, match="`family` must be one of"):
        fine_tuning_recipe("gpt")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "about 1 s"),
        (89, "about 89 s"),
        (1080, "about 18 minutes"),
        (9000, "about 2 h"),
    ],
)
def test_times_that_are_left(seconds, said):
    assert finetuning._minutes(seconds) == said


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_head_that_was_trained_before_is_trained_on(tmp_path):
    """As BERT's by TriviaQA's questions before SQuAD's."""
    first = tiny_questions.make_model()
    for variable in first.head.trainable_variables:
        variable.assign_add(np.ones(variable.shape, "float32"))
    first.save_to_preset(tmp_path / "first")
    model = finetuning_heads.make_model(TASKS["squad"], str(tmp_path / "first"))
    for theirs, ours in zip(first.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(theirs, ours)


def test_it_is_said_if_nothing_was_learned():
    examples = Examples(["a"] * 4, [1, 1, 0, 1], TASKS["sst2"])
    said = finetuning._learned_nothing(examples, {"accuracy": 0.75})
    assert "answering 'positive' would have an accuracy of 0.7500" in said
    assert finetuning._learned_nothing(examples, {"accuracy": 0.76}) is None
    assert finetuning._learned_nothing(examples, {"matthews": 0.0}) is None


def test_a_score_that_is_no_number_is_the_least():
    nan = float("nan")
    assert finetuning._median([0.85, nan, 0.84]) == 0.84
    assert finetuning._median([nan, 0.84, 0.85]) == 0.84
    assert math.isnan(finetuning._median([nan, nan, 0.85]))
