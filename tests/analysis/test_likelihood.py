import numpy as np
import pytest
from keras import ops

from keras_bertfam.analysis import pseudo_log_likelihood
from keras_bertfam.analysis.likelihood import log_likelihood
from keras_bertfam.tasks import CausalLM, CausalLMPreprocessor
from tests import tiny_families, tiny_fine_tuning, tiny_text_to_text
from tests import tiny_masked_lm as tiny


@pytest.fixture(scope="module")
def model():
    return tiny.make_model()


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_the_sum_is_that_of_fill_mask(model, batch_size):
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


def test_texts_without_a_token_count_for_nothing(model):
    sums, counts = pseudo_log_likelihood(model, ["", "the cat"])
    assert sums[0] == counts[0] == 0 and counts[1] == 2


def test_a_preprocessor_is_needed():
    model = tiny.make_model()
    model.preprocessor = None
    with pytest.raises(ValueError, match="must have a preprocessor"):
        pseudo_log_likelihood(model, ["the cat"])


@pytest.fixture(scope="module", params=["GPT2", "ModernBertDecoder"])
def writer(request):
    """A model whose head is logits alone, and one whose head is a masked LM's."""
    tokenizer = tiny_fine_tuning.make_tokenizer()
    size = tokenizer.vocabulary_size()
    if request.param == "GPT2":
        backbone = tiny_text_to_text.make("GPT2", vocabulary_size=size)
    else:
        backbone = tiny_families.backbone_of(request.param, vocabulary_size=size)
    return CausalLM(backbone, CausalLMPreprocessor(tokenizer, 12))


@pytest.mark.parametrize("batch_size", [2, 64])
def test_each_token_is_given_those_before_it(writer, batch_size):
    texts = ["the cats sat", "", "a dog"]
    sums, counts = log_likelihood(writer, texts, batch_size)
    assert counts.tolist() == [4, 0, 2] and sums[1] == 0
    for row, tokens in [(0, "[CLS] the cat ##s sat"), (2, "[CLS] a dog")]:
        ids = [[*map(writer.preprocessor.tokenizer.token_to_id, tokens.split())]]
        logits = writer({"token_ids": np.array(ids, "int32")}, training=False)
        logs = ops.convert_to_numpy(ops.log_softmax(logits))[0]
        expected = logs[np.arange(counts[row]), ids[0][1:]].sum()
        assert sums[row] == pytest.approx(expected, abs=1e-4)


@pytest.mark.any_backend
def test_without_a_token_that_begins_texts_the_first_one_has_no_probability(writer):
    class Bare:
        def __init__(self, tokenizer):
            self.tokenizer = tokenizer

        def encode(self, texts):
            return {"token_ids": np.array([[5, 6, 7, 0], [8, 0, 0, 0]], "int32")} | {
                "padding_mask": np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)
            }

    class Tokenizer:
        start_token_id = end_token_id = None

    whole = writer.preprocessor
    try:
        writer.preprocessor = Bare(Tokenizer)
        sums, counts = log_likelihood(writer, ["the first", "one"])
    finally:
        writer.preprocessor = whole
    assert counts.tolist() == [2, 0] and sums[0] < 0 == sums[1]


@pytest.mark.any_backend
def test_what_reads_both_sides_has_no_likelihood(model):
    with pytest.raises(ValueError, match="reads from left to right.*MaskedLM"):
        log_likelihood(model, ["the cat"])
