import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.analysis import attention_view, prune_heads
from keras_bertfam.analysis.heads.attention import text_attentions
from tests import tiny_fine_tuning as tiny
from tests import tiny_text_to_text

PAIRS = [("the cats sat", "a dog"), ("red", "blue")]
PAIR = "[CLS] the cat ##s sat [SEP] a dog [SEP]".split()


@pytest.fixture(scope="module")
def backbone():
    return tiny.make_backbone()


def softmax(scores):
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def scores_of(found):
    pairs = zip(found.queries, found.keys, strict=True)
    return [query @ key.transpose(0, 2, 1) for query, key in pairs]


@pytest.mark.slow
def test_weights_are_those_of_the_model_without_padding(backbone):
    [[found], [other]] = text_attentions(backbone, PAIRS, tiny.make_tokenizer())
    assert found.name == "self" and not found.causal
    assert found.query_tokens == found.key_tokens == PAIR
    assert found.query_segments == found.key_segments == [0] * 6 + [1] * 3
    assert other.query_tokens == "[CLS] red [SEP] blue [SEP]".split()
    ids = [[tiny.make_tokenizer().token_to_id(token) for token in PAIR]]
    inputs = {"token_ids": np.array(ids), "segment_ids": np.array([[0] * 6 + [1] * 3])}
    expected = backbone(inputs, return_attention=True)["attentions"]
    assert len(found.weights) == len(expected) == 2
    for weights, theirs in zip(found.weights, expected, strict=True):
        np.testing.assert_allclose(weights, ops.convert_to_numpy(theirs)[0], atol=1e-6)
    for weights, scores in zip(found.weights, scores_of(found), strict=True):
        np.testing.assert_allclose(softmax(scores), weights, atol=1e-6)
    # Nobody is told of later calls.
    layers = backbone._flatten_layers()
    watchers = [layer.watcher for layer in layers if hasattr(layer, "watcher")]
    assert watchers == [None, None]


@pytest.mark.slow
@pytest.mark.any_backend
def test_shared_layers_and_relative_positions():
    """ALBERT's one layer is each layer; XLNet's scores are more than the products."""
    tokenizer = tiny.make_tokenizer()
    [[found]] = text_attentions(tiny.make_backbone("albert"), ["the cat"], tokenizer)
    assert len(found.weights) == 2 and found.query_segments == [0] * 4
    assert not np.allclose(found.weights[0], found.weights[1])
    for weights, scores in zip(found.weights, scores_of(found), strict=True):
        np.testing.assert_allclose(softmax(scores), weights, atol=1e-6)
    model = tasks.TextEmbedder(
        tiny.make_backbone("xlnet"),
        preprocessor=tasks.TextEmbedderPreprocessor(tokenizer, 16, layout="xlnet"),
    )
    [[found]] = text_attentions(model, "the cat")
    assert found.query_tokens == "the cat [SEP] [CLS]".split()
    assert found.queries[0].shape == found.keys[0].shape == (2, 4, 8)
    np.testing.assert_allclose(found.weights[1].sum(-1), 1, atol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("heads", [{0: [0, 1], 1: [0]}, {1: [0, 1]}])
def test_pruned_heads_keep_their_numbers_and_have_no_weights(backbone, heads):
    pruned, tokenizer = prune_heads(backbone, heads), tiny.make_tokenizer()
    [[found]] = text_attentions(pruned, ["the cats sat"], tokenizer)
    assert [x.shape for x in found.weights] == [(2, 6, 6)] * 2
    assert [x.shape for x in (*found.queries, *found.keys)] == [(2, 6, 8)] * 4
    sums = np.stack(found.weights).sum(-1)
    expected = np.ones((2, 2, 6))
    for layer, numbers in heads.items():
        expected[layer, numbers] = 0
    np.testing.assert_allclose(sums, expected, atol=1e-5)
    attention_view(pruned, ["the cats sat"], tokenizer=tokenizer)


@pytest.mark.slow
@pytest.mark.any_backend
def test_two_sides_and_from_left_to_right():
    tokenizer = tiny.make_tokenizer()
    model = tiny_text_to_text.make("Bart")
    [parts] = text_attentions(model, PAIRS[:1], tokenizer, 8)
    assert [part.name for part in parts] == ["encoder", "decoder", "cross"]
    encoder, decoder, cross = parts
    assert encoder.query_tokens == PAIR[:6]
    # The start token of BART's decoder is the end token.
    assert decoder.query_tokens == "[SEP] [CLS] a dog".split()
    assert cross.query_tokens == decoder.query_tokens
    assert cross.key_tokens == encoder.key_tokens
    assert [part.causal for part in parts] == [False, True, False]
    assert [len(part.weights) for part in parts] == [2, 2, 2]
    assert not np.triu(decoder.weights[0], 1).any()
    for weights, scores in zip(cross.weights, scores_of(cross), strict=True):
        assert weights.shape == (2, 4, 6)
        np.testing.assert_allclose(softmax(scores), weights, atol=1e-6)
    [[found]] = text_attentions(tiny_text_to_text.make("GPT2"), ["a dog"], tokenizer)
    assert found.name == "self" and found.causal
    assert found.query_tokens == "[CLS] a dog [SEP]".split()
    assert not np.triu(found.weights[1], 1).any()


@pytest.mark.any_backend
def test_the_page_of_a_task(backbone, tmp_path):
    preprocessor = tasks.MaskedLMPreprocessor(tiny.make_tokenizer(), 16)
    model = tasks.MaskedLM(backbone, preprocessor)
    path = tmp_path / "view.html"
    view = attention_view(model, ["the <b>cat", ""], path, sequence_length=8)
    assert path.read_text("utf-8") == view.html and "the <b>" not in view.html
    assert f"{path.stat().st_size:,} bytes" in repr(view)
    notebook = view._repr_html_()
    assert notebook.startswith("<iframe sandbox") and notebook.count("<") == 2


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "texts, message",
    [
        (None, "`texts` must be a string.*Received: None"),
        ([], r"Received: \[\]"),
        ([3], r"Received: \[3\]"),
        (["a", ("a", "b")], "`texts` must be"),
        ([("a", 1)], "`texts` must be"),
        ([("a", "b", "c")], "`texts` must be"),
        ([["a", "b"]], "`texts` must be"),
    ],
)
def test_what_is_no_text(backbone, texts, message):
    with pytest.raises(ValueError, match=message):
        attention_view(backbone, texts, tokenizer=tiny.make_tokenizer())


@pytest.mark.any_backend
def test_what_has_no_view(backbone):
    with pytest.raises(ValueError, match="`model` must be a backbone.*Sequential"):
        attention_view(keras.Sequential(), "a")
    with pytest.raises(ValueError, match="`tokenizer` must be given"):
        attention_view(backbone, "a")
    tokenizer = tiny.make_tokenizer()
    for name, texts in (("Bart", ["a"]), ("GPT2", PAIRS)):
        model = tiny_text_to_text.make(name)
        with pytest.raises(ValueError, match=f"`texts` must be .* for {name}Backbone"):
            attention_view(model, texts, tokenizer=tokenizer)
    broken = tiny.make_backbone(num_layers=1)
    broken.weights[0].assign(broken.weights[0] * np.nan)
    with pytest.raises(ValueError, match="`model` must compute finite numbers"):
        attention_view(broken, "a", tokenizer=tokenizer)
    # After an error, too, nobody is told of later calls.
    layers = broken._flatten_layers()
    assert not any(getattr(layer, "watcher", None) for layer in layers)
