import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis import head_importance
from keras_bertfam.analysis.heads.importance import labelled_batches, score
from keras_bertfam.models import EncoderDecoderBackbone
from keras_bertfam.tasks import (
    MultipleChoice,
    MultipleChoicePreprocessor,
    TextClassifier,
    TextClassifierPreprocessor,
    TokenClassifier,
    TokenClassifierPreprocessor,
)
from tests import tiny_fine_tuning as tiny

DATA = (["the cats sat on", "reding a mat", "red"], [1, 0, 1])
# Of the second layer, whose weights are zeros below.
USELESS = (1, 0)


@pytest.fixture(scope="module")
def model():
    backbone = tiny.make_backbone(initializer_range=0.3, num_segments=2)
    kernel = backbone.encoder.block(USELESS[0])[0].sublayer.output_dense.kernel
    value = ops.convert_to_numpy(kernel).copy()
    value[:8] = 0
    kernel.assign(value)
    preprocessor = TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    return tiny.compiled(TextClassifier(backbone, 2, preprocessor, dropout=0.0))


@pytest.fixture(scope="module")
def batches(model):
    return labelled_batches(model, DATA, 2)


def slopes_by_differences(model, batches):
    """Differences of the loss by each head's factor."""
    stack = model.backbone.encoder
    found = np.zeros((2, 2))
    for at in np.ndindex(2, 2):
        step = np.zeros((2, 2))
        step[at] = 1e-2
        above, below = (
            score(model, stack, batches, 1 + sign * step, "loss") for sign in (1, -1)
        )
        found[at] = (above - below) / 2e-2
    return found


@pytest.mark.slow
def test_gradients_are_means_of_absolute_slopes_of_examples(model, batches):
    found = head_importance(model, batches, normalize=False)
    assert found.shape == (2, 2) and found.dtype == "float32"
    singles = [
        [({name: value[k : k + 1] for name, value in x.items()}, y[k : k + 1], None)]
        for x, y, _ in batches
        for k in range(len(y))
    ]
    each = [slopes_by_differences(model, single) for single in singles]
    assert len(each) == 3
    np.testing.assert_allclose(found, np.abs(each).mean(0), atol=2e-4)
    assert found[USELESS] == 0 and np.sum(found > 1e-3) == 3
    scaled = head_importance(model, DATA, batch_size=2)
    np.testing.assert_allclose((scaled**2).sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        scaled, found / np.linalg.norm(found, axis=1)[:, None], atol=1e-4
    )


@pytest.mark.slow
def test_leaving_out_is_what_the_mask_does(model, batches):
    batches = batches[:1]
    found = head_importance(model, batches, "leave_one_out")
    assert found[USELESS] == 0 and np.sum(found != 0) == 3
    [[x, y, weights]] = batches
    mask = np.array([[1, 1], [1, 0]], "float32")
    with model.backbone.encoder.masked_heads(mask):
        without = model.compute_loss(x, y, model(x), weights)
    whole = model.compute_loss(x, y, model(x), weights)
    rise = ops.convert_to_numpy(without - whole)
    assert found[1, 1] == pytest.approx(float(rise), abs=1e-5)
    accuracy = head_importance(model, batches, "leave_one_out", "accuracy")
    assert accuracy[USELESS] == 0
    assert set((accuracy * 2).ravel()) <= {-2, -1, 0, 1, 2}


@pytest.mark.slow
@pytest.mark.any_backend
def test_choices_of_an_example_are_one():
    tokenizer = tiny.make_tokenizer()
    model = MultipleChoice(
        tiny.make_backbone(initializer_range=0.3),
        MultipleChoicePreprocessor(tokenizer, 16),
        dropout=0.0,
    )
    data = ({"context": ["the cats"], "choices": [["sat", "red mat"]]}, [1])
    found = head_importance(model, data, normalize=False)
    slopes = np.abs(slopes_by_differences(model, labelled_batches(model, data, 1)))
    np.testing.assert_allclose(found, slopes, atol=2e-4)


@pytest.mark.slow
@pytest.mark.any_backend
def test_what_has_no_importance_is_refused(model):
    for arguments, message in [
        ((model, DATA, "other"), "`method` must be one of"),
        ((model, DATA, "leave_one_out", "other"), "`metric` must be one of.*accuracy"),
        ((model, []), "`data` must have a batch"),
        ((model.backbone, DATA), "`model` must be compiled"),
    ]:
        with pytest.raises(ValueError, match=message):
            head_importance(*arguments)
    with pytest.raises(ValueError, match="without labels"):
        head_importance(model, [({"token_ids": np.ones((1, 3))},)])
    with pytest.raises(ValueError, match="except BART, T5 and ELMo.*EncoderDecoder"):
        head_importance(EncoderDecoderBackbone(9, 1, 2, 8, 8), DATA)


@pytest.mark.slow
@pytest.mark.any_backend
def test_weights_count_the_same_in_batches_of_any_size(model):
    data = (*DATA, [1.0, 5.0, 0.5])
    found = [labelled_batches(model, data, size) for size in (1, 2, 3)]
    mask = np.array([[1.0, 0.5], [0.5, 1.0]])
    losses = [score(model, model.backbone.encoder, b, mask, "loss") for b in found]
    np.testing.assert_allclose(losses, losses[-1], rtol=1e-5)
    given = [head_importance(model, each, normalize=False) for each in found[:2]]
    np.testing.assert_allclose(*given, rtol=1e-4, atol=1e-7)
    with pytest.raises(ValueError, match="must have a weight above 0"):
        labelled_batches(model, (*DATA, [0.0, 0.0, 0.0]), 2)


@pytest.mark.any_backend
@pytest.mark.slow
def test_losses_of_keras_count_rows():
    backbone = tiny.make_backbone(initializer_range=0.3)
    preprocessor = TextClassifierPreprocessor(tiny.make_tokenizer(), 16)
    model = TextClassifier(backbone, 2, preprocessor, dropout=0.0)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = (*DATA, np.array([1.0, 0.1, 5.0]))
    once, twice = (head_importance(model, data, batch_size=size) for size in (2, 3))
    np.testing.assert_allclose(once, twice, rtol=1e-4)


@pytest.mark.slow
def test_words_count_the_same_in_batches_of_any_size():
    backbone = tiny.make_backbone(initializer_range=0.3)
    preprocessor = TokenClassifierPreprocessor(tiny.make_tokenizer(), 16)
    tagger = tiny.compiled(TokenClassifier(backbone, 2, preprocessor, dropout=0.0))
    words = [["the"], ["the", "cat", "sat", "on", "a", "mat"], ["a", "red", "hat"]]
    data = words, [[0], [1] * 6, [0, 1, 0]]
    found = [labelled_batches(tagger, data, size) for size in (1, 3)]
    mask = np.array([[1.0, 0.5], [0.5, 1.0]])
    losses = [score(tagger, backbone.encoder, each, mask, "loss") for each in found]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    given = [head_importance(tagger, each, normalize=False) for each in found]
    np.testing.assert_allclose(*given, rtol=1e-4, atol=1e-7)
