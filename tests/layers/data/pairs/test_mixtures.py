"""What mixtures draw, by their law, and what they write of it."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers.data.pairs.mixtures import MixedTask, TaskMixture

pytestmark = pytest.mark.any_backend


def make(length, **tasks):
    """A mixture of tasks given by examples, templates and rate."""

    def write(name):
        return lambda row, way: (f"{name} {row} é", f"{way}")

    return TaskMixture(
        {
            name: MixedTask(count, templates, write(name), rate)
            for name, (count, templates, rate) in tasks.items()
        },
        length,
    )


def test_tasks_and_templates_are_drawn_by_their_rates():
    stats = pytest.importorskip("scipy.stats")
    mixture = make(20_000, a=(7, 2, 1.0), b=(500, 3, 2.0), c=(3, 1, 5.0), d=(2, 4, 0.0))
    assert mixture.rates == {"a": 1 / 8, "b": 1 / 4, "c": 5 / 8, "d": 0}
    task, template, example = mixture.draw(3, 4)
    counts = np.bincount(task, minlength=4)
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], [2500, 5000, 12_500]).pvalue > 0.01
    assert not template[task == 2].any()
    for number, ways in enumerate((2, 3)):
        found = np.bincount(template[task == number], minlength=ways)
        assert len(found) == ways and stats.chisquare(found).pvalue > 0.01
    # A pair's task says nothing of the next one's.
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (task[:-1], task[1:]), 1)
    assert stats.chi2_contingency(pairs).pvalue > 0.01
    # Which example comes first is any.
    firsts = [mixture.draw(seed)[2][0] for seed in range(3)]
    assert len({*firsts}) > 1


def test_each_example_comes_once_before_any_comes_again():
    mixture = make(1000, a=(7, 2, 1.0), b=(400, 3, 1.0))
    task, _, example = mixture.draw(0)
    of_a, of_b = example[task == 0], example[task == 1]
    orders = [of_a[k : k + 7].tolist() for k in range(0, len(of_a) - 6, 7)]
    assert all(sorted(order) == [*range(7)] for order in orders)
    assert len({tuple(order) for order in orders}) > len(orders) // 2
    assert sorted(of_b[:400]) == [*range(400)]


def test_the_same_seed_draws_the_same():
    mixture = make(50, a=(7, 2, 1.0), b=(9, 3, 1.0))
    first, same, other = (mixture.draw(*seed) for seed in ((-1, 2), (-1, 2), (-1, 3)))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_what_is_written_is_what_is_drawn():
    mixture = make(600, a=(7, 2, 1.0), b=(9, 3, 1.0))
    seed = tf.constant([5, -6], tf.int64)
    dataset = mixture.pairs(seed)
    assert len(mixture) == mixture.cardinality() == 600
    found = [
        (pair["encoder_text"].decode(), pair["decoder_text"].decode())
        for pair in dataset.as_numpy_iterator()
    ]
    task, template, example = mixture.draw(5, -6)
    assert found == [
        (f"{'ab'[k]} {row} é", str(way))
        for k, way, row in zip(task, template, example, strict=True)
    ]
