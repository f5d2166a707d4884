"""Fine-tuning of encoder-decoders, which have the text on both sides."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import models, optimizers, tasks
from tests import tiny_questions
from tests.tiny_fine_tuning import compiled

SIZES = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=12)
# The end token last.
IDS = np.array([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1], [0, 9, 9, 2, 1]], "int32")
X = {"token_ids": IDS, "padding_mask": IDS != 1}


def make_backbone(cls=models.BartBackbone, size=20, **kwargs):
    keras.utils.set_random_seed(1)
    settings = {**SIZES, "dropout": 0.0, "initializer_range": 0.3, **kwargs}
    return cls(size, **settings)


def array(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize(
    "name",
    [
        "Bart",
        pytest.param(
            "T5", marks=[pytest.mark.slow("release"), pytest.mark.any_backend]
        ),
    ],
)
def test_the_decoder_reads_the_shifted_text(name):
    backbone = make_backbone(getattr(models, f"{name}Backbone"))
    model = tasks.TextClassifier(backbone, 2, dropout=0.0)
    start = 2 if name == "Bart" else 0
    shifted = np.concatenate([np.full((3, 1), start), IDS[:, :-1]], 1)
    both = {f"encoder_{name}": value for name, value in X.items()}
    both["decoder_token_ids"] = shifted
    states = array(backbone(both)["decoder_sequence_output"])[range(3), [4, 2, 3]]
    expected = array(model.head(ops.convert_to_tensor(states)))
    np.testing.assert_allclose(array(model(X)), expected, atol=1e-5)
    assert [*model.input_signature()] == ["token_ids", "padding_mask"]
    if name == "Bart":  # the others once
        return
    embedder, tagger = tasks.TextEmbedder(backbone), tasks.TokenClassifier(backbone, 4)
    words = {**X, "word_positions": np.array([[1, 2]] * 3)}
    assert embedder(X).shape == (3, 8) and tagger(words).shape == (3, 2, 4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_classifier_learns():
    model = tasks.TextClassifier(make_backbone(), 2, dropout=0.0)
    y = np.array([0, 1, 1])
    optimizer = optimizers.fine_tuning_optimizer(model, 3e-2, layer_decay=0.9)
    scales = sorted({*optimizer.scales.values()})
    np.testing.assert_allclose(scales, [0.9**2, 0.9, 1])
    model.compile(optimizer, jit_compile=keras.backend.backend() == "jax")
    before, _ = model.evaluate(X, y, verbose=0)
    model.fit(X, y, epochs=10, verbose=0)
    after, accuracy = model.evaluate(X, y, verbose=0)
    assert accuracy == 1 and after < before / 2


@pytest.mark.slow
@pytest.mark.any_backend
def test_answers_of_questions(tmp_path):
    preprocessor = tiny_questions.make_preprocessor()
    size = preprocessor.tokenizer.vocabulary_size()
    backbone = make_backbone(size=size)
    model = compiled(tasks.SpanQuestionAnswering(backbone, preprocessor, n_best=3))
    x, y = tiny_questions.questions(8)
    losses = model.fit(x, y, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    answers = model.predict(x, verbose=0)
    pairs = zip(answers, x["context"], strict=True)
    assert all(answer["text"] in context for answer, context in pairs)
    model.save_to_preset(str(tmp_path))
    again = tasks.SpanQuestionAnswering.from_preset(str(tmp_path))
    assert again._none == "first"


def test_what_does_not_fit_is_refused():
    backbone = make_backbone()
    with pytest.raises(ValueError, match="`lm_weight`.*BartBackbone"):
        tasks.TextClassifier(backbone, 2, lm_weight=0.5)
    with pytest.raises(ValueError, match="`encoder_sequence_ids`"):
        tasks.TextClassifier(backbone, 2)({**X, "sequence_ids": IDS})
    with pytest.raises(ValueError, match="`head_style` must be one of"):
        tasks.TextClassifier(backbone, 2, head_style="gpt3")
