"""Of the choices the likeliest, beside NumPy."""

import dataclasses

import numpy as np
import pytest

from keras_bertfam.analysis.likelihood import answer_likelihood
from keras_bertfam.datasets import Examples, Template, choose, zero_shot
from keras_bertfam.datasets.task_data import get_task
from keras_bertfam.tasks import CausalLM, CausalLMPreprocessor, MaskedLM
from tests.analysis.test_answer_likelihood import (
    KINDS,
    PROMPTS,
    expected_score,
    model_of,
)
from tests.tasks.generation.text_to_text_tokenizers import word_piece
from tests.tiny_text_to_text import make


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", ["sum", "mean", "unconditional"])
def test_choices(kind, score):
    model = model_of(kind)
    choices = ("the old dog", "mat", "big big big")
    examples = Examples((PROMPTS, [choices[:2], choices, choices[1:]]), None, race())
    found = choose(model, examples, "{article} ran", score=score, batch_size=4)
    for number, prompt in enumerate(PROMPTS):
        scores = []
        for choice in examples.x[1][number]:
            total, count = expected_score(kind, f"{prompt} ran", choice)
            if score == "mean":
                total /= count
            if score == "unconditional":
                [usual], _ = answer_likelihood(model, ["Answer:"], [choice])
                total -= usual
            scores.append(total)
        assert found[number] == int(np.argmax(scores))
    assert choose(model, examples[:0], "{article}", score=score) == []


def race():
    return get_task("race")


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_task_that_was_left_out():
    model = model_of("causal_lm")
    texts = ["the cat sat", "a dog ran", "old mat", "red bat"]
    examples = Examples(texts, [0, 1, 1, 0], get_task("sst2"))
    templates = [
        Template("{sentence}", choices=("mat", "near")),
        {"input": "{sentence} on", "choices": ("near", "mat")},
    ]
    scores = zero_shot(model, examples, templates)
    for template, score in zip(templates, scores, strict=True):
        right = np.equal(choose(model, examples, template), examples.y)
        assert score == {"accuracy": right.mean()}
    assert len(zero_shot(model, examples)) == 5  # the library's


@pytest.mark.any_backend
def test_what_is_refused():
    tokenizer = word_piece()
    model = CausalLM(make("GPT2"), CausalLMPreprocessor(tokenizer, 16))
    films = Examples(["a"], [1], get_task("sst2"))
    with pytest.raises(ValueError, match="`score` must be one of"):
        choose(model, films, "{sentence}", score="max")
    with pytest.raises(ValueError, match="an input that doesn't tell"):
        choose(model, films, "{sentence} {label}")
    with pytest.raises(ValueError, match="the target '{label}'"):
        choose(model, films, {"input": "", "target": "{sentence}"})
    pairs = Examples((["a"], ["b"]), [1.0], get_task("stsb"))
    with pytest.raises(ValueError, match="classification or multiple_choice"):
        choose(model, pairs, "{sentence1}")
    with pytest.raises(ValueError, match="`examples` must have labels"):
        zero_shot(model, Examples(["a"], None, get_task("sst2")))
    with pytest.raises(ValueError, match="for 'qqp': None"):
        zero_shot(model, Examples((["a"], ["b"]), [1], get_task("qqp")))
    for given in ([], "{sentence}", {"input": "{sentence}"}, Template("{sentence}")):
        with pytest.raises(ValueError, match="a list of at least one .* for 'sst2'"):
            zero_shot(model, films, given)
    mine = dataclasses.replace(get_task("sst2"), label_names=None)
    unnamed = Examples(["a"], None, mine)
    with pytest.raises(ValueError, match="neither labels nor their names are known"):
        choose(model, unnamed, "{sentence}")
    assert choose(model, unnamed, {"input": "{sentence}", "choices": ("a", "b")}) in (
        [0],
        [1],
    )
    with pytest.raises(ValueError, match="`answers` must be one for each prompt"):
        answer_likelihood(model, ["a"], [])
    model.preprocessor = None
    with pytest.raises(ValueError, match="Received: CausalLM with NoneType"):
        choose(model, films, "{sentence}")
    with pytest.raises(ValueError, match="`task` must be a `TextToText`"):
        choose(MaskedLM, films, "{sentence}")
