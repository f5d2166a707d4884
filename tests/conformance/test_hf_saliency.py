"""Integrated gradients by PyTorch's, through the embeddings that a model is given."""

import types

import numpy as np
import pytest

from keras_bertfam.analysis import token_saliency
from keras_bertfam.tasks import TextClassifier
from tests.from_transformers import convert, randomize

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PAD, START, END, MASK = range(4)


@pytest.mark.any_backend
def test_scores_are_those_of_a_fine_sum():
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
        initializer_range=0.3,
        num_labels=3,
    )
    torch.manual_seed(1)
    theirs = randomize(transformers.BertForSequenceClassification(config))
    ours = convert(TextClassifier, theirs)
    names = {"pad": PAD, "start": START, "end": END, "mask": MASK}
    ids = {f"{name}_token_id": number for name, number in names.items()}
    tokenizer = types.SimpleNamespace(
        **ids,
        get_vocabulary=lambda: [*map(str, range(config.vocab_size))],
        vocabulary_size=lambda: config.vocab_size,
    )
    ours.preprocessor = types.SimpleNamespace(tokenizer=tokenizer)
    row = np.array([[START, 7, 11, 9, 5, END]], "int32")
    [found] = token_saliency(ours, {"token_ids": row}, 2, steps=64)

    special = torch.tensor(np.isin(row[0], [START, END]))
    table = theirs.bert.embeddings.word_embeddings.weight.detach()
    end = table[torch.tensor(row[0]).long()]
    start = torch.where(special[:, None], end, table[MASK])
    at = (torch.arange(2000) + 0.5)[:, None, None] / 2000
    points = (start + at * (end - start)).requires_grad_()
    theirs(inputs_embeds=points).logits[:, 2].sum().backward()
    expected = ((end - start) * points.grad.mean(0)).sum(-1).numpy()
    np.testing.assert_allclose(found.scores, expected, atol=1e-3)
    assert np.abs(expected).max() > 0.05
