import numpy as np
import pytest

from keras_bertfam.corpora.permutation import permuted, uniform_below


@pytest.mark.parametrize("count", [1, 2, 3, 5, 64, 100, 4097])
def test_every_number_once(count):
    found = permuted(np.arange(count), count, 7, 0)
    assert found.dtype == np.int64
    assert sorted(found) == [*range(count)]
    assert permuted(np.arange(count)[::-1], count, 7, 0).tolist() == [*found[::-1]]


def test_passes_and_seeds_have_orders_of_their_own():
    orders = [
        permuted(np.arange(500), 500, seed, epoch)
        for seed in (-1, 0, 1)
        for epoch in range(3)
    ]
    same = [np.mean(one == two) for one in orders for two in orders if one is not two]
    assert max(same) < 0.02


def test_places_are_uniform():
    count, passes = 12, 4000
    table = np.zeros((count, count))
    for epoch in range(passes):
        table[np.arange(count), permuted(np.arange(count), count, 3, epoch)] += 1
    expected = passes / count
    statistic = np.sum((table - expected) ** 2) / expected
    # Chi-square with 11 * 11 degrees of freedom: this is its 99.99th percentile.
    assert statistic < 186


def test_neighbours_come_apart():
    found = permuted(np.arange(10_000), 10_000, 0)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.04
    assert np.mean(np.abs(np.diff(found)) == 1) < 0.001


def test_a_trillion_rows_cost_what_is_asked_for():
    count = 10**12
    found = permuted(np.arange(1000) + count - 1000, count, 5)
    assert len(set(found.tolist())) == 1000
    assert 0 <= found.min() < count / 50 and count * 0.98 < found.max() < count


def test_numbers_below_limits():
    limits = np.array([1, 2, 3] * 1000)
    found = uniform_below(limits, np.arange(3000), 1)
    assert (found >= 0).all() and (found < limits).all()
    assert np.mean(found[2::3]) == pytest.approx(1, abs=0.1)
    assert found.tolist() == uniform_below(limits, np.arange(3000), 1).tolist()
    assert found.tolist() != uniform_below(limits, np.arange(3000), 2).tolist()
