"""Which tokens are noise: each sampler against its law."""

import collections
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import chisquare

from keras_bertfam.layers.corruption import noise_masks, noised_texts
from tests.layers.corruption.masked_batches import LIKELY

SEED = tf.constant([3, 7], tf.int64)
COUNT = 12_000


def lengths(length, count=COUNT):
    return tf.fill([count], length)


def patterns(mask):
    return collections.Counter(map(tuple, mask.to_tensor().numpy().astype(int)))


def random_spans_noise(sizes, *arguments):
    begin, end = (x[:, :, None] for x in noise_masks.random_spans(sizes, *arguments))
    place = tf.range(tf.reduce_max(tf.concat([sizes, [0]], 0)))
    inside = tf.reduce_any((begin <= place) & (place < end), 1)
    return tf.RaggedTensor.from_tensor(inside, lengths=sizes)


def check_law(observed, expected):
    """Compare counts with probabilities: no other outcome, and likely ones."""
    assert set(observed) <= set(expected)
    assert math.isclose(sum(expected.values()), 1, abs_tol=1e-6)
    total = sum(observed.values())
    f_exp = np.array([p * total for p in expected.values()])
    f_obs = np.array([observed[key] for key in expected])
    rare = f_exp < 5
    if rare.any():
        f_exp = np.append(f_exp[~rare], f_exp[rare].sum())
        f_obs = np.append(f_obs[~rare], f_obs[rare].sum())
    assert len(f_exp) > 1 and chisquare(f_obs, f_exp).pvalue > LIKELY


def uniform(outcomes):
    outcomes = list(outcomes)
    return {outcome: 1 / len(outcomes) for outcome in outcomes}


def marked(length, *places):
    return tuple(int(k in places) for k in range(length))


def test_independent_noise():
    law = {
        outcome: math.prod(0.3 if x else 0.7 for x in outcome)
        for outcome in itertools.product((0, 1), repeat=4)
    }
    check_law(patterns(noise_masks.iid_noise(lengths(4), 0.3, SEED)), law)


def test_random_spans_are_all_partitions_alike():
    """4 tokens of noise in 2 spans among 5 others: 3 times 4 partitions."""
    mask = random_spans_noise(lengths(9), 0.45, 2.0, SEED)
    law = []
    for noise, rest in itertools.product((1, 2, 3), (1, 2, 3, 4)):
        parts = [(0, rest), (1, noise), (0, 5 - rest), (1, 4 - noise)]
        law.append(tuple(kind for kind, size in parts for _ in range(size)))
    check_law(patterns(mask), uniform(law))


def test_texts_of_all_lengths_have_their_spans():
    sizes = tf.range(200)
    mask = random_spans_noise(sizes, 0.15, 3.0, SEED)
    starts = mask.with_flat_values(noised_texts.run_starts(mask))
    for row, begins in zip(mask.to_list(), starts.to_list(), strict=True):
        length = len(row)
        noise = max(min(max(round(length * 0.15), 1), length - 1), 0)
        spans = min(max(round(noise / 3), 1), noise)
        assert (sum(row), sum(begins)) == (noise, spans)
        assert length < 2 or (not row[0] and row[-1])
    assert mask.row_lengths().numpy().tolist() == [*range(200)]


def test_as_many_spans_as_fit():
    mask = random_spans_noise(lengths(10, 50), 0.8, 1.0, SEED)
    starts = mask.with_flat_values(noised_texts.run_starts(mask))
    assert (tf.reduce_sum(tf.cast(mask, tf.int32), 1).numpy() == 8).all()
    assert (tf.reduce_sum(tf.cast(starts, tf.int32), 1).numpy() == 2).all()


def test_prefixes():
    law = uniform(marked(6, *range(kept, 6)) for kept in range(1, 6))
    check_law(patterns(noise_masks.prefix_noise(lengths(6), None, SEED)), law)
    fixed = patterns(noise_masks.prefix_noise(lengths(8, 9), 0.25, SEED))
    assert fixed == {marked(8, 6, 7): 9}


def test_prefixes_of_ul2():
    """A quarter of 12 tokens is 3: all of 1 to 5 are equally likely."""
    law = uniform(marked(12, *range(12 - noise, 12)) for noise in range(1, 6))
    mask = noise_masks.prefix_noise(lengths(12), None, SEED, mean_rate=0.25)
    check_law(patterns(mask), law)
    short = noise_masks.prefix_noise(tf.range(5), None, SEED, mean_rate=0.25)
    assert short.to_list() == [
        [False] * (n - 1) + [True] * (n > 1) + [False] * (n == 1) for n in range(5)
    ]


def test_fragments():
    law = uniform(marked(7, *range(k, k + 4)) for k in range(4))
    check_law(patterns(noise_masks.fragment_noise(lengths(7), 0.5, SEED)), law)


def test_tokens_of_a_budget():
    law = uniform(marked(5, *pair) for pair in itertools.combinations(range(5), 2))
    check_law(patterns(noise_masks.budget_noise(lengths(5), 0.3, SEED)), law)


def poisson(number):
    return math.exp(-3) * 3**number / math.factorial(number)


def test_lengths_are_cut_to_the_budget():
    sizes = tf.constant([[2, 0, 5, 4], [0, 3, 1, 1], [1, 1, 1, 9]])
    cut = noise_masks.cut_to_budgets(sizes, tf.constant([3, 3, 0]))
    assert cut.numpy().tolist() == [[2, 0, 1, -1], [0, 3, -1, -1], [-1] * 4]
    bounds = np.array(noise_masks.poisson_bounds(3.0))
    law = [poisson(k) for k in range(9)]
    np.testing.assert_allclose(np.diff(bounds, prepend=0)[:9], law, atol=1e-6)


def test_poisson_spans_where_and_how_long():
    """A budget of 2 of 4 tokens: a span of 2, or 2 of 1, which may touch."""
    noise, starts, _ = noise_masks.poisson_spans(lengths(4), 0.5, 3.0, SEED)
    both = tf.concat([noise, starts], 1)
    single, double = poisson(1) / (1 - poisson(0)), 1 - poisson(1) / (1 - poisson(0))
    law = collections.Counter()
    for k in range(4):
        law[marked(4, k, min(k + 1, 3)) + marked(4, k)] += double / 4
    for pair in itertools.combinations(range(4), 2):
        law[marked(4, *pair) * 2] += single / 6
    check_law(patterns(both), law)


def test_poisson_insertions():
    """Spans of no token, drawn before those of 2 are reached."""
    *_, insertions = noise_masks.poisson_spans(lengths(4), 0.5, 3.0, SEED)
    zero, one = poisson(0), poisson(1)
    law = {
        k: zero**k * ((1 - zero - one) + (k + 1) * one * (1 - zero)) for k in range(9)
    }
    check_law(collections.Counter(insertions.numpy().tolist()), law)


def test_spans_that_run_into_each_other_are_one_mask():
    noise, starts, _ = noise_masks.poisson_spans(lengths(40, 300), 0.9, 6.0, SEED)
    first = noised_texts.run_starts(noise)
    assert (~first | starts.flat_values).numpy().all()
    assert (~starts.flat_values | noise.flat_values).numpy().all()
    counts = tf.reduce_sum(tf.cast(noise, tf.int32), 1).numpy()
    assert (counts <= 36).all() and counts.mean() > 15


@pytest.mark.parametrize(
    "name", ["shuffle_tokens", "shuffle_sentences", "rotate", "insert_masks"]
)
def test_orders(name):
    text, law = (5, 6, 7, 8), None
    arguments = {}
    if name == "shuffle_tokens":
        law = uniform(itertools.permutations(text))
    elif name == "shuffle_sentences":
        text, arguments = (5, 9, 6, 9, 9, 7), {"end_ids": [9]}
        sentences = itertools.permutations([(5, 9), (6, 9, 9), (7,)])
        law = uniform(sum(order, ()) for order in sentences)
    elif name == "rotate":
        law = uniform(text[k:] + text[:k] for k in range(4))
    else:
        arguments = {"counts": lengths(2), "mask_token_id": 3}
        law = []
        for pair in itertools.combinations(range(6), 2):
            left = iter(text)
            law.append(tuple(3 if k in pair else next(left) for k in range(6)))
        law = uniform(law)
    tokens = tf.RaggedTensor.from_tensor([text] * COUNT)
    check_law(
        patterns(getattr(noised_texts, name)(tokens, seed=SEED, **arguments)), law
    )


def test_empty_batches_and_texts():
    for sizes in ([], [0], [0, 0, 1]):
        counts = tf.constant(sizes, tf.int32)
        tokens = noise_masks.as_rows(tf.range(sum(sizes)) + 5, counts)
        for mask in (
            noise_masks.iid_noise(counts, 0.3, SEED),
            random_spans_noise(counts, 0.3, 3.0, SEED),
            noise_masks.prefix_noise(counts, None, SEED),
            noise_masks.prefix_noise(counts, 0.5, SEED),
            noise_masks.fragment_noise(counts, 0.5, SEED),
            noise_masks.budget_noise(counts, 0.5, SEED),
            noise_masks.poisson_spans(counts, 0.3, 3.0, SEED)[0],
            noised_texts.shuffle_tokens(tokens, SEED),
            noised_texts.shuffle_sentences(tokens, [5], SEED),
            noised_texts.rotate(tokens, SEED),
            noised_texts.insert_masks(tokens, tf.zeros_like(counts), 3, SEED),
        ):
            assert mask.row_lengths().numpy().tolist() == sizes
