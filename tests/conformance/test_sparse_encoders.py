"""Sparse encoders of `sentence-transformers`, in and out, and their penalty."""

import json

import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.presets import CheckpointError
from keras_bertfam.tasks.finetuning.sparse_encoder import products_of_search
from tests import small_bert_folder

library = pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

TEXTS = ["a b c d e f a b c d", "b", "c d", "f e"]


def write(folder, pooling="max", activation="relu"):
    """Write a folder with their library; their model."""
    from sentence_transformers.sparse_encoder import modules

    base = small_bert_folder.write(folder / "base", cls="BertForMaskedLM")
    parts = [
        modules.MLMTransformer(str(base), max_seq_length=9),
        modules.SpladePooling(pooling, activation),
    ]
    prompts = {"query": "a ", "document": "b b "}
    theirs = library.SparseEncoder(modules=parts, device="cpu", prompts=prompts)
    theirs.save_pretrained(str(folder / "theirs"))
    return theirs


def dense(vectors):
    return vectors.to_dense().numpy()


ONCE = pytest.mark.any_backend


@pytest.mark.parametrize(
    ("pooling", "activation"),
    [
        ("max", "log1p_relu"),
        ("sum", "relu"),
        pytest.param("max", "relu", marks=ONCE),
        pytest.param("sum", "log1p_relu", marks=ONCE),
    ],
)
def test_vectors_of_their_folder_and_of_ours(pooling, activation, tmp_path):
    theirs = write(tmp_path, pooling, activation)
    ours = tasks.SparseEncoder.from_preset(str(tmp_path / "theirs"))
    assert (ours.pooling, ours.activation) == (pooling, activation)
    assert ours.preprocessor.sequence_length == 9
    ours.export_to_sentence_transformers(str(tmp_path / "ours"))
    back = library.SparseEncoder(str(tmp_path / "ours"), device="cpu")
    assert back.max_seq_length == 9
    again = tasks.SparseEncoder.from_preset(str(tmp_path / "ours"))
    for kind, name in (("query", "encode_query"), ("passage", "encode_document")):
        expected = dense(getattr(theirs, name)(TEXTS))
        found = ours.encode(TEXTS, kind, too_long="cut")
        np.testing.assert_allclose(found, expected, atol=1e-5)
        found = again.encode(TEXTS, kind, too_long="cut")
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(dense(getattr(back, name)(TEXTS)), expected, 1e-5)
    vectors = theirs.encode(TEXTS)
    expected = theirs.similarity_pairwise(vectors, theirs.encode(TEXTS[::-1])).numpy()
    found = ours.similarity(TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    ours.prompts = {}
    terms = ours.terms(TEXTS, top_k=3)
    for pairs, expected in zip(terms, theirs.decode(vectors, top_k=3), strict=True):
        assert [token for token, _ in pairs] == [token for token, _ in expected]
        scores = [score for _, score in expected]
        np.testing.assert_allclose([x for _, x in pairs], scores, atol=1e-5)


@pytest.mark.any_backend
def test_keys_of_a_folder(tmp_path):
    write(tmp_path)
    file = tmp_path / "theirs" / "1_SpladePooling" / "config.json"
    written = json.loads(file.read_text())
    for key, value, message in [
        ("odd", 1, "no other keys"),
        ("pooling_strategy", "mean", "one of max, sum"),
        ("activation_function", "gelu", "one of relu, log1p_relu"),
        ("embedding_dimension", 12, "must be 11"),
    ]:
        file.write_text(json.dumps({**written, key: value}))
        with pytest.raises(CheckpointError, match=message):
            tasks.SparseEncoder.from_preset(str(tmp_path / "theirs"))
    file.write_text(json.dumps({**written, "chunk_size": 2}))
    tasks.SparseEncoder.from_preset(str(tmp_path / "theirs"))


def test_penalty(tmp_path):
    from sentence_transformers.sparse_encoder.losses import FlopsLoss

    vectors = np.random.default_rng(0).random((5, 7)).astype("float32")
    theirs = FlopsLoss(None).compute_loss_from_embeddings(torch.tensor(vectors))
    ours = products_of_search(ops.convert_to_tensor(vectors[:, None]), ops.ones(5))
    assert float(ours) == pytest.approx(float(theirs), rel=1e-5)
