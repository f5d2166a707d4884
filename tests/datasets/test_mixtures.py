"""Mixtures of tasks: their rates as published, and streams that are resumed."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import datasets
from keras_bertfam.datasets import Examples, Template, mixture
from keras_bertfam.datasets.task_data import get_task
from keras_bertfam.tasks import (
    CausalLM,
    CausalLMPreprocessor,
    MaskedLMPreprocessor,
    TextToText,
    TextToTextPreprocessor,
)
from tests.tasks.generation.text_to_text_tokenizers import word_piece
from tests.tiny_text_to_text import make

WORDS = "the a cat dog bat mat sat ate ran on under near old big red".split()


def examples(name, count):
    texts = [f"{WORDS[k % 15]} {WORDS[k // 15 % 15]}" for k in range(count)]
    return Examples(texts, [k % 2 for k in range(count)], get_task(name))


def both(**options):
    return mixture(
        {"sst2": examples("sst2", 40), "cola": examples("cola", 10)}, **options
    )


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "expected", "length"),
    [
        ({}, (40, 10), 50),
        ({"limit": None}, (40, 10), 50),
        ({"limit": 20}, (20, 10), 30),  # min(n, K)
        ({"limit": 20, "temperature": 2.0}, (20**0.5, 10**0.5), 30),
        ({"rates": "equal"}, (1, 1), 50),
        ({"rates": {"sst2": 0.25, "cola": 0.5}}, (1, 2), 50),
        # 5 and 4 templates: 200 are more than may be asked, in T0's way.
        ({"rates": "per_template", "limit": 40}, (200, 40), 240),
        ({"rates": "per_template", "limit": 22}, (5 * 4, 40), 60),
        ({"rates": "per_template", "limit": 3}, (5, 4), 9),
        ({"pairs_per_pass": 7}, (40, 10), 7),
    ],
)
def test_rates(options, expected, length):
    mixed = both(**options)
    total = sum(expected)
    assert mixed.rates == pytest.approx(
        {"sst2": expected[0] / total, "cola": expected[1] / total}
    )
    assert len(mixed) == length


@pytest.mark.any_backend
def test_large_counts_and_temperatures():
    rates = {"sst2": 1e300, "cola": 1e300}
    assert both(rates=rates, temperature=0.01).rates["sst2"] == 0.5
    assert both(temperature=1e9).rates["sst2"] == pytest.approx(0.5)


@pytest.mark.any_backend
def test_texts_are_those_of_the_templates():
    template = Template("{sentence}?", choices=("bad", "good"))
    mixed = mixture(
        {"sst2": examples("sst2", 4), "cola": examples("cola", 4)},
        templates={"sst2": [template], "cola": ["{sentence}"]},
        pairs_per_pass=64,
    )
    pairs = mixed.pairs(tf.constant([0, 1], tf.int64)).as_numpy_iterator()
    found = {(p["encoder_text"].decode(), p["decoder_text"].decode()) for p in pairs}
    texts = [f"{word} the" for word in WORDS[:4]]
    assert found == {
        *zip((f"{text}?" for text in texts), ("bad", "good") * 2, strict=True),
        *zip(texts, ("unacceptable", "acceptable") * 2, strict=True),
    }


@pytest.mark.any_backend
def test_tasks_by_name(tmp_path):
    (tmp_path / "train.tsv").write_text("sentence\tlabel\nso slow\t0\n")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nso slow\t0\n")
    assert len(mixture({"sst2": tmp_path})) == 1
    # Templates are the task's, whatever it is called here.
    assert len(mixture({"films": examples("sst2", 2)})) == 2


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": {}}, "`tasks` must have at least one"),
        ({"tasks": {"sst2": Examples(["a"], None, get_task("sst2"))}}, "with labels"),
        (
            {"tasks": {"q": Examples((["a"], ["b"]), [1], get_task("qqp"))}},
            "none for 'q'",
        ),
        ({"templates": {"sst2": {"input": "{sentence}"}}}, "for 'sst2': {'input'"),
        ({"templates": {"mnli": ["a"]}}, "`templates` must be one of .*'mnli'"),
        ({"templates": {"sst2": []}}, "for 'sst2': \\[\\]"),
        ({"templates": {"sst2": "{sentence}"}}, "for 'sst2': '{sentence}'"),
        ({"templates": {"sst2": ["{text}"]}}, "Received: 'text', in '{text}'"),
        ({"rates": "even"}, "`rates` must be one of .*'even'"),
        ({"rates": {"sst2": 1}}, "`rates` must .* for each of"),
        ({"rates": {"sst2": 0, "cola": 0}}, "not all 0"),
        ({"rates": {"sst2": -1, "cola": 3}}, "not negative"),
        ({"rates": {"sst2": float("nan"), "cola": 3}}, "not negative"),
        ({"limit": 0}, "`limit`"),
        ({"temperature": 0.0}, "`temperature`"),
        ({"pairs_per_pass": 0}, "`pairs_per_pass`"),
    ],
)
def test_what_is_refused(options, message):
    tasks = {"sst2": examples("sst2", 4), "cola": examples("cola", 4)}
    with pytest.raises(ValueError, match=message):
        mixture(**{"tasks": tasks, **options})


def make_model(kind, seed=0):
    tokenizer = word_piece()
    if kind == "text_to_text":
        preprocessor = TextToTextPreprocessor(tokenizer, 24, 6, seed=seed)
        return TextToText(make("T5"), preprocessor)
    preprocessor = CausalLMPreprocessor(tokenizer, 15, seed=seed)
    return CausalLM(make("GPT2"), preprocessor)


def numpy(batches):
    return [[np.asarray(part) for part in tf.nest.flatten(batch)] for batch in batches]


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["text_to_text", "causal_lm"])
def test_streams(kind):
    preprocessor = make_model(kind, 3).preprocessor
    dataset = preprocessor.dataset(both(), 8)
    passes = [numpy(dataset) for _ in range(2)]
    assert [len(batches) for batches in passes] == [7, 7]
    assert not all(map(np.array_equal, passes[0][0], passes[1][0]))
    preprocessor.position.set(1, 4)
    for batch, same in zip(numpy(dataset), passes[1][4:], strict=True):
        for a, b in zip(batch, same, strict=True):
            np.testing.assert_array_equal(a, b)
    held_out = preprocessor.dataset(both(), 8, training=False)
    first, again = numpy(held_out), numpy(held_out)
    assert len(first[-1][0]) == 2  # of 50
    for a, b in zip(first[0], again[0], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.any_backend
def test_what_takes_no_mixture():
    with pytest.raises(ValueError, match="for MaskedLMPreprocessor"):
        MaskedLMPreprocessor(word_piece(), 16).dataset(both(), 2)
    with pytest.raises(ValueError, match=r"`preprocessor.dataset\(x, batch"):
        make_model("text_to_text").fit(both())
    assert "mixture" in datasets.__all__
