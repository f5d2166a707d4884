import numpy as np
import pytest

from keras_bertfam.corpora.row_kinds import Sharing, share_rows


def one_by_one(costs, room, most):
    """What rows have left if each sequence goes where it fits best, longest first."""
    left, counts = [], []
    for cost in sorted(costs, reverse=True):
        fitting = [
            row for row, x in enumerate(left) if x >= cost and counts[row] < most
        ]
        if not fitting:
            left.append(room)
            counts.append(0)
            fitting = [len(left) - 1]
        row = min(fitting, key=lambda row: left[row])
        left[row] -= cost
        counts[row] += 1
    return sorted(left)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("room, most", [(20, None), (20, 3), (128, None), (64, 4)])
def test_sequences_go_where_they_fit_best(room, most, seed):
    rng = np.random.default_rng(seed)
    costs = rng.integers(1, rng.integers(3, room + 1), rng.integers(1, 300))
    found = share_rows(costs, room, most)
    assert sorted(found.sequences) == [*range(len(costs))]
    rows = np.split(found.sequences, found.ends[:-1])
    sums = np.array([costs[row].sum() for row in rows])
    assert sorted(room - sums) == one_by_one(costs, room, most or len(costs))
    assert max(map(len, rows)) <= (most or len(costs))
    assert all((np.diff(row) > 0).all() for row in rows)
    assert (np.diff([row[0] for row in rows]) > 0).all()


def test_rows_of_sentences_are_full():
    rng = np.random.default_rng(0)
    costs = np.minimum(3 + rng.gamma(2, 8, 200_000).astype(int), 128)
    found = share_rows(costs, 128)
    assert costs.sum() > 0.995 * 128 * len(found.ends)


def test_nothing_makes_no_row():
    found = share_rows(np.zeros(0, int), 16)
    assert len(found.sequences) == len(found.ends) == 0


def test_costs_by_tokens_and_sentences():
    sharing = Sharing(9, (2, 3, 4), (5, 6, 7))
    lengths, single = np.array([0, 2, 9, 1]), np.array([False, False, False, True])
    assert sharing.costs_of(lengths, single).tolist() == [2, 4, 4, 6]
    assert Sharing(9, (2, 3, 4)).costs_of(lengths, single).tolist() == [2, 4, 4, 3]
    names = {Sharing(9, (2, 3), most=most).name for most in (None, 2, 3)}
    assert len({*names, sharing.name, Sharing(8, (2, 3)).name}) == 5
