import dataclasses
import importlib
import inspect
import json
import re

import keras
import numpy as np
import pytest

from benchmarks import (
    budget,
    entities,
    frequencies,
    gpu,
    growth,
    laws,
    recipes,
    scale,
    shuffle,
    tables,
    training,
)
from benchmarks import quality_per_minute as quality
from benchmarks.__main__ import BENCHMARKS
from benchmarks.budget_sides import Work, keras_bertfam
from benchmarks.gpu_rows import packed_batch, padded_batches, sequences, useful
from benchmarks.held_out import HeldOut, read_paragraphs, scores
from benchmarks.recipes import Recipe
from tests import tiny_masked_lm

WORDS = "the a cat dog sat ran on in mat hat and saw by tree red blue".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for name in range(4):
        blocks = [
            "\n".join(" ".join(rng.choice(WORDS, 6)) + "." for _ in range(3))
            for _ in range(30)
        ]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(blocks), encoding="utf-8")
    return str(tmp_path / "*.txt")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_what_builds_the_competitors_takes_their_arguments(name):
    for competitor in BENCHMARKS[name].competitors:
        module, _, function = competitor.build.partition(":")
        build = getattr(importlib.import_module(f"benchmarks.{module}"), function)
        inspect.signature(build).bind(**competitor.arguments)


def test_products_are_of_the_operations_of_a_step():
    peak = BENCHMARKS["train-small-jax"].competitors[-1]
    flops = peak.arguments["count"] * 2 * 1024**3
    assert flops == pytest.approx(laws.step_flops(training.SIZES["small"]), rel=0.02)


def test_rate_goes_up_and_down_with_the_share_of_the_budget():
    factors = [budget.rate_factor(s, 0.1) for s in (0, 0.05, 0.1, 0.55, 1, 1.2)]
    assert factors == pytest.approx([0, 0.5, 1, 0.5, 0, 0])
    assert budget.rate_factor(0, warmup=0) == 1


def test_the_clock_stands_still_in_evaluations(tmp_path):
    now = [0.0]
    stopwatch = budget.Stopwatch(10, clock=lambda: now[0])
    curve = budget.Curve(stopwatch, 2, tmp_path / "curve", {"name": "a"})

    def evaluate():
        now[0] += 100
        return {"score": 1}

    spent = []
    for _ in range(5):
        now[0] += 2.5
        spent.append(curve.after_step(evaluate))
    assert spent == [False, False, False, True, True]
    text = (tmp_path / "curve").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["seconds"], line["steps"]) for line in lines] == [(5, 2), (10, 4)]
    assert lines[0] == {"name": "a", "seconds": 5, "steps": 2, "score": 1}


def test_recipes_by_name():
    recipe = recipes.parse("dropout=0, norm_first=true,packing=best_fit")
    assert recipe == Recipe(dropout=0.0, norm_first=True, packing="best_fit")
    assert recipes.parse("learning_rate=2e-3", recipe).packing == "best_fit"
    for text in recipes.CANDIDATES.values():
        recipes.parse(text)
    for text in ("speed=1", "dropout=much", "batch_size=1.5", "norm_first=1"):
        with pytest.raises(ValueError, match="Received"):
            recipes.parse(text)


def test_candidates_from_a_file(tmp_path):
    path = tmp_path / "candidates"
    path.write_text("# two\nno dropout: dropout=0\n\nas published:\n")
    found = recipes.read_candidates(path)
    assert found == {"no dropout": "dropout=0", "as published": ""}


def test_parts_of_a_run():
    assert recipes.phases(Recipe()) == [(1.0, 128, 32, 0.15)]
    mixed = Recipe(short_rows=0.7, small_batches=0.3, many_masks=0.5)
    assert recipes.phases(mixed) == [
        (0.3, 64, 32, 0.3),
        (0.5, 64, 64, 0.3),
        (0.7, 64, 64, 0.15),
        (1.0, 128, 32, 0.15),
    ]


def test_masks_are_a_sixth_of_each_row_and_scored_alike(files):
    train, held_out = read_paragraphs(files, held_out_every=4)
    assert [len(part) for part in (train, held_out)] == [3, 1]
    scored = HeldOut(held_out, VOCABULARY, length=16, rows=20, sentences=5)
    again = HeldOut(held_out, VOCABULARY, length=16, rows=20, sentences=5)
    rows = scored.blocks
    assert np.array_equal(rows.token_ids, again.blocks.token_ids)
    assert rows.padding_mask.all() and (rows.weights.sum(1) == 2).all()  # of 14
    assert (scored.sentences.token_ids == 4).sum() == len(scored.sentences)
    right = {id(part): 0 for part in (scored.blocks, scored.sentences)}
    for part in (scored.blocks, scored.sentences):
        table = {}
        for ids, positions, labels in zip(
            part.token_ids, part.positions, part.labels, strict=True
        ):
            table[ids.tobytes(), positions.tobytes()] = labels

        def logits(token_ids, padding_mask, positions, table=table):
            known = [
                table[ids.tobytes(), places.tobytes()]
                for ids, places in zip(token_ids, positions, strict=True)
            ]
            return 2.0 * np.eye(len(VOCABULARY))[np.array(known)]

        right[id(part)], log_probabilities = scores(part, logits)
        assert right[id(part)].all()
        assert len(right[id(part)]) == part.weights.sum()
        of_others = len(VOCABULARY) - 1
        expected = 2 - np.log(np.exp(2) + of_others)
        assert log_probabilities == pytest.approx(expected, abs=1e-5)
    blind = scored.evaluate(lambda i, m, p: np.zeros((*p.shape, len(VOCABULARY))))
    assert blind["pseudo_perplexity"] == pytest.approx(len(VOCABULARY))
    with pytest.raises(ValueError, match="two files or more"):
        read_paragraphs(files.replace("*", "0"))


def test_a_file_without_blank_lines_has_a_paragraph_a_line(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("Title\n\n" + "A line.\n" * 60)
    train, _ = read_paragraphs(str(tmp_path / "*"))
    assert len(train[0]) == 61


def test_operations_of_a_step():
    small = training.SIZES["small"]
    assert laws.step_flops(small, gathered=False) / 1e9 == pytest.approx(114, rel=0.01)
    assert laws.step_flops(small) / 1e9 == pytest.approx(99, rel=0.01)
    backbone = {**small.architecture, "vocabulary_size": 100, "num_layers": 2}
    assert backbone["max_sequence_length"] == 512
    doubled = dataclasses.replace(small, batch_size=64)
    assert laws.step_flops(doubled) == 2 * laws.step_flops(small)
    added = laws.step_bytes(doubled) - laws.step_bytes(small)
    assert 0.3e9 < added < 1e9
    chunked = laws.step_bytes(doubled, 64) - laws.step_bytes(small, 64)
    assert added - chunked == 8 * 32 * 20 * small.vocabulary_size
    assert laws.replica_seconds(6.0, 4, cores=2) == 3


def test_parameters_are_those_of_the_model():
    from keras_bertfam.models import BertBackbone
    from keras_bertfam.tasks import MaskedLM

    model = MaskedLM(BertBackbone(**growth.TINY.architecture))
    matrices = [v for v in model.trainable_variables if len(v.shape) > 1]
    assert sum(np.prod(v.shape) for v in matrices) == laws.parameters(growth.TINY)


def test_growth_is_told_as_multiples_of_the_first():
    axis, sizes = growth.AXES["layers"], dict(growth.AXES["layers"].sizes())
    first = growth.row(axis, 2, 0.1, 1000.0, sizes[2], None)
    second = growth.row(axis, 4, 0.3, 1200.0, sizes[4], first)
    assert second["time"] == pytest.approx(3) and second["MB more"] == 200
    assert 1 < second["expected"] < 2  # the head doesn't grow
    told = growth.relative_to_first([first, second])
    assert told[0]["expected MB more"] == 0 < told[1]["expected MB more"]
    assert first["expected MB"] > 0  # as it was
    assert set(growth.TINY_VALUES) == set(growth.AXES)


def test_packed_and_padded_batches_are_of_the_same_sequences():
    size = dataclasses.replace(gpu.SIZES["tiny"], batch_size=8, sequence_length=64)
    lengths, rows = sequences(size)
    assert (np.bincount(rows, lengths) <= 64).all()
    assert lengths.sum() > 0.9 * 8 * 64
    packed, padded = packed_batch(size), padded_batches(size)
    assert packed["padding_mask"].sum() == lengths.sum() == useful(size)[0]
    assert sum(batch["padding_mask"].sum() for batch in padded) == lengths.sum()
    masked = sorted(packed["labels"][packed["weights"] > 0])
    labels = np.concatenate([batch["labels"].ravel() for batch in padded])
    assert sorted(labels[labels >= 0]) == masked
    assert packed["position_ids"].max() == lengths.max() - 1
    base, flops = gpu.SIZES["base"], useful(gpu.SIZES["base"])[1]
    assert 0.8 < flops / laws.step_flops(base) < 1.0  # attention over own tokens only


def test_tables():
    rows = [{"": "a", "n": 1234567, "x": 0.12345}, {"": "b", "n": 2, "y": 123.4}]
    assert tables.markdown(rows).splitlines() == [
        "|  | n | x | y |",
        "| --- | ---: | ---: | ---: |",
        "| a | 1,234,567 | 0.123 |  |",
        "| b | 2 |  | 123 |",
    ]


@pytest.mark.slow
def test_a_budget_of_seconds(files, tmp_path, capsys):
    train, held_out = read_paragraphs(files, held_out_every=4)
    output = str(tmp_path / "points.jsonl")
    work = Work(
        train=train,
        held_out=held_out,
        vocabulary=VOCABULARY,
        recipe=Recipe(sequence_length=16, batch_size=8),
        seconds=4,
        num_layers=1,
        hidden_dim=16,
        num_heads=2,
        points=1,
        rows=8,
        sentences=2,
        seed=0,
        output=output,
        known={"name": "ours", "backend": keras.backend.backend()},
    )
    keras_bertfam(work)
    quality.main(output=output, plot=True)
    assert "| ours | tensorflow | " in capsys.readouterr().out
    assert (tmp_path / "points.png").stat().st_size > 1000
    last = quality.read_points(output)["ours"][-1]
    assert last["steps"] >= 1 and last["seconds"] >= 4
    assert last["pseudo_perplexity"] < 3 * len(VOCABULARY)


@pytest.mark.slow
def test_a_step_of_packed_rows():
    policy = keras.config.dtype_policy()
    try:
        seconds = gpu.keras_bertfam(gpu.SIZES["tiny"])(2)
    finally:
        keras.config.set_dtype_policy(policy)
    assert len(seconds) == 2 and min(seconds) > 0


def test_killed_workers_lose_and_repeat_no_row():
    found = shuffle.simulate(20_007, 12, kills=60, batch_size=96, every=3)
    assert found["lost"] == found["repeated"] == 0
    assert found["rows"] == 20_007 // 96 * 96
    assert found["lives"] > 30


def test_lost_and_repeated_rows_are_counted(monkeypatch):
    monkeypatch.setattr(shuffle, "permuted", lambda rows, *_: rows // 2)
    found = shuffle.simulate(1000, 1, kills=0, batch_size=100)
    assert found["lost"] == found["repeated"] == 500


def test_costs_of_corpora():
    measured = scale.Measured(2.0, 0.25, 25, 50)
    corpus = scale.Corpus("a", 1, 1000)
    found = scale.costs(corpus, measured)
    assert found["tokens"] == 250e6 and found["rows"] == 250e6 / 510
    assert found["bands"] == 1000 * 16 * 8
    # Two bytes a token, and eight a sentence; records add a few per cent.
    assert 1 < found["disk"] / (500e6 + 80e6) < 1.05
    assert found["hours"] == pytest.approx(500 / 3600)
    said = [scale.duration(hours) for hours in (0.01, 0.5, 2, 72)]
    assert said == ["36 s", "30 min", "2.0 h", "3.0 days"]


def test_what_frequencies_alone_say():
    loss = frequencies.cross_entropy(np.array([2, 0, 1]), np.array([0, 0, 2, 1]))
    assert loss == pytest.approx(-np.log([3 / 6, 3 / 6, 2 / 6, 1 / 6]).mean())


@pytest.mark.slow
def test_names_that_are_masked_whole():
    words, labels = "the cat sat in a red hat".split(), "O B-a O O B-b I-b I-b".split()
    assert entities.names_of(labels) == [["a", 1, 1], ["b", 4, 6]]
    assert entities.marked(words, labels) == "the ⟦cat⟧ sat in ⟦a red hat⟧"
    tokenizer = tiny_masked_lm.make_model().preprocessor.tokenizer
    texts = ["⟦a dog⟧ sat", "the ⟦cat⟧ ⟦red hat⟧"]
    spans = entities.spans_of(tokenizer, texts)
    assert spans.shape == (2, entities.LENGTH)
    assert spans[:, :6].tolist() == [[0, 1, 1, 0, 0, 0], [0, 0, 1, 2, 2, 0]]
    masked = np.zeros(spans.shape, bool)
    masked[0, 1] = masked[1, 2:5] = True  # half of a name, one of a token, a whole one
    assert entities.masked_whole(spans, masked) == (2, 1)
    places = entities.masked_places(tokenizer, texts, "tokens", 0)
    assert places.shape == spans.shape and 2 <= places.sum() <= 4


@pytest.mark.slow
def test_a_model_beside_frequencies(tmp_path, files, capsys):
    tiny_masked_lm.make_model().save_to_preset(str(tmp_path / "model"))
    frequencies.main(str(tmp_path / "model"), [files], [files], 4, batches=3)
    found = re.fullmatch(
        r"([\d,]+) targets: loss ([\d.]+), by frequencies alone ([\d.]+)\n",
        capsys.readouterr().out,
    )
    assert int(found[1]) > 20
    # Words are equally frequent, and the model knows as little.
    assert float(found[3]) == pytest.approx(np.log(len(WORDS) + 1), abs=0.2)
    assert float(found[2]) == pytest.approx(np.log(len(VOCABULARY)), abs=0.4)
