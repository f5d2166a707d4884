import types

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.analysis import token_saliency
from keras_bertfam.analysis.saliency import Saliency
from keras_bertfam.models import RobertaBackbone
from keras_bertfam.tasks import (
    MultipleChoice,
    MultipleChoicePreprocessor,
    RelationClassifier,
    RelationClassifierPreprocessor,
    TextClassifier,
    TextClassifierPreprocessor,
    TextEmbedder,
    TextEmbedderPreprocessor,
    TextRegressor,
    TextRegressorPreprocessor,
    TokenClassifier,
    TokenClassifierPreprocessor,
)
from keras_bertfam.tasks.finetuning.relation_classifier_preprocessor import MARKERS
from keras_bertfam.tokenizers import train_byte_pair
from tests import tiny_fine_tuning as tiny
from tests import tiny_questions, tiny_text_to_text

TEXTS = ["the cat sat", "a dog"]


def make(
    task=TextClassifier, made_by=TextClassifierPreprocessor, family="bert", **kwargs
):
    layout = "xlnet" if family == "xlnet" else None
    preprocessor = made_by(tiny.make_tokenizer(), 24, layout=layout)
    backbone = tiny.make_backbone(family, num_layers=1, initializer_range=0.5)
    return task(backbone, preprocessor=preprocessor, **kwargs)


def check_complete(found, wanted=1):
    assert len(found) >= wanted
    for saliency in found:
        assert len(saliency.tokens) == len(saliency.scores)
        parts = np.abs(saliency.scores).sum()
        assert parts > 1e-3 and abs(saliency.error) < 0.02 * parts + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("family", tiny.fast_families("bert"))
def test_scores_add_up_to_what_changes(family):
    model = make(family=family, label_names=["no", "yes"])
    found = token_saliency(model, TEXTS, "yes", steps=192, batch_size=64)
    check_complete(found, 2)
    rows = {name: np.asarray(v) for name, v in model.preprocessor(TEXTS).items()}
    outputs = ops.convert_to_numpy(model(rows, training=False))
    np.testing.assert_allclose([s.output for s in found], outputs[:, 1], atol=1e-4)
    assert found[1].tokens.count("dog") == 1 and found[1].target == (1,)
    special = [
        token.strip("[]<>").lower() in ("cls", "sep") for token in found[1].tokens
    ]
    assert not found[1].scores[special].any() and sum(special) == 2


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_decoder_reads_the_text_a_token_later():
    tokenizer = tiny.make_tokenizer()
    size = tokenizer.vocabulary_size()
    preprocessor = TextClassifierPreprocessor(tokenizer, 12)
    backbone = tiny_text_to_text.make("Bart", vocabulary_size=size)
    model = TextClassifier(backbone, 2, preprocessor)
    found = token_saliency(model, TEXTS, 1, steps=64, batch_size=64)
    rows = {name: np.asarray(v) for name, v in preprocessor(TEXTS).items()}
    outputs = ops.convert_to_numpy(model(rows, training=False))
    np.testing.assert_allclose([s.output for s in found], outputs[:, 1], atol=1e-4)
    check_complete(found, 2)


@pytest.mark.any_backend
def test_a_linear_model_has_the_products_of_its_weights():
    """By any number of steps, the class whose output is the greatest."""
    classifier = make(num_classes=2)
    embedding = classifier.backbone.token_embedding
    weights = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")

    def call(rows, training):
        return ops.sum(ops.matmul(embedding(rows["token_ids"]), weights), axis=1)

    class Task:
        preprocessor, backbone = classifier.preprocessor, classifier.backbone
        __call__ = staticmethod(call)

    tokenizer = classifier.preprocessor.tokenizer
    table = ops.convert_to_numpy(embedding.embeddings)
    for baseline, start in (
        ("mask", table[tokenizer.mask_token_id]),
        ("pad", table[tokenizer.pad_token_id]),
        ("zero", np.zeros(16)),
    ):
        [found] = token_saliency(Task(), ["the cat"], steps=1, baseline=baseline)
        ids = [tokenizer.token_to_id(token) for token in found.tokens]
        expected = (table[ids] - start) @ weights[:, found.target[0]]
        expected[[0, -1]] = 0
        np.testing.assert_allclose(found.scores, expected, atol=1e-4)
        assert found.error == pytest.approx(0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_every_task():
    regressor = make(TextRegressor, TextRegressorPreprocessor)
    check_complete(token_saliency(regressor, TEXTS, steps=64), 2)
    tagger = make(TokenClassifier, TokenClassifierPreprocessor, num_classes=3)
    words = [["the", "cats"], ["a"]]
    check_complete(token_saliency(tagger, words, (0, 2), steps=64), 2)
    [found, _] = token_saliency(tagger, words, (0,), steps=64)
    assert found.target[0] == 0 and len(found.target) == 2
    choices = make(MultipleChoice, MultipleChoicePreprocessor)
    x = {"context": ["the cat"], "question": ["a"], "choices": [["dog", "cat"]]}
    [found] = token_saliency(choices, x, 1, steps=64)
    check_complete([found])
    assert found.tokens.count("[CLS]") == 2
    embedder = make(TextEmbedder, TextEmbedderPreprocessor)
    found = token_saliency(embedder, TEXTS, lambda v: v[:, 0] + v[:, 1], steps=64)
    check_complete(found, 2)
    assert found[0].target is None
    questions = tiny_questions.make_model()
    x, _ = tiny_questions.questions(2)
    found = token_saliency(questions, x, ("start_logits", 4), steps=128)
    assert all(abs(saliency.error) < 1e-3 for saliency in found)


@pytest.mark.any_backend
def test_plot(tmp_path):
    [found] = token_saliency(make(num_classes=2), ["the cat"], steps=2)
    found.plot(tmp_path / "saliency.png")
    assert (tmp_path / "saliency.png").read_bytes().startswith(b"\x89PNG")
    assert str(found).startswith("[CLS] (+0.000) the (")


@pytest.mark.any_backend
def test_what_has_no_saliency():
    model = make(num_classes=2)
    for arguments, message in {
        ("baseline", "none"): "`baseline` must be one of",
        ("steps", 0): "`steps` must be at least 1",
        ("target", 2): r"`target` must be one of the outputs .*\(2,\).* Received: 2",
        ("target", "yes"): "`target` .* Received: 'yes'",
        ("target", (0, 1)): "`target`",
        ("target", lambda outputs: outputs): r"`target` must give a number .*\(2, 2\)",
    }.items():
        with pytest.raises(ValueError, match=message):
            token_saliency(model, TEXTS, **dict([arguments]), batch_size=40)
    with pytest.raises(ValueError, match="`x` must be a batch"):
        token_saliency(model, "the cat")
    with pytest.raises(ValueError, match="`task` must have a preprocessor"):
        token_saliency(types.SimpleNamespace(preprocessor=None), TEXTS)
    # Nothing of it stays behind.
    before = ops.convert_to_numpy(model.backbone.token_embedding(np.array([[5]])))
    token_saliency(model, TEXTS, steps=1)
    after = ops.convert_to_numpy(model.backbone.token_embedding(np.array([[5]])))
    np.testing.assert_array_equal(before, after)


@pytest.mark.slow
@pytest.mark.any_backend
def test_tokens_that_a_task_has_added():
    relations = make(RelationClassifier, RelationClassifierPreprocessor, num_classes=2)
    x = {"text": ["the cat saw a dog"], "first": [(4, 7)], "second": [(14, 17)]}
    [found] = token_saliency(relations, x, 1, steps=64)
    check_complete([found])
    added = [token in MARKERS for token in found.tokens]
    assert sum(added) == 4 and not found.scores[added].any()


@pytest.mark.any_backend
def test_a_word_that_an_example_lacks_is_refused():
    tagger = make(TokenClassifier, TokenClassifierPreprocessor, num_classes=3)
    with pytest.raises(ValueError, match=r"one of the 1 words .*Received: \(1, 1\)"):
        token_saliency(tagger, [["the", "cats"], ["a"]], (1, 1), steps=2)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_picture_of_a_long_text_has_a_limited_size():
    pytest.importorskip("matplotlib")
    scores = np.zeros(2000)
    figure = Saliency(["x"] * 2000, scores, (0,), 0.0, 0.0).plot()
    assert tuple(figure.get_size_inches()) == (60, 4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_tokens_of_bytes_are_readable():
    texts = ["très bon", "le mat"]
    tokenizer = train_byte_pair(
        tf.data.Dataset.from_tensor_slices(4 * texts), 280, family="roberta"
    )
    preprocessor = TextClassifierPreprocessor(tokenizer, 16)
    backbone = RobertaBackbone(tokenizer.vocabulary_size(), 1, 2, 16, 24)
    model = TextClassifier(backbone, 2, preprocessor)
    (found,) = token_saliency(model, ["le mat"], steps=4)
    assert "".join(found.tokens[1:-1]).strip() == "le mat"
    (found,) = token_saliency(model, ["très bon"], steps=4)
    assert " bon" in "".join(found.tokens)
