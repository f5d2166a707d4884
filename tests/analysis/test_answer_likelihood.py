"""The log-probability of answers to prompts, beside NumPy, on each backend."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis.likelihood import answer_likelihood
from keras_bertfam.tasks import (
    CausalLM,
    CausalLMPreprocessor,
    TextToText,
    TextToTextPreprocessor,
)
from tests.tasks.generation.text_to_text_tokenizers import word_piece
from tests.tiny_text_to_text import make

PROMPTS = ["the cat sat on", "a dog", "near the old mat"]
ANSWERS = ["a mat", "ran", "the big red bat ate"]
KINDS = ["text_to_text", "causal_lm"]
_made = {}


def model_of(kind):
    if kind not in _made:
        tokenizer = word_piece()
        _made[kind] = (
            TextToText(make("T5"), TextToTextPreprocessor(tokenizer, 16, 10))
            if kind == "text_to_text"
            else CausalLM(make("GPT2"), CausalLMPreprocessor(tokenizer, 16))
        )
    return _made[kind]


def ids_of(text):
    return [*map(word_piece().token_to_id, text.split())]


def expected_score(kind, prompt, answer):
    """The sum over one text, of logits without padding."""
    start, end = 2, 3
    if kind == "text_to_text":
        targets = [*ids_of(answer), end]  # the start token isn't counted
        inputs = {
            "encoder_token_ids": [[start, *ids_of(prompt), end]],
            "decoder_token_ids": [[end, start, *targets[:-1]]],
        }
    else:
        targets = ids_of(answer)
        inputs = {"token_ids": [[start, *ids_of(prompt), *targets[:-1]]]}
    inputs = {name: np.array(ids, "int32") for name, ids in inputs.items()}
    logits = ops.convert_to_numpy(model_of(kind)(inputs, training=False))[0]
    logits = logits[-len(targets) :].astype("float64")
    totals = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1))
    chosen = logits[np.arange(len(targets)), targets] - logits.max(-1)
    return (chosen - totals).sum(), len(targets)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities(kind):
    for batch_size in (2, 64):
        sums, counts = answer_likelihood(
            model_of(kind), PROMPTS, ANSWERS, batch_size=batch_size
        )
        for row, pair in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
            total, count = expected_score(kind, *pair)
            assert sums[row] == pytest.approx(total, abs=1e-4)
            assert counts[row] == count
    sums, counts = answer_likelihood(model_of(kind), [], [])
    assert sums.shape == counts.shape == (0,)
