"""Likelihoods of texts against the loss of `transformers`."""

import types

import numpy as np
import pytest

from keras_bertfam.analysis.likelihood import log_likelihood
from keras_bertfam.tasks import CausalLM
from tests.from_transformers import convert, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

START, PAD = 1, 0


@pytest.mark.any_backend
def test_sums_are_those_of_gpt2():
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=12, n_layer=2, n_head=3, n_positions=12
    )
    theirs = randomize(transformers.GPT2LMHeadModel(config), 0.3)
    ours = convert(CausalLM, theirs)
    texts = [[5, 9, 7, 3], [8, 2], [11, 12, 13, 14, 15]]
    # The token that texts begin with ends them as well, as GPT-2's does.
    rows = [[START, *text, START] for text in texts]
    ids = np.array([row + [PAD] * (7 - len(row)) for row in rows], "int32")
    encoded = {"token_ids": ids, "padding_mask": ids != PAD}
    ours.preprocessor = types.SimpleNamespace(
        tokenizer=types.SimpleNamespace(start_token_id=START, end_token_id=START),
        encode=lambda texts: encoded,
    )
    sums, counts = log_likelihood(ours, ["x"] * 3, batch_size=2)
    assert counts.tolist() == [4, 2, 5]
    for total, text in zip(sums, texts, strict=True):
        row = torch.tensor([[START, *text]])
        with torch.no_grad():
            mean = theirs(input_ids=row, labels=row).loss
        assert total == pytest.approx(-len(text) * float(mean), abs=1e-4)
