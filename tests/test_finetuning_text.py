"""Fine-tuning as text, from the command line too: answers are written."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from keras_bertfam import optimizers, tasks
from keras_bertfam.cli import finetuning, finetuning_text, prediction
from keras_bertfam.cli.app import app
from keras_bertfam.datasets import (
    Examples,
    as_text_pairs,
    load_examples,
    score_texts,
)
from keras_bertfam.datasets.task_data import get_task
from keras_bertfam.tasks import fine_tuning_recipe
from tests.tasks.generation import text_to_text_tokenizers as tokenizers
from tests.tiny_text_to_text import make

PAIRS = [("the cat", "a dog"), ("a mat sat", "old"), ("big bat", "the red dog ran")]


def save(path, name, tokenizer):
    preprocessor = tasks.TextToTextPreprocessor(tokenizer, 16)
    size = tokenizer.vocabulary_size()
    task = tasks.TextToText(make(name, vocabulary_size=size), preprocessor)
    task.save_to_preset(path)
    return str(path)


@pytest.fixture
def preset(tmp_path):
    return save(tmp_path / "preset", "T5", tokenizers.t5())


def write_pairs(path, count=8):
    rows = [f"{source},{target}" for source, target in PAIRS * count]
    path.write_text("\n".join(["de,en", *rows]))
    return str(path)


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_is_made_of_a_preset(preset, tmp_path, monkeypatch):
    task = dataclasses.replace(get_task("sst2"), label_names=("bad", "the big mat"))
    model = finetuning_text.make_model(task, preset, sequence_length=12, packed=True)
    examples = Examples(["the cat", "a dog"], [0, 1], task)
    inputs, targets = finetuning_text.prepare(model, examples)
    assert targets == ["bad", "the big mat"]
    prepared = model.preprocessor
    assert (prepared.sequence_length, prepared.packed) == (12, True)
    lengths = [len(prepared.tokenizer(text)) for text in targets]
    assert prepared.target_length == max(lengths) + 1
    _, _, weights = prepared(inputs, targets)
    assert weights.numpy().sum() == sum(min(size + 1, 12) for size in lengths)
    rate = finetuning_text.optimizer(model, 1e-3, fine_tuning_recipe("t5"))
    assert type(rate) is optimizers.Adafactor
    asked = []

    def generate(rows, length, sampler, settings):
        asked.append((rows["token_ids"].shape, length))
        texts = [[*prepared.tokenizer(text).numpy(), 1] for text in targets]
        return texts[: len(rows["token_ids"])]

    monkeypatch.setattr(model, "generate", generate)
    scores = finetuning_text.Scores(examples, batch_size=1).compute(model)
    assert scores == {"accuracy": 0.5}  # "bad" for both
    assert asked == [((1, 12), prepared.target_length + 1)] * 2
    assert finetuning_text.predict(model, examples) == [0, 1]
    targets[0] = "the mat"  # no class, for which a site has no word
    assert finetuning_text.predict(model, examples) == [0, 1]
    pairs = (["the cat", "a dog"], ["a", "b"])
    numbers = Examples(pairs, None, get_task("stsb"))
    assert finetuning_text.predict(model, numbers) == [-1.0, -1.0]
    bart = save(tmp_path / "bart", "Bart", tokenizers.word_piece())
    model = finetuning_text.make_model(task, bart)
    rate = finetuning_text.optimizer(model, 1e-3, fine_tuning_recipe("bart"))
    assert isinstance(rate, optimizers.LayerwiseAdamW)
    model.save_to_preset(tmp_path / "bare")
    for name in ("task", "preprocessor", "tokenizer"):
        (tmp_path / "bare" / f"{name}.json").unlink()
    with pytest.raises(ValueError, match="`preset` must have a tokenizer"):
        finetuning_text.make_model(task, str(tmp_path / "bare"))
    with pytest.raises(ValueError, match="must be one of kind classification.*'race'"):
        finetuning.finetune("race", preset, as_text=True)


@pytest.mark.any_backend
def test_texts_of_a_table(tmp_path):
    pytest.importorskip("sacrebleu")
    path = write_pairs(tmp_path / "pairs.csv", 1)
    examples = load_examples(path, text="de", label="en", kind="text_to_text")
    assert as_text_pairs(examples) == tuple(map(list, zip(*PAIRS, strict=True)))
    scores = score_texts(examples, ["a dog", "old", "the red dog ran"])
    assert scores == {"chrf": pytest.approx(100), "bleu": pytest.approx(100)}
    prefixed = dataclasses.replace(examples.task, prefix="translate:")
    inputs, _ = as_text_pairs(dataclasses.replace(examples, task=prefixed))
    assert inputs[0] == "translate: the cat"
    both = load_examples(path, text=("de", "en"), label="en", kind="text_to_text")
    assert as_text_pairs(both)[0][0] == "de: the cat en: a dog"
    with pytest.raises(ValueError, match="`label_names` must be `None`"):
        load_examples(
            path, text="de", label="en", kind="text_to_text", label_names=["old"]
        )


@pytest.mark.slow
@pytest.mark.any_backend
def test_command(preset, tmp_path):
    pytest.importorskip("sacrebleu")
    # Epochs in which something is learnt: it stops after two in which nothing is.
    path = write_pairs(tmp_path / "pairs.csv", 60)
    best = str(tmp_path / "best")
    arguments = ["finetune", "--preset", preset, "--data", path, "--as-text"]
    arguments += "--text de --label en --epochs 6 --batch-size 8".split()
    arguments += ["--learning-rate", "3e-2", "--output", best]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "best, median of 1: learning rate 0.03, batch size 8, up to 6" in done.output
    model = prediction.load_task(best)
    assert model.preprocessor.target_length < 16
    lines = tmp_path / "lines"
    lines.write_text("\n".join(source for source, _ in PAIRS))
    done = CliRunner().invoke(app, ["predict", best, str(lines)])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.output.splitlines()[-3:]]
    assert [row["text"] for row in rows] == [source for source, _ in PAIRS]
    assert [row["written"] for row in rows] == [target for _, target in PAIRS]
    columns = ["--text", "de", "--text", "en"]
    done = CliRunner().invoke(app, ["predict", best, path, *columns])
    assert done.exit_code == 2 and "must be one column" in done.output


@pytest.mark.slow
@pytest.mark.any_backend
def test_answers_are_written_greedily_whatever_the_checkpoint_says(preset):
    model = tasks.TextToText.from_preset(preset)
    expected = prediction.write_texts(model, ["the cat", "a dog"])
    said = {"num_beams": 3, "min_length": 12, "num_return_sequences": 2}
    again = tasks.TextToText(model.backbone, model.preprocessor, generation=said)
    again.set_weights(model.get_weights())
    assert prediction.write_texts(again, ["the cat", "a dog"]) == expected


@pytest.mark.any_backend
def test_rows_have_room_for_targets_longer_than_inputs(preset):
    task = dataclasses.replace(get_task("sst2"), label_names=("bad", "the cat " * 9))
    model = finetuning_text.make_model(task, preset, sequence_length=8)
    examples = Examples(["the cat", "a dog"], [0, 1], task)
    _, targets = finetuning_text.prepare(model, examples)
    size = len(model.preprocessor.tokenizer(targets[1]))
    assert model.preprocessor.target_length == size + 1 > 8
