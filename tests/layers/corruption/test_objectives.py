"""Denoising objectives: what is recoverable, which lengths, mixtures and lists."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import chisquare

from keras_bertfam import layers
from keras_bertfam.layers.corruption.objectives import get_objective
from keras_bertfam.layers.corruption.span_objectives import (
    IidReplaceSpans,
    random_spans_lengths,
)
from keras_bertfam.layers.corruption.text_objectives import BertStyle
from tests.layers.corruption.denoised_batches import (
    END,
    MASK,
    SENTINELS,
    make,
    random_texts,
    rows,
)
from tests.layers.corruption.masked_batches import LIKELY

WHOLE_TEXT = (
    "bert_style deshuffling mass mass_fragment token_masking token_deletion "
    "text_infilling sentence_permutation document_rotation bart"
).split()


def test_lengths_by_t5s_rule():
    assert random_spans_lengths(512) == (568, 114)
    assert random_spans_lengths(128) == (141, 29)
    assert random_spans_lengths(512, 0.5, 3.0)[1] <= 512
    for rate, mean in ((0.1, 2), (0.25, 5), (0.5, 10), (0.15, 1)):
        for length in (16, 64, 100):
            text, targets = random_spans_lengths(length, rate, mean)
            layer = make(layers.RandomSpans(rate, mean), length, sentinel_ids=range(60))
            assert (layer.text_length, layer.target_length) == (text, targets)
            ids = tf.range(20, 20 + text) % 50 + 60
            out = layer(ids, seed=[0, 1])
            assert tf.reduce_sum(tf.cast(out["encoder_padding_mask"], tf.int32)) in (
                length,
                length - 1,
            )
            assert out["target_weights"].shape == (targets,)
            assert out["target_weights"].numpy().all()


def recovered(inputs, targets):
    """The text of inputs and targets with sentinels."""

    def runs(row):
        found = [[]]
        for token in row:
            if token in SENTINELS:
                found.append([])
            else:
                found[-1].append(token)
        return [run for run in found if run]

    turns = [runs(inputs), runs(targets)]
    turn = int(bool(inputs) and inputs[0] in SENTINELS)
    text = []
    while turns[turn]:
        text += turns[turn].pop(0)
        turn = 1 - turn
    return text + sum(turns[0] + turns[1], [])


@pytest.mark.parametrize(
    "objective",
    [
        "random_spans",
        layers.RandomSpans(0.5, 2),
        "iid_replace_spans",
        IidReplaceSpans(0.5),
    ],
)
def test_texts_are_recoverable_from_spans(objective):
    layer = make(objective)
    texts, ids = random_texts(layer)
    out = layer(ids, seed=[1, 2])
    pairs = zip(rows(out["encoder_token_ids"]), rows(out["target_ids"]), strict=True)
    changed = 0
    for text, (inputs, targets) in zip(texts, pairs, strict=True):
        assert recovered(inputs, targets) == text
        used = [token for token in inputs if token in SENTINELS]
        assert used == SENTINELS[: len(used)]
        changed += inputs != text
    assert changed > 300


@pytest.mark.parametrize(
    "objective", ["prefix_lm", layers.PrefixLM(0.25), layers.PrefixLM(mean_rate=0.25)]
)
def test_texts_are_recoverable_from_prefixes(objective):
    layer = make(objective)
    texts, ids = random_texts(layer)
    out = layer(ids, seed=[1, 2])
    prefixes, rest = rows(out["encoder_token_ids"]), rows(out["target_ids"])
    assert [a + b for a, b in zip(prefixes, rest, strict=True)] == texts
    assert all(len(a) > 0 for a in prefixes)
    assert all(len(b) > 0 for a, b in zip(texts, rest, strict=True) if len(a) > 1)


@pytest.mark.parametrize("objective", WHOLE_TEXT)
def test_targets_that_are_the_whole_text(objective):
    layer = make(objective)
    texts, ids = random_texts(layer)
    out = layer(ids, seed=[1, 2])
    assert rows(out["target_ids"]) == texts
    inputs = rows(out["encoder_token_ids"])
    assert sum(a != b for a, b in zip(inputs, texts, strict=True)) > 150
    same_length = objective not in ("token_deletion", "text_infilling", "bart")
    if same_length:
        assert [*map(len, inputs)] == [*map(len, texts)]
    shuffled = objective in (
        "deshuffling",
        "sentence_permutation",
        "document_rotation",
    )
    if shuffled:
        assert [*map(sorted, inputs)] == [*map(sorted, texts)]


def test_dropped_tokens():
    layer = make("iid_drop")
    texts, ids = random_texts(layer)
    out = layer(ids, seed=[1, 2])
    kept, dropped = rows(out["encoder_token_ids"]), rows(out["target_ids"])
    for text, a, b in zip(texts, kept, dropped, strict=True):
        assert sorted(a + b) == sorted(text)


def test_noise_that_targets_have_no_room_for_stays():
    layer = make(IidReplaceSpans(0.5), 64, sentinel_ids=SENTINELS[:3])
    texts, ids = random_texts(layer)
    out = layer(ids, seed=[1, 2])
    pairs = zip(rows(out["encoder_token_ids"]), rows(out["target_ids"]), strict=True)
    for text, (inputs, targets) in zip(texts, pairs, strict=True):
        assert recovered(inputs, targets) == text
    many = IidReplaceSpans(0.9)
    many.lengths = lambda inputs: (inputs, 9)
    layer = make(many, 32)
    texts, ids = random_texts(layer)
    out = layer(ids, seed=[1, 2])
    assert out["target_ids"].shape == (400, 10)
    pairs = zip(rows(out["encoder_token_ids"]), rows(out["target_ids"]), strict=True)
    assert all(
        recovered(*pair) == text for text, pair in zip(texts, pairs, strict=True)
    )


def test_mass_as_published():
    """The decoder knows the fragment alone, at its positions, and predicts it."""
    layer = make("mass_fragment", 13, start_token_id=6)
    out = {k: v.numpy() for k, v in layer([[*range(20, 30)]] * 50, seed=[0, 1]).items()}
    predicted = out["decoder_padding_mask"]
    assert (predicted == out["target_weights"]).all() and (predicted.sum(1) == 5).all()
    target = np.array([6, *range(20, 30), END, 0])
    assert (out["target_ids"] == target).all()
    first = predicted.argmax(1)
    assert set(first) == set(range(1, 7))
    for k, begin in enumerate(first):
        fragment = slice(begin, begin + 5)
        assert predicted[k, fragment].all()
        decoder = [MASK, *target[begin : begin + 4]]
        assert out["decoder_token_ids"][k, fragment].tolist() == decoder
        outside = np.delete(out["encoder_token_ids"][k], np.r_[fragment])
        np.testing.assert_array_equal(outside, np.delete(target, np.r_[fragment]))
    share = (out["encoder_token_ids"][:, 1:11] == MASK)[predicted[:, 1:11]].mean()
    assert 0.7 < share < 0.9


def test_random_tokens_are_no_special_ones():
    layer = make(BertStyle(0.9, mask_token_rate=0.0, random_token_rate=1.0))
    _, ids = random_texts(layer)
    drawn = {*sum(rows(layer(ids, seed=[0, 1])["encoder_token_ids"]), [])}
    assert drawn == set(range(120)) - {0, END, MASK, *SENTINELS}


def test_a_mixture_draws_by_its_rates():
    modes = ["<extra_id_1>", "<extra_id_0>", None]
    names = {"<extra_id_0>": 119, "<extra_id_1>": 118}
    objective = layers.Mixture(
        ["random_spans", "prefix_lm", "mass_fragment"], [3, 2, 5], modes
    )
    assert objective.token_names == modes[:2]
    layer = make(objective, named_token_ids=names, start_token_id=6)
    ids = tf.constant([[*range(20, 40)]] * 4000)
    out = {k: v.numpy() for k, v in layer(ids, seed=[2, 1]).items()}
    first = out["encoder_token_ids"][:, 1]
    counts = [np.sum(first == token) for token in (118, 119)]
    counts.append(4000 - sum(counts))
    assert chisquare(counts, np.array([0.3, 0.2, 0.5]) * 4000).pvalue > LIKELY
    spans, prefix = first == 118, first == 119
    # 117 is the first sentinel that is left.
    assert (out["target_ids"][spans][:, 1] == 117).all()
    assert not np.isin(out["encoder_token_ids"][prefix][:, 2:], SENTINELS).any()
    fragment = ~spans & ~prefix
    assert (out["target_weights"][fragment].sum(1) == 10).all()
    ends = (out["target_ids"] == END) & (out["target_weights"] > 0)
    assert (ends.sum(1) == ~fragment).all()


def test_a_mixture_of_one_is_that_objective():
    mixed, alone = make(layers.Mixture(["mass"])), make("mass")
    assert mixed.text_length == alone.text_length
    _, ids = random_texts(alone, 50)
    a, b = mixed(ids, seed=[0, 1]), alone(ids, seed=[0, 1])
    assert a["target_ids"].numpy().tolist() == b["target_ids"].numpy().tolist()


def test_lists_are_applied_in_order():
    layer = make(["token_deletion", "document_rotation"])
    out = layer(tf.constant([[*range(20, 30)]] * 9), seed=[0, 1])
    for row in rows(out["encoder_token_ids"]):
        assert len(row) == 8
        turn = row.index(min(row))
        assert row[turn:] + row[:turn] == sorted(row)
    with pytest.raises(ValueError, match="list of obj.*'text_infilling'.*'prefix_lm'"):
        make(["text_infilling", "prefix_lm"])
    with pytest.raises(ValueError, match=r"list of objectives.*Received: \[\]"):
        make([])


def test_published_mixtures():
    assert get_objective("bart").noises[1].rate == 0.3
    mixture = make("mixture", mask_token_id=None)  # none of which masks
    assert len(mixture.objective.objectives) == 7
    assert mixture([[20, 21, 22, 23]])["target_weights"].numpy().any()
