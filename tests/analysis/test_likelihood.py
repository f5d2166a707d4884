import numpy as np
import pytest

from keras_bertfam.analysis.likelihood import pseudo_log_likelihood
from tests import tiny_masked_lm as tiny


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_the_sum_is_that_of_fill_mask(batch_size):
    model = tiny.make_model()
    texts = ["the cat sat", "a dog"]
    sums, counts = pseudo_log_likelihood(model, texts, batch_size)
    assert counts.tolist() == [3, 2]
    for text, received in zip(texts, sums, strict=True):
        words = text.split()
        expected = 0.0
        for index, word in enumerate(words):
            masked = [*words[:index], "[MASK]", *words[index + 1 :]]
            [answers] = model.fill_mask(" ".join(masked), top_k=21)
            expected += np.log(dict(answers)[word])
        assert received == pytest.approx(expected, abs=1e-4)


def test_texts_without_a_token_count_for_nothing():
    sums, counts = pseudo_log_likelihood(tiny.make_model(), ["", "the cat"])
    assert sums[0] == counts[0] == 0 and counts[1] == 2


def test_a_preprocessor_is_needed():
    model = tiny.make_model()
    model.preprocessor = None
    with pytest.raises(ValueError, match="must have a preprocessor"):
        pseudo_log_likelihood(model, ["the cat"])
