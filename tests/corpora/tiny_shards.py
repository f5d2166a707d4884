"""Documents of random ids, as a shard has them."""

import numpy as np


def documents(counts=(1, 5, 200), longest=60):
    """Ids and lengths of sentences of some documents; a sentence fills no record."""
    generator = np.random.default_rng(0)
    for count in counts:
        lengths = generator.integers(1, longest, count)
        if count == 5:
            lengths[2] = 3000
        yield generator.integers(0, 30000, lengths.sum()).astype("uint16"), lengths
