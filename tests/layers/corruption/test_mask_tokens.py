import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import chisquare

from keras_bertfam.layers.corruption.mask_tokens import MaskTokens
from keras_bertfam.layers.data.base import as_token_ids

CLS, SEP, MASK, VOCABULARY = 101, 102, 103, 1000
SPECIAL = dict(
    vocabulary_size=VOCABULARY, mask_token_id=MASK, unselectable_token_ids=[CLS, SEP]
)
LIKELY = 1e-3  # the seeds are fixed, so that this is no lottery


def rows(batch, length, padding=0, low=200):
    ids = np.random.default_rng(0).integers(low, VOCABULARY, (batch, length))
    ids[:, 0], ids[:, length - padding - 1] = CLS, SEP
    ids[:, length - padding :] = 0
    return ids


def numpy_call(masker, *args, **kwargs):
    return {k: v.numpy() for k, v in masker(*args, **kwargs).items()}


def test_positions_ids_and_weights_agree():
    ids = rows(64, 40, padding=7)
    out = numpy_call(MaskTokens(mask_selection_length=9, **SPECIAL), ids, seed=[1, 2])
    assert {k: (v.shape, v.dtype) for k, v in out.items()} == {
        "token_ids": ((64, 40), np.int32),
        "mask_positions": ((64, 9), np.int32),
        "mask_ids": ((64, 9), np.int32),
        "mask_weights": ((64, 9), np.float32),
    }
    full = out["mask_weights"] == 1
    assert (full.sum(1) == 5).all()  # round(33 * .15)
    assert (np.diff(out["mask_positions"][:, :5]) > 0).all()
    assert not out["mask_positions"][~full].any() and not out["mask_ids"][~full].any()
    originals = np.take_along_axis(ids, out["mask_positions"], 1)
    assert (originals == out["mask_ids"])[full].all()
    assert (out["mask_ids"][full] >= 200).all()
    untouched = np.ones_like(ids, bool)
    np.put_along_axis(untouched, out["mask_positions"][:, :5], False, 1)
    assert (out["token_ids"] == ids)[untouched].all()


@pytest.mark.parametrize(
    "n, count",
    [(3, 1), (7, 1), (10, 2), (20, 3), (30, 4), (50, 8), (64, 10), (128, 19)],
)
def test_bert_count_rounds_half_to_even(n, count):
    for length in (n, 128):
        ids = rows(4, length, padding=length - n)
        out = MaskTokens(mask_selection_length=20, **SPECIAL)(ids, seed=[0, 0])
        assert out["mask_weights"].numpy().sum(1).tolist() == [min(count, n - 2)] * 4


def test_bert_count_of_512_and_its_cap():
    ids = rows(2, 512)
    assert (
        MaskTokens(**SPECIAL)(ids)["mask_weights"].numpy().sum(1).tolist() == [77] * 2
    )
    capped = MaskTokens(mask_selection_length=20, **SPECIAL)(ids)
    assert capped["mask_weights"].numpy().sum(1).tolist() == [20, 20]


def test_fairseq_count_rounds_stochastically():
    masker = MaskTokens(selections_per_row="fairseq", **SPECIAL)
    counts = numpy_call(masker, rows(4000, 10), seed=[0, 3])["mask_weights"].sum(1)
    assert set(counts) == {1, 2}
    ones = (counts == 1).sum()
    assert chisquare([ones, 4000 - ones]).pvalue > LIKELY
    counts = numpy_call(masker, rows(100, 100), seed=[0, 3])["mask_weights"].sum(1)
    assert set(counts) == {15}


def test_selected_positions_are_uniform():
    ids = rows(20_000, 22)
    out = numpy_call(MaskTokens(**SPECIAL), ids, seed=[0, 4])
    seen = np.bincount(out["mask_positions"].ravel(), minlength=22)
    assert out["mask_weights"].all() and out["mask_positions"].shape[1] == 3
    assert seen[0] == seen[21] == 0
    # Three of 20 without replacement: the counts vary less than independent ones.
    statistic = chisquare(seen[1:21]).statistic * 19 / 17
    assert 4 < statistic < 44


def test_pairs_of_positions_are_uniform():
    masker = MaskTokens(
        vocabulary_size=VOCABULARY, mask_token_id=MASK, mask_selection_rate=0.34
    )
    ids = np.full((15_000, 6), 300)
    pairs = numpy_call(masker, ids, seed=[0, 5])["mask_positions"]
    _, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(counts) == 15 and chisquare(counts).pvalue > LIKELY


def test_80_10_10():
    out = numpy_call(MaskTokens(**SPECIAL), rows(5000, 40, low=999), seed=[0, 6])
    new = np.take_along_axis(out["token_ids"], out["mask_positions"], 1).ravel()
    masked, kept = (new == MASK).sum(), (new == 999).sum()
    n = len(new)
    # The uniform draw may hit the mask token and the original, too.
    hit = n * 0.1 / VOCABULARY
    expected = np.array([n * 0.8 + hit, n * 0.1 + hit, n * 0.1 - 2 * hit])
    assert n == 30_000
    assert chisquare([masked, kept, n - masked - kept], expected).pvalue > LIKELY


@pytest.mark.parametrize("drawn_from", [None, [5, 7, 11, 500]])
def test_random_replacements_are_uniform(drawn_from):
    masker = MaskTokens(
        mask_token_rate=0, random_token_rate=1, random_token_ids=drawn_from, **SPECIAL
    )
    out = numpy_call(masker, rows(5000, 40), seed=[0, 7])
    new = np.take_along_axis(out["token_ids"], out["mask_positions"], 1).ravel()
    values = range(VOCABULARY) if drawn_from is None else drawn_from
    counts = np.bincount(new, minlength=VOCABULARY)
    assert counts[list(values)].sum() == len(new)
    assert chisquare(counts[list(values)]).pvalue > LIKELY


def test_rates_may_be_zero():
    keep = MaskTokens(mask_token_rate=0, random_token_rate=0, **SPECIAL)
    ids = rows(8, 40)
    assert (keep(ids)["token_ids"].numpy() == ids).all()


def test_a_rate_of_zero_selects_one_token_by_the_rule_of_bert():
    for count, selected in (("bert", 1), ("fairseq", 0)):
        out = MaskTokens(mask_selection_rate=0, selections_per_row=count, **SPECIAL)(
            rows(8, 40)
        )
        assert out["mask_weights"].numpy().sum(1).tolist() == [selected] * 8


def test_rows_without_anything_to_select():
    ids = np.array([[0, 0, 0, 0], [CLS, SEP, 0, 0], [CLS, 300, SEP, 0]])
    out = numpy_call(MaskTokens(**SPECIAL), ids)
    assert out["mask_weights"].tolist() == [[0], [0], [1]]
    assert out["mask_ids"].tolist() == [[0], [0], [300]]
    empty = numpy_call(MaskTokens(**SPECIAL), np.zeros((0, 4), "int32"))
    assert empty["mask_positions"].shape == (0, 1)


def test_seeds():
    ids = rows(16, 40)
    masker = MaskTokens(**SPECIAL)
    once, again = (
        numpy_call(masker, ids, seed=[1, 1]),
        numpy_call(masker, ids, seed=[1, 1]),
    )
    other = numpy_call(masker, ids, seed=[1, 2])
    assert all((once[k] == again[k]).all() for k in once)
    assert (once["mask_positions"] != other["mask_positions"]).any()
    without = [numpy_call(masker, ids)["token_ids"] for _ in range(2)]
    assert (without[0] == without[1]).all()
    reseeded = MaskTokens(seed=1, **SPECIAL)(ids)["token_ids"].numpy()
    assert (without[0] != reseeded).any()
    changed = ids.copy()
    changed[0, 5] += 1
    moved = numpy_call(masker, changed)["mask_positions"]
    assert (moved != numpy_call(masker, ids)["mask_positions"]).any()


def test_one_sequence_equals_a_batch_of_one():
    ids = rows(1, 40)
    masker = MaskTokens(**SPECIAL)
    one, batch = numpy_call(masker, ids[0], seed=[0, 1]), masker(ids, seed=[0, 1])
    assert all((one[k] == batch[k].numpy()[0]).all() for k in one)


@pytest.mark.slow
@pytest.mark.parametrize("starts_word", [None, np.arange(VOCABULARY) % 3 != 0])
def test_in_a_dataset(starts_word):
    masker = MaskTokens(starts_word=starts_word, **SPECIAL)
    ids = rows(64, 40)
    batches = tf.data.Dataset.from_tensor_slices(ids).batch(16).enumerate()
    seeded = lambda k, x: masker(x, seed=tf.stack([k, k]))  # noqa: E731
    streams = [
        np.concatenate(
            [x["token_ids"] for x in batches.map(seeded, num_parallel_calls=n)]
        )
        for n in (1, 2, tf.data.AUTOTUNE)
    ]
    assert streams[0].dtype == np.int32
    assert (streams[0] == streams[1]).all() and (streams[0] == streams[2]).all()
    eager = masker(ids[16:32], seed=[1, 1])["token_ids"].numpy()
    assert (streams[0][16:32] == eager).all()


# === Whole words ===


def words_of(ids, starts):
    """Word numbers by the definition, -1 outside of words."""
    word, out = -1, []
    for i, token in enumerate(ids):
        special = token in (0, CLS, SEP)
        if not special and (starts[token] or ids[i - 1] in (0, CLS, SEP)):
            word += 1
        out.append(-1 if special else word)
    return np.array(out)


def test_whole_words_are_never_split():
    starts = np.arange(VOCABULARY) % 3 != 0
    ids = rows(500, 40, padding=3)
    ids[:, 20] = SEP
    out = numpy_call(MaskTokens(starts_word=starts, **SPECIAL), ids, seed=[0, 8])
    for row, positions, weights in zip(
        ids, out["mask_positions"], out["mask_weights"], strict=True
    ):
        word = words_of(row, starts)
        selected = positions[weights == 1]
        assert len(selected) <= 6
        assert set(selected) == set(np.flatnonzero(np.isin(word, word[selected])))
    assert out["mask_weights"].sum(1).mean() > 5.7


def test_words_are_chosen_as_by_a_sequential_walk():
    """Distribution over outcomes against the published loop, words 3, 2, 1, 1."""
    starts = np.ones(VOCABULARY, bool)
    starts[300:400] = False
    ids = [500, 300, 301, 500, 302, 500, 500]
    n = 12_000
    masker = MaskTokens(
        vocabulary_size=VOCABULARY,
        mask_token_id=MASK,
        starts_word=starts,
        mask_selection_rate=0.43,  # 3 of 7
    )
    out = numpy_call(masker, np.tile(ids, (n, 1)), seed=[0, 9])
    hits = np.zeros((n, 7), bool)
    np.put_along_axis(hits, out["mask_positions"], True, 1)
    hits[:, 0] = (out["mask_positions"] == 0).any(1) & (
        ((out["mask_positions"] == 0) & (out["mask_weights"] == 1)).any(1)
    )
    observed = np.bincount(hits @ (1 << np.arange(7)), minlength=128)

    def walk(order):
        left, code = 3, 0
        for word in order:
            members = np.flatnonzero(np.array([0, 0, 0, 1, 1, 2, 3]) == word)
            if len(members) <= left:
                left -= len(members)
                code += sum(1 << int(m) for m in members)
        return code

    from itertools import permutations

    codes = [walk(p) for p in permutations(range(4))]
    expected = np.bincount(codes, minlength=128) * n / 24
    assert (observed[expected == 0] == 0).all()
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > LIKELY


# === Configuration and errors ===


def test_config_round_trip():
    masker = MaskTokens(
        starts_word=[True] * VOCABULARY,
        selections_per_row="fairseq",
        random_token_ids=[5],
        **SPECIAL,
    )
    copy = keras.layers.deserialize(keras.layers.serialize(masker))
    assert copy.get_config() == masker.get_config()
    ids = rows(4, 40)
    assert (copy(ids)["token_ids"].numpy() == masker(ids)["token_ids"].numpy()).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            dict(mask_selection_rate=1.5),
            r"`mask_selection_rate` must be .*1.5",
        ),
        (dict(mask_selection_rate=-0.1), "`mask_selection_rate`"),
        (dict(mask_token_rate=0.8, random_token_rate=0.3), "at most 1.*0.8"),
        (dict(mask_token_id=VOCABULARY), r"`mask_token_id`.*1000\).*1000"),
        (dict(unselectable_token_ids=[-1]), "`unselectable_token_ids`"),
        (dict(random_token_ids=[]), "`random_token_ids`"),
        (dict(mask_selection_length=0), "`mask_selection_length`.*0"),
        (dict(selections_per_row="half"), "`selections_per_row`.*half"),
        (dict(starts_word=[True]), "`starts_word`.*1000.*1"),
        (dict(starts_word=[]), "`starts_word`.*1000.*0"),
    ],
)
def test_argument_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        MaskTokens(**{**SPECIAL, **arguments})


def test_input_errors():
    masker = MaskTokens(**SPECIAL)
    with pytest.raises(ValueError, match="integer dtype.*float32"):
        masker(np.zeros((2, 8), "float32"))
    with pytest.raises(ValueError, match="dense"):
        masker(tf.ragged.constant([[1], [2, 3]]))
    with pytest.raises(ValueError, match="shape"):
        masker(np.zeros((2, 8, 1), "int32"))
    unknown = tf.data.Dataset.from_tensors(tf.ragged.constant([[5, 6]]))
    with pytest.raises(ValueError, match="`mask_selection_length` must be given"):
        unknown.map(lambda x: masker(x.to_tensor()))


def test_ids_beyond_32_bits_do_not_wrap_round():
    wide = np.array([[2**32 + 7, -(2**32) - 7, 7]])
    np.testing.assert_array_equal(as_token_ids(wide), [[2**31 - 1, -(2**31), 7]])
