"""SpanBERT's encoder against `transformers`' BERT, as its checkpoints configure it."""

import numpy as np
import pytest

from keras_bertfam.models import SpanBertBackbone
from tests.from_transformers import convert, max_difference, randomize


def test_hidden_states():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    size = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
    size |= {"intermediate_size": 24, "vocab_size": 30, "hidden_act": "gelu"}
    theirs = randomize(transformers.BertModel(transformers.BertConfig(**size)))
    ours = convert(SpanBertBackbone, theirs)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 30, (3, 12))
    keep = np.arange(12) < np.array([[12], [7], [1]])
    with torch.no_grad():
        expected = theirs(
            torch.tensor(ids),
            attention_mask=torch.tensor(keep.astype("int64")),
            output_hidden_states=True,
        )
    outputs = ours(
        {"token_ids": ids.astype("int32"), "padding_mask": keep},
        return_hidden_states=True,
    )
    pairs = zip(outputs["hidden_states"], expected.hidden_states, strict=True)
    assert all(max_difference(*pair, where=keep) <= 1e-5 for pair in pairs)
    assert max_difference(outputs["pooled_output"], expected.pooler_output) <= 1e-5
