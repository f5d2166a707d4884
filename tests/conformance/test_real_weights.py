"""Trained checkpoints give the states and logits that `transformers` gives."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis import embed_words
from keras_bertfam.datasets import load_examples
from keras_bertfam.metrics import compute_metrics
from keras_bertfam.models import BertBackbone
from keras_bertfam.presets.checkpoints import huggingface
from keras_bertfam.presets.tokenizer_formats.tokenizer_files import load_tokenizer
from keras_bertfam.tasks import MaskedLM, TextEmbedder
from tests.from_transformers import max_difference

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
SENTENCES = ["A man is playing a guitar.", "Nobody was there, naïve as it sounds."]


@pytest.mark.slow
def test_minilm(minilm):
    theirs = transformers.BertModel.from_pretrained(minilm).eval()
    encoded = transformers.AutoTokenizer.from_pretrained(minilm)(
        SENTENCES, padding=True, return_tensors="pt"
    )
    backbone = BertBackbone.from_preset(minilm)
    tokenizer = load_tokenizer(huggingface.open_source(minilm))
    mask = encoded.attention_mask.numpy().astype(bool)
    ids = encoded.input_ids.numpy()
    for sentence, row, keep in zip(SENTENCES, ids, mask, strict=True):
        assert list(map(int, tokenizer(sentence))) == row[keep][1:-1].tolist()
    with torch.no_grad():
        expected = theirs(**encoded, output_hidden_states=True)
    x = {"token_ids": ids.astype("int32"), "padding_mask": mask}
    ours = backbone(x, return_hidden_states=True)
    pairs = zip(ours["hidden_states"], expected.hidden_states, strict=True)
    assert max(max_difference(*pair, where=mask) for pair in pairs) <= 1e-5
    assert max_difference(ours["pooled_output"], expected.pooler_output) <= 1e-5


@pytest.mark.slow
@pytest.mark.any_backend
def test_vectors_of_words(minilm):
    """The means of the states of each word's pieces, of the last four layers."""
    words = [sentence.split() for sentence in SENTENCES]
    theirs = transformers.BertModel.from_pretrained(minilm).eval()
    encoded = transformers.AutoTokenizer.from_pretrained(minilm)(
        words, is_split_into_words=True, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        states = theirs(**encoded, output_hidden_states=True).hidden_states
    states = torch.cat(states[-4:], dim=-1).numpy()
    backbone = BertBackbone.from_preset(minilm)
    tokenizer = load_tokenizer(huggingface.open_source(minilm))
    layers = (-4, -3, -2, -1)
    ours = embed_words(backbone, words, layers, tokenizer=tokenizer)
    for row, (found, vectors) in enumerate(ours):
        assert found == words[row]
        owners = np.array([-1 if w is None else w for w in encoded.word_ids(row)])
        assert np.bincount(owners[owners >= 0]).max() > 1
        expected = [states[row, owners == w].mean(0) for w in range(len(found))]
        assert np.abs(vectors - np.stack(expected)).max() <= 1e-5


@pytest.mark.data
def test_rxnmapper(data_dir):
    folder = data_dir / "checkpoints" / "rxnmapper_albert"
    theirs = transformers.AlbertForMaskedLM.from_pretrained(folder).eval()
    model = MaskedLM.from_preset(str(folder))
    ids = np.random.default_rng(0).integers(5, 591, (2, 24)).astype("int32")
    with torch.no_grad():
        expected = theirs(torch.tensor(ids).long())
    assert max_difference(model({"token_ids": ids}), expected.logits) <= 1e-4
    assert np.any(ops.convert_to_numpy(model.head.bias))


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.data
def test_minilm_ranks_the_pairs_of_the_sts_benchmark(minilm, data_dir):
    """The figure that `transformers` gets with the same weights and mean pooling."""
    pairs = load_examples("stsb", "validation", data_dir / "stsb")
    model = TextEmbedder.from_preset(minilm, pooling="mean")
    similarities = model.similarity(*pairs.x)
    score = compute_metrics(["spearman"], pairs.y, similarities)["spearman"]
    assert score == pytest.approx(0.8672, abs=5e-5)
