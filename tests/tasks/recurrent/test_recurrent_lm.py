"""Transformer-XL: NumPy's outputs, memory, perplexity, adaptive softmax, saving."""

import numpy as np
import pytest
from keras import ops

from keras_bertfam.models import TransformerXLBackbone
from keras_bertfam.tasks import CausalLM, RecurrentLM
from tests import tiny_recurrent_lm as tiny

PUBLISHED = {  # 151M and 41M in the paper, with the bias of the softmax
    "transformer_xl_base_en_wikitext103": 150_838_570,
    "transformer_xl_base_enwik8": 41_055_232,
}


def numpy_of(x):
    return ops.convert_to_numpy(x).astype("float64")


def norm(x, layer):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * numpy_of(layer.gamma) + numpy_of(layer.beta)


def reference(backbone, ids, memory, same_length, clamp):
    """The paper's appendix B, a row and a query at a time."""
    x = numpy_of(backbone.token_embedding.embeddings)[ids] * 4.0
    width, heads = 16, 2
    u, v = numpy_of(backbone.encoder.biases)
    layers = [x]
    for block, past in zip(backbone.encoder.blocks, memory, strict=True):
        attention = block.attention.sublayer
        context = np.concatenate([past, x])
        q = x @ numpy_of(attention.query.kernel)
        k, w = np.split(context @ numpy_of(attention.key_value.kernel), 2, -1)
        out = np.zeros((len(x), width))
        for i in range(len(x)):
            first = i if same_length and len(past) else 0
            keys = range(first, len(past) + i + 1)
            gap = np.array([min(len(past) + i - j, clamp) for j in keys])
            angle = gap[:, None] / 10000 ** (np.arange(0, width, 2) / width)
            r = np.concatenate([np.sin(angle), np.cos(angle)], -1)
            r = r @ numpy_of(attention.relative.kernel)
            for h in range(heads):
                at = slice(8 * h, 8 * h + 8)
                scores = k[keys][:, at] @ (q[i, at] + u[h]) + r[:, at] @ (
                    q[i, at] + v[h]
                )
                p = np.exp(scores / np.sqrt(8))
                out[i, at] = p @ w[keys][:, at] / p.sum()
        out = out @ numpy_of(attention.output_dense.kernel)
        x = norm(x + out, block.attention.norm)
        inner, outer = (
            getattr(block.feedforward.sublayer, name)
            for name in ("intermediate", "output_dense")
        )
        y = np.maximum(x @ numpy_of(inner.kernel) + numpy_of(inner.bias), 0)
        y = y @ numpy_of(outer.kernel) + numpy_of(outer.bias)
        x = norm(x + y, block.feedforward.norm)
        layers.append(x)
    return layers


@pytest.mark.any_backend
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name):
    arguments = TransformerXLBackbone.presets_table[name]
    assert TransformerXLBackbone.parameter_count(**arguments) == PUBLISHED[name]


@pytest.mark.parametrize(("same_length", "clamp"), [(False, None), (True, 3)])
def test_states_and_memory_against_numpy(same_length, clamp):
    settings = {"same_length": same_length, "clamp_length": clamp}
    backbone = tiny.make_model(**settings).backbone
    ids = np.random.default_rng(0).integers(5, 20, (2, 9))
    memory, past = None, [np.zeros((0, 16))] * 2
    for part in (ids[:, :4], ids[:, 4:]):
        x = {"token_ids": part, **({} if memory is None else {"memory": memory})}
        outputs = backbone(x, memory_length=3, return_hidden_states=True)
        memory = outputs["memory"]
        expected = reference(backbone, part[1], past, same_length, clamp or 99)
        for ours, theirs in zip(outputs["hidden_states"], expected, strict=True):
            np.testing.assert_allclose(numpy_of(ours)[1], theirs, atol=1e-5)
        pairs = zip(past, expected[:-1], strict=True)
        past = [np.concatenate(pair)[-3:] for pair in pairs]
        for ours, theirs in zip(memory, past, strict=True):
            np.testing.assert_allclose(numpy_of(ours)[1], theirs, atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_training_and_evaluation():
    model = tiny.make_model()
    history = model.fit(tiny.stream(model), epochs=4, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] - 0.2
    assert numpy_of(model.memory.seen).sum(1).tolist() == [12] * 4
    before = numpy_of(model.memory.states[0])
    for measure in (model.evaluate, model.predict):
        measure(tiny.stream(model, training=False), verbose=0)
        np.testing.assert_array_equal(before, numpy_of(model.memory.states[0]))


@pytest.mark.slow
def test_memory_perplexity_and_saving(tmp_path):
    model = tiny.make_model()
    x, y, _ = next(iter(tiny.stream(model)))
    assert x["token_ids"].shape == (4, 10) and x["token_ids"][0, 1] == y[0, 0]
    x = {name: value.numpy() for name, value in x.items()}
    model(x)
    assert numpy_of(model.memory.seen).sum(1).tolist() == [10] * 4
    with pytest.raises(ValueError, match="must have 4 rows on each replica"):
        model({name: value[:2] for name, value in x.items()})

    ids = np.random.default_rng(1).integers(5, 20, 40)
    logits = numpy_of(model({"token_ids": ids[None, :-1]}))[0]
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.exp(-logits[np.arange(39), ids[1:]].mean())
    # With a memory of all that came before, in training it had 12, nothing is lost.
    for length in (39, 10):
        found = model.perplexity(ids, memory_length=64, sequence_length=length)
        assert found == pytest.approx(expected, rel=1e-4)
    shorter = model.perplexity(ids, memory_length=0)
    assert shorter != pytest.approx(expected, rel=1e-4)
    limits = {"same_length": True, "clamp_length": 5}
    assert model.perplexity(ids, 16, 10, **limits) != pytest.approx(expected, rel=1e-4)
    assert model.perplexity("the cat sat on the mat") > 1
    model.save_to_preset(tmp_path / "xl")
    again = RecurrentLM.from_preset(str(tmp_path / "xl"))
    assert again.memory_length == 12
    assert again.perplexity(ids, 64) == pytest.approx(model.perplexity(ids, 64))


@pytest.mark.slow
def test_texts_are_written_by_a_cache_as_without():
    limits = {"same_length": True, "clamp_length": 3}
    model = tiny.make_model(cutoffs=[8, 14], divisor=2, **limits)
    memory = [numpy_of(state) for state in model.memory.states]
    prompts = [[5, 9, 6, 14], [7, 8]]
    expected = []
    for row in prompts:
        text = np.array([row + [0] * (9 - len(row))], "int32")
        for place in range(len(row), 9):
            scores = numpy_of(model({"token_ids": text}))[0, place - 1]
            text[0, place] = scores.argmax()
        expected.append(text[0].tolist())
    assert model.generate(prompts, 9, stop_token_ids=None) == expected
    assert len({*expected[0][4:], *expected[1][2:]}) > 1
    for before, after in zip(memory, model.memory.states, strict=True):
        np.testing.assert_array_equal(before, numpy_of(after))


@pytest.mark.slow
@pytest.mark.any_backend
def test_adaptive_embeddings_and_softmax(tmp_path):
    model = tiny.make_model(cutoffs=[8, 14], divisor=2)
    history = model.fit(tiny.stream(model), epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] - 0.1
    ids = np.random.default_rng(1).integers(5, 20, 20)
    found = numpy_of(model({"token_ids": ids[None, :-1]}))[0]
    assert np.exp(found).sum(-1) == pytest.approx(1, abs=1e-4)
    expected = np.exp(-found[np.arange(19), ids[1:]].mean())
    assert model.perplexity(ids, 64, 5) == pytest.approx(expected, rel=1e-4)
    model.save_to_preset(tmp_path / "adaptive")
    again = RecurrentLM.from_preset(str(tmp_path / "adaptive"))
    assert again.perplexity(ids, 64, 5) == pytest.approx(expected, rel=1e-4)


def test_errors():
    with pytest.raises(ValueError, match="`batch_size` must be given for memory"):
        tiny.make_model(batch_size=None)
    model = tiny.make_model(memory_length=0)
    x = {"token_ids": np.array([[5, 6], [7, 8]])}
    memory = model.backbone(x, memory_length=2)["memory"]
    one = {"token_ids": x["token_ids"][:1], "memory": memory}
    with pytest.raises(ValueError, match="a row for each of the 1 of `token_ids`"):
        model.backbone(one)
    with pytest.raises(ValueError, match="num_layers=2 tensors. Received: 1"):
        model.backbone({**x, "memory": memory[:1]})
    with pytest.raises(ValueError, match="at least two tokens"):
        model.perplexity([5])
    with pytest.raises(ValueError, match="`sequence_length` must be positive"):
        model.perplexity([5, 6], sequence_length=0)
    assert isinstance(CausalLM(model.backbone), CausalLM)


def test_padding_is_not_remembered():
    model = tiny.make_model(batch_size=2)
    there = np.arange(10) < np.array([[6], [10]])
    ids = np.random.default_rng(0).integers(5, 20, (2, 20))
    found = []
    for padding in (0, 7):
        first = {"token_ids": np.where(there, ids[:, :10], padding)}
        begins = {"padding_mask": there, "continues": np.zeros(2, bool)}
        model({**first, **begins})
        assert numpy_of(model.memory.seen).sum(1).tolist() == [6, 10]
        goes_on = {"token_ids": ids[:, 10:], "continues": np.ones(2, bool)}
        found.append(numpy_of(model(goes_on)))
        # Two of the first row's last twelve tokens are padding.
        assert numpy_of(model.memory.seen).sum(1).tolist() == [10, 12]
    np.testing.assert_allclose(*found, atol=1e-6)
