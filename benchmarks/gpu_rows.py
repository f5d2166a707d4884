"""Batches of sequences of uneven length, packed into rows and one a row."""

import numpy as np

from benchmarks import laws, training

MASK_RATE = 0.15


def sequences(size, seed=0):
    """Lengths of sequences that fill a batch's rows, and the row of each.

    They are log-normal, as paragraphs are: half are shorter than an eighth of a row.
    The longest goes first, into the fullest row that has room; the batch ends with the
    first for which there is none.

    Returns:
        Two int arrays of one number per sequence.
    """
    rng = np.random.default_rng(seed)
    longest, places = size.sequence_length, size.batch_size * size.sequence_length
    drawn = np.exp(rng.normal(np.log(longest / 8), 1, places)).astype(int)
    drawn = drawn.clip(8, longest)
    drawn = drawn[: np.searchsorted(drawn.cumsum(), places)]
    free, kept, rows = np.full(size.batch_size, longest), [], []
    for length in np.sort(drawn)[::-1]:
        fits = np.flatnonzero(free >= length)
        if len(fits):
            row = fits[free[fits].argmin()]
            free[row] -= length
            kept.append(length)
            rows.append(row)
    return np.array(kept), np.array(rows)


def packed_batch(size):
    """A batch of rows that sequences share.

    Returns:
        Dict of `token_ids`, `sequence_ids` (from 1, 0 for padding), `position_ids`
        within sequences, `padding_mask`, all int32 `(rows, length)`; `positions`,
        `labels` int32 and `weights` float32 `(rows, masked)`.
    """
    rng = np.random.default_rng(1)
    shape = size.batch_size, size.sequence_length
    sequence_ids, position_ids = np.zeros(shape, "int32"), np.zeros(shape, "int32")
    filled = np.zeros(size.batch_size, int)
    for number, (length, row) in enumerate(zip(*sequences(size), strict=True), 1):
        place = slice(filled[row], filled[row] + length)
        sequence_ids[row, place] = number
        position_ids[row, place] = np.arange(length)
        filled[row] += length
    ids = rng.integers(training.FIRST_WORD_ID, size.vocabulary_size, shape)
    ids = (ids * (sequence_ids > 0)).astype("int32")
    positions = np.zeros((size.batch_size, size.masked), "int32")
    weights = np.zeros(positions.shape, "float32")
    for row, used in enumerate(filled):
        count = min(size.masked, int(MASK_RATE * used))
        positions[row, :count] = np.sort(rng.choice(used, count, replace=False))
        weights[row, :count] = 1
    labels = np.take_along_axis(ids, positions, axis=1)
    rows, slots = np.nonzero(weights)
    ids[rows, positions[rows, slots]] = training.MASK_ID
    return {
        "token_ids": ids,
        "sequence_ids": sequence_ids,
        "position_ids": position_ids,
        "padding_mask": (sequence_ids > 0).astype("int32"),
        "positions": positions,
        "labels": labels,
        "weights": weights,
    }


def padded_batches(size):
    """The same sequences with the same masks, one a row, in batches of as many rows.

    Returns:
        List of dicts of `token_ids`, `padding_mask` and `labels`, -100 where nothing
        is masked, int32 `(rows, longest of the batch)`.
    """
    packed = packed_batch(size)
    targets = np.full(packed["token_ids"].shape, -100, "int32")
    rows, slots = np.nonzero(packed["weights"])
    targets[rows, packed["positions"][rows, slots]] = packed["labels"][rows, slots]
    numbers = packed["sequence_ids"]
    order = np.random.default_rng(2).permutation(numbers.max()) + 1
    chosen = [numbers == number for number in order]
    batches = []
    for start in range(0, len(chosen), size.batch_size):
        part = chosen[start : start + size.batch_size]
        shape = len(part), max(mask.sum() for mask in part)
        batch = {
            "token_ids": np.zeros(shape, "int32"),
            "padding_mask": np.zeros(shape, "int32"),
            "labels": np.full(shape, -100, "int32"),
        }
        for row, mask in enumerate(part):
            length = mask.sum()
            batch["token_ids"][row, :length] = packed["token_ids"][mask]
            batch["padding_mask"][row, :length] = 1
            batch["labels"][row, :length] = targets[mask]
        batches.append(batch)
    return batches


def useful(size):
    """Useful tokens of a step, and the operations that these need."""
    lengths, _ = sequences(size)
    tokens = int(lengths.sum())
    seen = float((lengths**2).sum() / tokens)
    masked = float(packed_batch(size)["weights"].sum()) / tokens
    return tokens, tokens * laws.flops_per_token(size, seen, masked)
