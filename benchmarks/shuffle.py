"""`python -m benchmarks.shuffle`: an epoch's order at the size of the largest corpora.

Workers go through a whole epoch in batches that they share, each by its own rows of
`permuted` alone. They are killed at random steps, and as many or others go on from the
last backup. Every row must be trained on once, by all that no kill undid.
"""

import resource
import time
from typing import Annotated

import numpy as np
import typer

from keras_bertfam.corpora.permutation import permuted

SEED, EPOCH = 0, 3


def rows_of(worker, workers, first, last, batch_size, count):
    """The rows that a worker takes in the batches from `first` up to `last`."""
    start, stop = (n * batch_size // workers for n in (worker, worker + 1))
    steps = np.arange(first, last, dtype=np.int64)[:, None]
    return permuted(steps * batch_size + np.arange(start, stop), count, SEED, EPOCH)


def lives(steps, kills, most_workers, every, rng):
    """The steps of each life that count: from a backup to the last before a kill."""
    done = 0
    for killed in sorted(rng.integers(1, steps, kills)):
        backup = killed - killed % every
        if backup > done:
            yield done, int(backup), int(rng.integers(1, most_workers + 1))
            done = int(backup)
    yield done, steps, int(rng.integers(1, most_workers + 1))


def simulate(rows, most_workers, kills, batch_size, every=100, seed=0):
    """Counts how often each row is trained on in an epoch with kills.

    Args:
        rows: int. Rows of the corpus; those that fill no batch are left out.
        most_workers: int. Each life has a random number of workers up to it.
        kills: int.
        batch_size: int.
        every: int. Steps between two backups.
        seed: int. Of kills and workers.

    Returns:
        A dict of the rows that were `lost` and `repeated`, of the `rows` that there
        were to train on and those `drawn`, of `lives`, and of how many `processes` all
        lives had.
    """
    rng = np.random.default_rng(seed)
    steps = rows // batch_size
    seen = np.zeros(rows, np.uint8)
    found = {"lives": 0, "processes": 0, "drawn": 0}
    for first, last, workers in lives(steps, kills, most_workers, every, rng):
        for worker in range(workers):
            taken = rows_of(worker, workers, first, last, batch_size, rows).ravel()
            found["drawn"] += taken.size
            seen[taken] = 1
        found["lives"] += 1
        found["processes"] += workers
    trained, expected = int(np.count_nonzero(seen)), steps * batch_size
    counts = {"repeated": found["drawn"] - trained, "lost": expected - trained}
    return {**found, **counts, "rows": expected}


def main(
    rows: Annotated[int, typer.Option(help="Of the corpus.")] = 10**9,
    workers: Annotated[int, typer.Option(help="The most at a time.")] = 1024,
    kills: Annotated[int, typer.Option(help="In the epoch.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Rows in a batch.")] = 8192,
) -> None:
    """Simulate an epoch with kills."""
    began = time.perf_counter()
    rows_of(5, workers, 10**4, 10**4 + 1, batch_size, rows)
    first = time.perf_counter() - began
    print(f"A worker's rows of a batch in mid-epoch: {1000 * first:.2f} ms.")
    began = time.perf_counter()
    found = simulate(rows, workers, kills, batch_size)
    took = time.perf_counter() - began
    print(", ".join(f"{name} {value:,}" for name, value in found.items()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{took:.0f} s, {rows / took / 1e6:.1f} M rows/s; {peak:.0f} MB at the peak, "
        f"{rows / 2**20:.0f} of them for the table of rows that were seen."
    )


if __name__ == "__main__":
    typer.run(main)
