"""Permutations of any size, computed number by number without a table."""

import numpy as np

_ROUNDS = 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def permuted(numbers: np.ndarray, count: int, *seed: int) -> np.ndarray:
    """Apply a random permutation of `range(count)` to numbers.

    For example, `permuted(np.arange(5), 5, 1)` is `[2, 4, 3, 1, 0]`.

    A Feistel network permutes the numbers below a power of four that is at least
    `count`. A result of `count` or more goes through the network again until it is
    smaller. Memory and time depend only on the size of `numbers`.

    Args:
        numbers: int array, each in [0, `count`).
        count: int.
        *seed: ints. They choose the permutation.

    Returns:
        An int64 array of the shape of `numbers`. Different numbers give different
        results.

    Example:

    ```python
    import numpy as np
    from keras_bertfam.corpora.permutation import permuted

    epoch, batch = 3, 7
    rows = permuted(np.arange(64) + 64 * batch, 10**12, epoch)
    ```

    Reference: [Black and Rogaway, 2002](https://doi.org/10.1007/3-540-45760-7_9).
    """
    half = np.uint64(max(1, -(-max(count - 1, 1).bit_length() // 2)))
    entropy = [int(number) % 2**64 for number in (*seed, count)]
    keys = np.random.SeedSequence(entropy).generate_state(_ROUNDS, np.uint64)
    numbers = np.asarray(numbers)
    values = _through(numbers.astype(np.uint64).ravel(), half, keys)
    while (outside := np.flatnonzero(values >= count)).size:
        values[outside] = _through(values[outside], half, keys)
    return values.astype(np.int64).reshape(numbers.shape)


def _through(values, half, keys):
    """Apply a Feistel network to numbers of `2 * half` bits."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (hashed(right + key) & mask)
    return (left << half) | right


def hashed(values: np.ndarray) -> np.ndarray:
    """Hash a uint64 array by SplitMix64; the results look random."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FACTORS[0]
    values = (values ^ (values >> np.uint64(27))) * _FACTORS[1]
    return values ^ (values >> np.uint64(31))


def uniform_below(
    limits: np.ndarray | int, numbers: np.ndarray, *seed: int
) -> np.ndarray:
    """Compute ints in [0, `limits`) that look random, from numbers and a seed.

    For example, `uniform_below(10, np.arange(4), 0)` is `[7, 5, 6, 9]`.

    Args:
        limits: int array of the shape of `numbers`, or int. At least 1.
        numbers: int array.
        *seed: ints.
    """
    entropy = [int(number) % 2**64 for number in seed]
    key = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    bits = hashed(hashed(np.asarray(numbers).astype(np.uint64) + key))
    share = (bits >> np.uint64(11)).astype(np.float64) / 2**53
    return np.minimum((share * limits).astype(np.int64), np.asarray(limits) - 1)
