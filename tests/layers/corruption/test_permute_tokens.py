import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_bertfam.layers import PermuteTokens
from keras_bertfam.layers.corruption.permute_tokens import (
    draw_order,
    order_ranks,
    sample_spans,
)

SEED = np.array([3, 14])
PAD, CLS, SEP = 0, 1, 2


def make_layer(**kwargs):
    settings = {"vocabulary_size": 100, "special_token_ids": [CLS, SEP], **kwargs}
    return PermuteTokens(**settings)


def random_ids(batch, length):
    rng = np.random.default_rng(0)
    return rng.integers(3, 100, (batch, length)).astype("int32")


def dense_masks(perm_ranks, mask_positions, mask_weights):
    """The released code's `perm_mask` and `target_mapping`.

    Float arrays `(batch, length, length)`, 1 where token `i` doesn't attend to `j`, and
    `(batch, count, length)`, zero for empty slots.
    """
    mapping = np.eye(perm_ranks.shape[1])[mask_positions] * mask_weights[..., None]
    own = perm_ranks + 1 - mapping.max(1)
    return (own[:, :, None] <= perm_ranks[:, None, :]).astype("float32"), mapping


def arrays(outputs):
    return {name: x.numpy() for name, x in outputs.items()}


def test_local_perm_example():
    """Golden example of the released code's masks: 4 = SEP, 3 = CLS."""
    ids = np.array([[11, 12, 13, 4, 14, 3]])
    selected = np.array([[0, 1, 0, 0, 1, 0]], bool)
    special = np.isin(ids, [3, 4])
    ranks = order_ranks(np.array([[2, 4, 0, 1, 3, 5]]), selected, special)
    np.testing.assert_array_equal(ranks, [[-1, 4, -1, 1, 3, 5]])
    mask, mapping = dense_masks(
        ranks.numpy(), np.array([[1, 4]]), np.ones((1, 2), "float32")
    )
    expected = [
        [0, 1, 0, 1, 1, 1],
        [0, 1, 0, 0, 0, 1],
        [0, 1, 0, 1, 1, 1],
        [0, 1, 0, 0, 1, 1],
        [0, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(mask[0], expected)
    np.testing.assert_array_equal(mapping[0], np.eye(6)[[1, 4]])


def test_orders_are_uniform():
    orders = draw_order([6000, 4], SEED).numpy()
    permutations = [*itertools.permutations(range(4))]
    counts = [np.all(orders == p, axis=1).sum() for p in permutations]
    assert sum(counts) == 6000
    assert stats.chisquare(counts).pvalue > 1e-3


def test_blocks_of_an_order_follow_each_other():
    orders = draw_order([200, 10], SEED, perm_size=4).numpy()
    for begin, end in ((0, 4), (4, 8), (8, 10)):
        np.testing.assert_array_equal(
            np.sort(orders[:, begin:end], axis=1),
            np.tile(np.arange(begin, end), (200, 1)),
        )


def test_span_lengths_contexts_and_places():
    """p(n) is proportional to 1/n; a span's place in its context uniform."""
    batch, length = 4000, 64
    everything = np.ones((batch, length), bool)
    goals = np.full(batch, 20, "int32")
    begins, ends = sample_spans(everything, everything, goals, 20, SEED)
    sizes = (ends - begins).numpy()[:, 0]  # the first span of each row
    shares = 1 / np.arange(1, 6)
    expected = batch * shares / shares.sum()
    counts = [(sizes == n).sum() for n in range(1, 6)]
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    for n in (1, 2, 5):
        places = begins.numpy()[sizes == n, 0]
        counts = np.bincount(places, minlength=6 * n)
        assert len(counts) == 6 * n
        assert stats.chisquare(counts).pvalue > 1e-3


def test_spans_are_words_that_fit():
    rng = np.random.default_rng(1)
    batch, length = 300, 60
    starts = rng.random((batch, length)) < 0.5
    starts[:, 0] = True
    inside = np.arange(length) < rng.integers(0, length + 1, (batch, 1))
    goals = rng.integers(0, 13, batch).astype("int32")
    begins, ends = sample_spans(starts, inside, goals, 12, SEED)
    begins, ends = begins.numpy(), ends.numpy()
    assert ((ends - begins).sum(axis=1) <= goals).all()
    several = 0
    for row in range(batch):
        last, bounds = -1, [*np.flatnonzero(starts[row] & inside[row])]
        bounds.append(inside[row].sum())
        for begin, end in zip(begins[row], ends[row], strict=True):
            if end:
                assert last < begin < end  # apart, and in order
                last = end
                words = bounds.index(end) - bounds.index(begin)
                assert 1 <= words <= 5
                several += end - begin > words
    assert several > 20  # words of more pieces than one: the published bug


@pytest.mark.parametrize("reuse_length", [0, 256])
def test_budget_of_full_rows(reuse_length):
    ids = random_ids(8, 512)
    ids[:, [400, 510]], ids[:, 511] = SEP, CLS
    layer = make_layer(reuse_length=reuse_length)
    outputs = arrays(layer(ids, seed=SEED))
    positions, weights = outputs["mask_positions"], outputs["mask_weights"]
    assert positions.shape == (8, 85) and weights.all()
    assert (np.diff(positions) > 0).all()
    if reuse_length:
        np.testing.assert_array_equal((positions < 256).sum(axis=1), 43)
    np.testing.assert_array_equal(
        outputs["mask_ids"], np.take_along_axis(ids, positions, 1)
    )
    assert not np.isin(outputs["mask_ids"], [CLS, SEP]).any()


def test_parts_see_each_other_one_way():
    ids = random_ids(4, 12)
    ids[:, -1] = CLS
    outputs = arrays(
        make_layer(reuse_length=6, mask_selection_length=4)(ids, seed=SEED)
    )
    ranks = outputs["perm_ranks"]
    first, second = ranks[:, :6], ranks[:, 6:]
    assert (first.max(axis=1) < second.min(axis=1)).all()
    selected = np.zeros_like(ids, bool)
    np.put_along_axis(selected, outputs["mask_positions"], True, 1)
    special = ids == CLS
    ordinary = ~(selected | special)
    assert (first[ordinary[:, :6]] == -1).all()
    known = second[ordinary[:, 6:]]
    assert (known == known[0]).all() and known[0] < second[~ordinary[:, 6:]].min()
    for row in range(4):  # distinct, so that targets don't see themselves
        ordered = ranks[row][~ordinary[row]]
        assert len(set(ordered)) == len(ordered)


@pytest.mark.parametrize("side", ["left", "right", "none"])
def test_padding(side):
    ids = random_ids(50, 30)
    count = np.random.default_rng(2).integers(0, 31, (50, 1))
    inside = np.arange(30) < count
    inside = inside if side == "right" else inside[:, ::-1]
    if side != "none":
        ids = np.where(inside, ids, PAD)
    outputs = arrays(make_layer(mask_selection_length=10)(ids, seed=SEED))
    expected = 10 if side == "none" else np.round(10 * count[:, 0] / 30)
    np.testing.assert_array_equal(outputs["mask_weights"].sum(axis=1), expected)
    real = outputs["mask_weights"] > 0
    assert not (outputs["mask_ids"][real] == PAD).any()
    assert not outputs["mask_positions"][~real].any()


def test_reversed_rows_have_whole_words():
    # Words of two pieces: an even id starts one, the next odd id ends it.
    ids = np.tile([4, 5, 6, 7, 8, 9, 10, 11] * 4, (400, 1))
    starts = [i % 2 == 0 for i in range(100)]
    layer = make_layer(starts_word=starts, mask_selection_length=2, max_words=1)
    both = np.concatenate([ids, ids[:, ::-1]])
    reversed_rows = np.arange(800) >= 400
    outputs = arrays(layer(both, seed=SEED, reversed_rows=reversed_rows))
    low = outputs["mask_positions"][:, 0]
    pairs = np.diff(outputs["mask_positions"])[:, 0] == 1
    # Nearly all rows got their one word as a span, and so whole.
    for part in (pairs[:400], pairs[400:]):
        assert part.mean() > 0.95
    assert (low[pairs] % 2 == 0).all()


def test_seeds_decide():
    ids = random_ids(3, 40)
    layer = make_layer()
    one, other = layer(ids, seed=SEED), layer(ids, seed=SEED)
    graph = tf.function(layer)(tf.constant(ids), seed=tf.constant(SEED))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_array_equal(one[name], graph[name])
    differs = layer(ids, seed=SEED + 1)
    assert (one["perm_ranks"].numpy() != differs["perm_ranks"].numpy()).any()
    by_content = layer(ids)["perm_ranks"].numpy()
    np.testing.assert_array_equal(by_content, layer(ids)["perm_ranks"])
    single = layer(ids[0], seed=SEED)
    assert single["perm_ranks"].shape == (40,)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_extremes(length):
    for ids in (
        np.full((2, length), PAD),
        np.full((2, length), SEP),
        random_ids(1, length),
    ):
        outputs = arrays(make_layer(mask_selection_length=length)(ids, seed=SEED))
        candidates = ~np.isin(ids, [PAD, SEP])
        np.testing.assert_array_equal(outputs["mask_weights"].sum(1), candidates.sum(1))


def test_config_and_errors():
    layer = make_layer(starts_word=[True] * 100, perm_size=4)
    assert PermuteTokens.from_config(layer.get_config()).get_config() == (
        layer.get_config()
    )
    for name in ("mask_selection_length", "perm_size", "max_words", "alpha"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least .* 0"):
            make_layer(**{name: 0})
    with pytest.raises(ValueError, match="vocabulary_size=100 .*Received: 2"):
        make_layer(starts_word=[True, False])
    with pytest.raises(ValueError, match="vocabulary_size=100 .*Received: 0"):
        make_layer(starts_word=[])
    with pytest.raises(ValueError, match=r"`special_token_ids` must be in \[0, 100\)"):
        make_layer(special_token_ids=[300])
    with pytest.raises(ValueError, match="less than the 4 tokens"):
        make_layer(reuse_length=4)(random_ids(1, 4))
    with pytest.raises(ValueError, match="integer dtype"):
        make_layer()(np.ones((1, 4)))
