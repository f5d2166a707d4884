"""Masked diffusion: its bound, and what is written by unmasking."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_bertfam.models import BertBackbone
from keras_bertfam.optimizers import pretraining_optimizer
from keras_bertfam.tasks import (
    MaskedDiffusionLM,
    MaskedDiffusionLMPreprocessor,
    MaskedLM,
)
from keras_bertfam.tasks.losses import DiffusionBound
from keras_bertfam.tasks.masking import masked_diffusion_lm
from tests import every_task as every
from tests import tiny_masked_lm
from tests.tiny_masked_lm import SPECIALS, WORDS

SIZE = len(SPECIALS) + len(WORDS)
WITH_MASKS = [kind for kind in every.KINDS if kind not in every.WITHOUT_MASKS]


def make(length=16, more_rows=0):
    keras.utils.set_random_seed(3)
    tokenizer = tiny_masked_lm.BertTokenizer([*SPECIALS, *WORDS], lowercase=True)
    backbone = BertBackbone(
        SIZE + more_rows,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=length,
        initializer_range=0.5,
        dropout=0.0,
    )
    preprocessor = MaskedDiffusionLMPreprocessor(tokenizer, length)
    model = MaskedDiffusionLM(backbone, preprocessor)
    model.compile(pretraining_optimizer(1e-2, 80, 2), jit_compile=model.jit_compile)
    return model


def log_probabilities(logits):
    logits = np.asarray(ops.convert_to_numpy(logits), "float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_loss_is_the_weighted_sum_over_all_tokens():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 5, 7))
    ids = np.array([[3, 1, 6, -1, -1], [2, 0, 5, 4, -1]])
    weights = np.array([[0, 4.0, 4.0, 0, 0], [1.5, 0, 0, 1.5, 0]])
    losses = -np.take_along_axis(log_probabilities(logits), ids[..., None] % 7, -1)
    expected = (losses[..., 0] * weights).sum() / 7
    got = DiffusionBound()(ids, logits, weights)
    assert float(got) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_fit_lowers_the_bound_and_it_is_saved(tmp_path):
    model = make()
    data = tiny_masked_lm.stream(model)
    held_out = tiny_masked_lm.stream(model, training=False)
    (x, ids, weights) = next(iter(held_out))
    logits = model({name: np.asarray(value) for name, value in x.items()})
    ids, weights = ids.numpy(), weights.numpy()
    right = np.take_along_axis(log_probabilities(logits), ids[..., None], -1)
    expected = -(right[..., 0] * weights).sum() / (ids >= 0).sum()
    got = model.evaluate(held_out.take(1), verbose=0, return_dict=True)
    assert got["loss"] == pytest.approx(expected, rel=1e-4)
    before = model.evaluate(held_out, verbose=0, return_dict=True)
    model.fit(data, epochs=6, verbose=0)
    after = model.evaluate(held_out, verbose=0, return_dict=True)
    assert after["loss"] < 0.8 * before["loss"]
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    for other in (
        keras.saving.load_model(tmp_path / "model.keras"),
        MaskedDiffusionLM.from_preset(str(tmp_path / "preset")),
    ):
        text = "the cat"
        assert other.generate(text, 5, seed=1) == model.generate(text, 5, seed=1)
        assert other.score(text) == pytest.approx(model.score(text), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["confidence", "random"])
@pytest.mark.parametrize("block_length", [None, 2])
def test_tokens_are_written_in_order_of_certainty(order, block_length, monkeypatch):
    model = make()
    written = []
    write = masked_diffusion_lm._write

    def watched(ids, positions, still, best, certainty, quota):
        before, open_ = ids.copy(), still.copy()
        write(ids, positions, still, best, certainty, quota)
        written.append((before, ids.copy(), positions, open_, best, certainty, quota))

    monkeypatch.setattr(masked_diffusion_lm, "_write", watched)
    texts = ["the cat [MASK] on", "", "a dog [MASK] [MASK] mat"]
    got = model.generate(texts, 5, 4, block_length, order, seed=0)
    words = [text.replace("[MASK]", "").split() for text in got]
    assert [len(row) for row in words] == [9, 5, 10]
    assert {*itertools.chain(*words)} <= {*WORDS, "[UNK]"}
    assert len(written) == 4
    for before, after, positions, open_, best, certainty, quota in written:
        for row in range(3):
            new = np.flatnonzero(before[row] != after[row])
            assert len(new) == quota[row]
            slots = np.flatnonzero(open_[row])
            sure = sorted(certainty[row, slots])[::-1][: len(new)]
            chosen = [k for k in slots if positions[row, k] in new]
            assert sorted(certainty[row, chosen])[::-1] == sure
            assert np.array_equal(after[row, positions[row, chosen]], best[row, chosen])
    if block_length:  # from left to right
        firsts = [np.flatnonzero(b[2] != a[2]) for b, a, *_ in written]
        assert all(x.max() < y.min() for x, y in zip(firsts, firsts[1:], strict=False))


@pytest.mark.slow
def test_what_is_written_first_is_the_surest_token_by_the_model_alone():
    model = make()
    ids = np.array([[2, 5, 4, 4, 4, 3]], "int32")
    logits = log_probabilities(model({"token_ids": ids}))[0, 2:5, :SIZE]
    logits[:, [0, 2, 3, 4]] = -np.inf  # [UNK] is a token that text may have
    share = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    place, token = np.unravel_index(share.argmax(), share.shape)
    ids[0, 2 + place] = token
    text = " ".join([*SPECIALS, *WORDS][k] for k in ids[0, 1:-1])
    # All three in one step, and the surest one alone before the two others.
    assert model.generate("the", 3) == model.generate(text, 0)


@pytest.mark.slow
@pytest.mark.any_backend
def test_temperature_draws_from_the_probabilities():
    model = make(more_rows=3)  # than there are tokens
    ids = np.array([[2, 5, 4, 3]], "int32")
    kept = [1, *range(len(SPECIALS), SIZE)]
    logits = log_probabilities(model({"token_ids": ids}))[0, 2, kept]
    for temperature in (1.0, 2.0):
        expected = np.exp(logits / temperature)
        expected /= expected.sum()
        texts = model.generate(["the"] * 3000, 1, temperature=temperature, seed=0)
        counts = np.array([texts.count(f"the {word}") for word in ["[UNK]", *WORDS]])
        assert counts.sum() == 3000
        error = ((counts - 3000 * expected) ** 2 / (3000 * expected)).sum()
        assert error < 39.3  # chi2(16), p = .001
    assert len({*model.generate(["the"] * 9, 1)}) == 1


@pytest.mark.slow
def test_score_is_the_mean_over_all_orders_of_writing():
    model = make()
    text = "the cat sat"
    ids = np.array([2, *(SIZE - len(WORDS) + WORDS.index(w) for w in text.split()), 3])
    orders = [*itertools.permutations((1, 2, 3))]
    total = 0
    for order in orders:  # the chain rule, token after token
        given = np.where(np.isin(np.arange(5), order), 4, ids)
        for place in order:
            logits = log_probabilities(model({"token_ids": given[None]}))[0]
            total -= logits[place, ids[place]]
            given[place] = ids[place]
    expected = total / len(orders) / 3
    assert model.score(text, samples=3000, batch_size=1000) == pytest.approx(
        expected, rel=0.02
    )
    alone = model.score(text)
    both = model.score(["a a [MASK]", "", text], batch_size=7)
    assert both[2] == pytest.approx(alone, rel=1e-5) and np.isnan(both[1])


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("count", "size", "steps", "plan"),
    [
        (5, 3, 3, [(0, 2), (0, 1), (1, 2)]),
        (5, 3, None, [(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)]),
        (5, 5, 2, [(0, 3), (0, 2)]),
        (2, 4, 9, [(0, 1), (0, 1)]),
        (0, 4, 1, []),
    ],
)
def test_a_plan_writes_each_mask_once(count, size, steps, plan):
    assert masked_diffusion_lm._plan(count, size, steps) == plan


@pytest.mark.slow
def test_what_becomes_of_a_text_does_not_depend_on_the_others():
    model = make()
    for settings in ({}, {"block_length": 2}, {"block_length": 2, "steps": 4}):
        alone = model.generate("the cat [MASK]", 3, **settings)
        others = ["a dog [MASK] [MASK] [MASK]", "", "the cat [MASK]"]
        assert model.generate(others, 3, **settings)[2] == alone


@pytest.mark.slow
def test_mask_tokens_of_texts_are_no_targets():
    model = make()
    x, ids, weights = model.preprocessor(["the [MASK] cat sat"] * 64)
    masks = np.asarray(ids)[:, 2]
    assert (masks == -1).all() and (np.asarray(weights)[:, 2] == 0).all()
    assert (np.asarray(x["token_ids"])[:, 2] == 4).all()


def test_refused():
    model = make()
    for settings, message in (
        ({"texts": []}, "`texts` must be at least one text"),
        ({"new_tokens": -1}, "`new_tokens`"),
        ({"new_tokens": 20}, "`texts` must fit into the 16 positions.*23"),
        ({"order": "left"}, "`order` must be one of"),
        ({"steps": 0}, "`steps` must be at least 1"),
        ({"steps": 1, "block_length": 2}, "`steps` must be .* 3 blocks"),
        ({"block_length": 0}, "`block_length`"),
        ({"temperature": -1.0}, "`temperature`"),
    ):
        with pytest.raises(ValueError, match=message):
            model.generate(**{"texts": ["the"], "new_tokens": 6, **settings})
    with pytest.raises(ValueError, match="`samples`"):
        model.score("the", samples=0)
    with pytest.raises(ValueError, match="needs a task with a preprocessor"):
        MaskedDiffusionLM(model.backbone).generate("the")
    with pytest.raises(ValueError, match="isn't causal"):
        MaskedDiffusionLM(BertBackbone(9, 1, 2, 8, 8, causal=True))


@pytest.mark.slow
def test_the_head_of_a_masked_language_model_is_taken(tmp_path):
    model = make()
    source = MaskedLM(model.backbone)
    source.head.bias.assign(np.arange(float(SIZE)))
    source.save_to_preset(str(tmp_path))
    taken = MaskedDiffusionLM.from_preset(
        str(tmp_path), preprocessor=model.preprocessor
    )
    bias = ops.convert_to_numpy(taken.head.bias)
    np.testing.assert_array_equal(bias, np.arange(float(SIZE)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [k for k in every.KINDS if k not in every.WITHOUT_MASKS]
)
def test_any_tokenizer(kind):
    model = every.make("MaskedDiffusionLM", kind)
    mask, text = model.preprocessor.tokenizer.mask_token, every.TEXTS[0]
    assert model.generate(text, 0) == text
    written = model.generate([text, f"{text} {mask}", ""], 3, steps=2)
    assert written[0].startswith(text) and len(written[0]) > len(text)
    assert not any(mask in x for x in written) and not written[2].startswith(text)
    scores = model.score([text, ""])
    assert 0 < scores[0] < 20 and np.isnan(scores[1])


@pytest.mark.parametrize("wrong", [-2, SIZE])
def test_labels_that_are_no_tokens_are_refused(wrong):
    model = make()
    x, ids, weights = model.preprocessor(["the cat", "a dog"])
    x = {name: np.asarray(value) for name, value in x.items()}
    ids = np.array(ids)
    model.evaluate(x, ids, sample_weight=np.asarray(weights), verbose=0)
    ids[1, 2] = wrong
    message = rf"`y` must be whole numbers in \[-1, vocabulary_size={SIZE}\).*{wrong}"
    for call in (model.fit, model.evaluate, model.train_on_batch):
        with pytest.raises(ValueError, match=message):
            call(x, ids, sample_weight=np.asarray(weights))


def test_texts_in_whatever_form():
    model = make()
    options = {"samples": 4, "seed": 0}
    expected = model.score("the cat", **options)
    for text in (b"the cat", tf.constant("the cat"), np.array("the cat")):
        assert model.score(text, **options) == expected
        assert model.generate(text, 2) == model.generate("the cat", 2)
    assert isinstance(model.generate([b"the \xff"], 1)[0], str)
