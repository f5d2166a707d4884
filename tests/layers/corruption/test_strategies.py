"""Each strategy against the distribution of the published loop."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import chisquare

from keras_bertfam.layers import (
    GeometricSpans,
    GivenSpans,
    NGrams,
    NGramWindows,
    SmoothedTokens,
    WholeWords,
)
from keras_bertfam.layers.corruption.span_selection import draw_lengths
from tests.layers.corruption.masked_batches import (
    CLS,
    LIKELY,
    PIECE,
    SEP,
    START,
    STARTS,
    VOCABULARY,
    masker,
    numpy_call,
    selected,
)

GEOMETRIC = [0.224058, 0.179246, 0.143397, 0.114718, 0.091774]
GEOMETRIC += [0.073419, 0.058735, 0.046988, 0.037591, 0.030073]


def assert_distribution(outcomes, expected):
    """Chi-square of sets of positions against their probabilities."""
    codes, counts = np.unique(outcomes, axis=0, return_counts=True)
    keys = [frozenset(np.flatnonzero(code)) for code in codes]
    observed = dict(zip(keys, counts, strict=True))
    assert set(observed) <= set(expected)
    assert abs(sum(expected.values()) - 1) < 1e-9
    n = len(outcomes)
    usual = [key for key, p in expected.items() if p * n >= 5]
    rest = n - sum(observed.get(key, 0) for key in usual)
    f_obs = [observed.get(key, 0) for key in usual]
    f_exp = [expected[key] * n for key in usual]
    if n - sum(f_exp) > 5:
        f_obs, f_exp = [*f_obs, rest], [*f_exp, n - sum(f_exp)]
    f_exp = np.array(f_exp) * sum(f_obs) / sum(f_exp)
    assert len(usual) > 4 and chisquare(f_obs, f_exp).pvalue > LIKELY


# Runs [5, 6] and [8..14] of words of 1 to 3 pieces; special tokens between.
ROW = [CLS, *[START, PIECE], SEP]
ROW += [START, START, PIECE, PIECE, START, START, PIECE, START, SEP, 0]
RUNS = [[[1, 2]], [[4], [5, 6, 7], [8], [9, 10], [11]]]
WORDS = [word for run in RUNS for word in run]


def words_from(word, n):
    """The positions of the n words from one on, within its run."""
    run = next(run for run in RUNS if word in run)
    first = run.index(word)
    return [i for w in run[first : first + n] for i in w]


def published_spans(budget, probabilities):
    """Outcomes of SpanBERT's loop with their probabilities."""
    word_of = {i: word for word in WORDS for i in word}
    outcomes, states = defaultdict(float), {frozenset(): 1.0}
    while states:
        following = defaultdict(float)
        for state, p in states.items():
            free = [i for i in word_of if i not in state]
            for anchor, (n, q) in itertools.product(
                free, enumerate(probabilities, start=1)
            ):
                new = set(state)
                for i in words_from(word_of[anchor], n):
                    if len(new) < budget:
                        new.add(i)
                done = outcomes if len(new) == budget else following
                done[frozenset(new)] += p * q / len(free)
        states = following
    return outcomes


def published_ngrams(budget, probabilities):
    """Outcomes of ALBERT's loop with their probabilities."""
    outcomes = defaultdict(float)
    states = {(frozenset(), frozenset(range(len(WORDS)))): 1.0}
    while states:
        following = defaultdict(float)
        for (chosen, left), p in states.items():
            if not left:
                outcomes[chosen] += p
                continue
            for start, (n, q) in itertools.product(
                left, enumerate(probabilities, start=1)
            ):
                while n and len(chosen) + len(words_from(WORDS[start], n)) > budget:
                    n -= 1
                new = frozenset(words_from(WORDS[start], n))
                new = chosen if chosen & new else chosen | new
                following[new, left - {start}] += p * q / len(left)
        states = following
    return outcomes


def published_windows(budget, probabilities, window, words=WORDS):
    """Outcomes of DeBERTa's walk with their probabilities; n-grams end at [SEP]."""
    outcomes = defaultdict(float)
    states = {(0, frozenset()): 1.0}
    while states:
        following = defaultdict(float)
        for (offset, chosen), p in states.items():
            if offset >= len(words):
                masked = []
                for number in sorted(chosen):
                    if len(masked) < budget:
                        masked += words[number]
                outcomes[frozenset(masked)] += p
                continue
            for n, q in enumerate(probabilities, start=1):
                size = min(n * window, len(words) - offset)
                for start in range(offset, offset + size):
                    end = min(start + n, len(words))
                    run = range(start, end if start else min(end, 1))
                    key = max(offset + size, end), chosen | {*run}
                    following[key] += p * q / size
        states = following
    return outcomes


def masked_rows(strategy, budget, batch=20_000, **kwargs):
    ids = np.tile(ROW, (batch, 1))
    # 13 tokens that aren't padding, 10 of which may be selected.
    layer = masker(strategy, mask_selection_rate=budget / 13, **kwargs)
    return selected(numpy_call(layer, ids, seed=[0, 1]), len(ROW))


@pytest.mark.parametrize("budget", [1, 3, 6])
def test_geometric_spans_are_those_of_the_published_loop(budget):
    outcomes = masked_rows(GeometricSpans(p=0.4, max_length=3), budget)
    assert (outcomes.sum(1) == budget).all()
    weights = np.array([1, 0.6, 0.36])
    assert_distribution(outcomes, published_spans(budget, weights / weights.sum()))


@pytest.mark.parametrize("budget, max_n", [(2, 3), (4, 2), (6, 3)])
def test_ngrams_are_those_of_the_published_loop(budget, max_n):
    outcomes = masked_rows(NGrams(max_n), budget)
    assert (outcomes.sum(1) <= budget).all()
    weights = 1 / np.arange(1, max_n + 1)
    assert_distribution(outcomes, published_ngrams(budget, weights / weights.sum()))


@pytest.mark.parametrize(
    "budget, max_n, window", [(1, 3, 6), (4, 3, 2), (6, 2, 2), (4, 3, 1)]
)
def test_windows_are_those_of_the_published_walk(budget, max_n, window):
    outcomes = masked_rows(NGramWindows(max_n, window), budget)
    weights = 1 / np.arange(1, max_n + 1)
    expected = published_windows(budget, weights / weights.sum(), window)
    assert max(map(len, expected)) > budget  # the last word may exceed it
    assert_distribution(outcomes, expected)


def test_windows_of_single_tokens():
    outcomes = masked_rows(NGramWindows(1, 3), 3)
    words = [[i] for word in WORDS for i in word]
    assert_distribution(outcomes, published_windows(3, [1.0], 3, words))


@pytest.mark.parametrize(
    "length, budget, tail", [(22, 3, 2), (64, 10, 2), (128, 19, 12), (512, 77, 48)]
)
def test_the_end_of_a_row_is_never_masked(length, budget, tail):
    layer = masker(NGramWindows(1))
    ids = np.tile([CLS, *[START] * (length - 2), SEP], (400, 1))
    out = numpy_call(layer, ids, seed=[0, 1])
    assert out["mask_positions"].shape[1] == budget
    hits = selected(out, length)[:, 1:-1]
    per_window = hits[:, : 6 * budget].reshape(len(hits), budget, 6).sum(2)
    assert (per_window == 1).all()
    assert hits[:, 6 * budget - 1].any() and not hits[:, len(hits[0]) - tail :].any()
    assert len(hits[0]) - tail == 6 * budget


def test_the_last_word_of_windows_is_cut_where_slots_end():
    ids = np.array([[CLS, *[START, PIECE, PIECE] * 7, SEP]])
    for slots, count in ((None, 6), (4, 4), (3, 3)):
        layer = masker(
            NGramWindows(2, 1), mask_selection_rate=4 / 23, mask_selection_length=slots
        )
        out = numpy_call(layer, ids, seed=[0, 1])
        assert out["mask_weights"].sum() == count
        assert out["mask_weights"].shape[1] == (slots or 8)


def test_longer_ngrams_may_be_favoured():
    outcomes = masked_rows(NGrams(3, favor_shorter=False), 6)
    assert_distribution(outcomes, published_ngrams(6, np.array([2, 3, 6]) / 11))


def test_whole_words_are_unigrams():
    outcomes = masked_rows(WholeWords(), 4)
    assert_distribution(outcomes, published_ngrams(4, [1.0]))


def test_probabilities():
    np.testing.assert_allclose(GeometricSpans().probabilities, GEOMETRIC, atol=1e-6)
    np.testing.assert_allclose(NGrams(3).probabilities, np.array([6, 3, 2]) / 11)
    np.testing.assert_allclose(
        NGrams(5).probabilities, np.array([60, 30, 20, 15, 12]) / 137
    )
    lengths = draw_lengths([50_000], GeometricSpans().probabilities, [0, 2]).numpy()
    counts = np.bincount(lengths, minlength=11)
    assert counts[0] == 0 and lengths.max() == 10
    assert (
        chisquare(counts[1:], np.array(GEOMETRIC) / sum(GEOMETRIC) * 50_000).pvalue
        > LIKELY
    )
    assert abs(lengths.mean() - 3.797) < 0.05


def test_span_starts_are_uniform_and_coverage_is_high_inside():
    """A single span of up to 10 words in 100: it starts anywhere equally often."""
    ids = np.full((20_000, 100), START)
    layer = masker(GeometricSpans(), mask_selection_rate=0.01, mask_selection_length=1)
    hits = selected(numpy_call(layer, ids, seed=[0, 3]), 100)
    assert (hits.sum(1) == 1).all()
    assert chisquare(hits.sum(0)).pvalue > LIKELY
    layer = masker(GeometricSpans(), mask_selection_rate=0.15)
    coverage = selected(numpy_call(layer, ids, seed=[0, 4]), 100).mean(0)
    assert abs(coverage.mean() - 0.15) < 1e-6
    # A token is reached from up to nine tokens before it, the first from none.
    assert coverage[0] < coverage[3] < coverage[20]
    np.testing.assert_allclose(coverage[20:80], coverage[20:80].mean(), atol=0.02)


@pytest.mark.parametrize("n, count", [(10, 2), (100, 15), (510, 77)])
def test_budget_of_spanbert(n, count):
    ids = np.full((3, n + 2), START)
    ids[:, 0], ids[:, -1] = CLS, SEP
    layer = masker(GeometricSpans(), selections_per_row="spanbert")
    out = layer(ids, seed=[0, 5])
    assert out["mask_weights"].numpy().sum(1).tolist() == [count] * 3


# === Given spans ===

SPAN_IDS = [0, 7, 7, 0, 5, 5, 5, 5, 0, 5, 5, 0, 0, 0]  # 5 twice: two spans


def test_given_spans_are_never_split():
    ids = np.tile(ROW, (4000, 1))
    layer = masker(GivenSpans(), mask_selection_rate=5 / 13)
    out = numpy_call(layer, ids, seed=[0, 6], span_ids=np.tile(SPAN_IDS, (4000, 1)))
    hits = selected(out, len(ROW))
    for unit in ([1, 2], [4, 5, 6, 7], [9, 10]):
        assert (hits[:, unit].all(1) | ~hits[:, unit].any(1)).all()
        assert 0.1 < hits[:, unit[0]].mean() < 0.9
    assert hits[:, [8, 11]].any() and (hits.sum(1) <= 5).all()


def test_given_spans_of_words_are_whole_words():
    word = np.cumsum([STARTS[i] or i in (0, CLS, SEP) for i in ROW])
    span_ids = np.where(np.isin(ROW, (0, CLS, SEP)), 0, word)
    ids = np.tile(ROW, (500, 1))
    out = masker(GivenSpans(True), mask_selection_rate=4 / 13)(
        ids, seed=[0, 7], span_ids=np.tile(span_ids, (500, 1))
    )
    words = masker(WholeWords(), mask_selection_rate=4 / 13)(ids, seed=[0, 7])
    np.testing.assert_array_equal(out["token_ids"], words["token_ids"])


def test_only_given_spans():
    layer = masker(GivenSpans(only_spans=True), mask_selection_rate=0.9)
    out = numpy_call(layer, ROW, seed=[0, 8], span_ids=SPAN_IDS)
    hits = selected({k: v[None] for k, v in out.items()}, len(ROW))[0]
    assert np.flatnonzero(hits).tolist() == [1, 2, 4, 5, 6, 7, 9, 10]


def test_spans_alone_are_never_cut():
    ids, span_ids = np.tile(ROW, (500, 1)), np.tile(SPAN_IDS, (500, 1))
    for rate in (2 / 13, 3 / 13):  # a span has four tokens
        layer = masker(GivenSpans(only_spans=True), mask_selection_rate=rate)
        hits = selected(numpy_call(layer, ids, seed=[0, 9], span_ids=span_ids), 13)
        assert not hits[:, 4:8].any() and hits[:, [1, 9]].any()


def test_span_ids_errors():
    with pytest.raises(ValueError, match="`span_ids` must be given.*GivenSpans"):
        masker("given_spans")([ROW])
    with pytest.raises(ValueError, match="`span_ids` must have the shape"):
        masker("given_spans")([ROW], span_ids=[ROW[:-1]])


# === Frequency smoothing ===


def test_smoothed_tokens_are_drawn_by_weight_without_replacement():
    counts = np.ones(VOCABULARY)
    counts[START : START + 4] = [0, 10, 100, 1000]
    strategy = SmoothedTokens(counts)
    weights = strategy._weights[START : START + 4]
    np.testing.assert_allclose(weights, [1, 0.199526, 0.039811, 0.007943], atol=1e-6)
    ids = np.tile(np.arange(START, START + 4), (20_000, 1))
    for smoothing in (0.7, 0.2):
        layer = masker(SmoothedTokens(counts, smoothing), mask_selection_rate=0.5)
        hits = selected(numpy_call(layer, ids, seed=[0, 9]), 4)
        w = np.maximum(counts[START : START + 4], 1) ** -smoothing
        p = w / w.sum()
        expected = {
            frozenset((i, j)): p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j])
            for i, j in itertools.combinations(range(4), 2)
        }
        observed = [hits[:, [*pair]].all(1).sum() for pair in expected]
        total = np.array([*expected.values()]) * len(ids)
        keep = total >= 5
        observed, total = np.array(observed)[keep], total[keep]
        total *= observed.sum() / total.sum()
        assert chisquare(observed, total).pvalue > LIKELY


def test_the_budget_of_a_batch():
    counts = np.full(VOCABULARY, 10_000)
    counts[START + 1] = 1
    ids = np.full((8, 40), START)
    ids[0] = START + 1
    row, batch = (
        masker(SmoothedTokens(counts, budget=budget))(ids, seed=[0, 1])["mask_weights"]
        for budget in ("row", "batch")
    )
    assert row.shape == (8, 6) and batch.shape == (8, 12)
    assert row.numpy().sum(1).tolist() == [6] * 8
    assert batch.numpy().sum() == 48 and batch.numpy()[0].sum() == 12
    assert len(set(batch.numpy().sum(1))) > 2
