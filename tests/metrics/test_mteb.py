"""MTEB's interface, and, where it is installed, one of its tasks on data of ours."""

import numpy as np
import pytest

from keras_bertfam.metrics import MtebEncoder
from keras_bertfam.tasks import TextEmbedder, TextEmbedderPreprocessor
from tests import tiny_fine_tuning as tiny

pytestmark = pytest.mark.any_backend


@pytest.fixture
def model():
    preprocessor = TextEmbedderPreprocessor(tiny.make_tokenizer(), 16)
    return TextEmbedder(tiny.make_backbone(num_layers=1), preprocessor)


@pytest.mark.slow
def test_texts_and_batches_of_them(model, monkeypatch):
    texts, _ = tiny.texts(5)
    encoder = MtebEncoder(model, "me/tiny")
    vectors = encoder.encode(texts, task_name="a", prompt_type=None)  # mteb 1
    assert vectors.shape == (5, 16) and vectors.dtype == "float32"
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    predicted = []
    monkeypatch.setattr(model, "predict", lambda x, **kwargs: predicted.extend(x))
    batches = [{"text": texts[:3]}, {"text": texts[3:], "title": ["a", "b"]}]
    facts = dict.fromkeys(("task_metadata", "hf_split", "hf_subset", "prompt_type"))
    encoder.encode(batches, batch_size=2, **facts)
    assert predicted == texts
    model.prompts = {"query": "a ", "passage": "b b "}
    for role, before in (("query", "a "), ("document", "b b "), (None, "")):
        predicted.clear()
        encoder.encode(batches, **{**facts, "prompt_type": role})
        assert predicted == [before + text for text in texts]
    assert MtebEncoder(model, "me/tiny").revision != encoder.revision
    model.prompts = {}
    assert encoder.encode([]).shape == (0, 16)
    same = MtebEncoder(model, "me/tiny").revision
    model.weights[0].assign(model.weights[0] + 1)
    assert same == encoder.revision != MtebEncoder(model, "me/tiny").revision
    narrow = TextEmbedder(model.backbone, model.preprocessor, projection_dim=4)
    assert MtebEncoder(narrow, "me/tiny").encode([]).shape == (0, 4)
    with pytest.raises(ValueError, match="`model` must have a preprocessor"):
        MtebEncoder(TextEmbedder(model.backbone), "me/tiny")


@pytest.mark.slow
def test_a_task(model):
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    encoder = MtebEncoder(model, "me/tiny")
    first, second = tiny.texts(12)[0], tiny.texts(12, 1)[0]
    columns = {"sentence1": first, "sentence2": second, "score": [*range(6)] * 2}
    (task,) = mteb.get_tasks(["STSBenchmark"])
    task.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns)})
    task.data_loaded = True  # what it would download
    result = mteb.evaluate(encoder, task, cache=None, show_progress_bar=False)
    assert result.model_name == "me/tiny"
    (scores,) = result.task_results[0].scores["test"]
    similarity = model.similarity(first, second)
    expected = np.corrcoef(similarity, columns["score"])[0, 1]
    assert scores["cosine_pearson"] == pytest.approx(expected, abs=1e-4)
    assert scores["main_score"] == scores["cosine_spearman"]
