"""T5's random spans: in tf.data, and in NumPy as collators do it, row by row."""

import numpy as np

from benchmarks import corpus
from benchmarks.harness import Benchmark, Competitor, repeated
from benchmarks.pipeline import BATCHES, CHARACTERS, exhaust, text

BATCH, TEXT, INPUTS = 256, 568, 512
NOISE, SPANS = 85, 28  # of a row: 15 %, in spans of 3
VOCABULARY_SIZE, END, SENTINELS = 32100, 1, 100


def spans_numpy(shuffled=False):
    """A collator in NumPy: a mask for each row, then a batch at once.

    Args:
        shuffled: bool. Whether it works as the script of `transformers` that was
            for T5: rows come as lists, and borders are shuffled marks.
    """
    rng = np.random.default_rng(0)
    batches = [_rows(seed) for seed in range(4)]
    if shuffled:
        batches = [rows.tolist() for rows in batches]
    parts = _shuffled_parts if shuffled else _parts

    def run():
        for number in range(BATCHES):
            rows = np.array(batches[number % len(batches)])
            _collate(rows, parts, rng)

    return repeated(run)


def spans_keras_bertfam():
    """Our layer."""
    import tensorflow as tf

    import keras_bertfam

    layer = keras_bertfam.layers.DenoiseTokens(
        "random_spans",
        INPUTS,
        vocabulary_size=VOCABULARY_SIZE,
        end_token_id=END,
        sentinel_ids=range(VOCABULARY_SIZE - 1, VOCABULARY_SIZE - 1 - SENTINELS, -1),
    )
    rows = tf.data.Dataset.from_tensor_slices(
        np.concatenate([_rows(seed) for seed in range(4)])
    )
    batches = rows.batch(BATCH).cache().repeat().take(BATCHES).enumerate()

    def corrupt(number, ids):
        return layer(ids, seed=tf.stack([0, number]))

    return exhaust(batches.map(corrupt, tf.data.AUTOTUNE))


def text_keras_bertfam():
    """Our preprocessor: documents as a stream, cut into rows that fill the inputs."""
    import keras_bertfam

    documents = text().unbatch()
    tokenizer = keras_bertfam.tokenizers.train_sentence_piece(
        documents, 8000, family="t5", sentinels=SENTINELS
    )
    preprocessor = keras_bertfam.tasks.DenoisingPreprocessor(tokenizer, INPUTS)
    return exhaust(preprocessor.dataset(documents, 32, training=False))


def _rows(seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(100, VOCABULARY_SIZE - SENTINELS, (BATCH, TEXT))
    return ids.astype("int32")


def _parts(total, rng):
    """Sizes of random parts of a number, none of them empty."""
    borders = 1 + np.sort(rng.permutation(total - 1)[: SPANS - 1])
    return np.diff(borders, prepend=0, append=total)


def _shuffled_parts(total, rng):
    """The same, by marks of where parts begin."""
    begins = np.arange(total - 1) < SPANS - 1
    rng.shuffle(begins)
    part = np.cumsum(np.pad(begins, [[1, 0]]))
    return np.unique(part, return_counts=True)[1]


def _mask(parts, rng):
    """Where the noise of a row is."""
    sizes = np.stack([parts(TEXT - NOISE, rng), parts(NOISE, rng)], 1)
    return np.repeat(np.tile([False, True], SPANS), sizes.reshape(-1))


def _collate(ids, parts, rng):
    """Inputs, targets and the decoder's inputs of a batch."""
    noise = np.stack([_mask(parts, rng) for _ in ids])
    inputs, targets = (_replaced(ids, mask) for mask in (noise, ~noise))
    decoder = np.concatenate([np.zeros_like(targets[:, :1]), targets[:, :-1]], 1)
    return inputs, targets, decoder


def _replaced(ids, mask):
    """Rows with a sentinel for each run of a mask, all of one length, and their end."""
    starts = mask & ~np.roll(mask, 1, 1)
    starts[:, 0] = mask[:, 0]
    sentinels = VOCABULARY_SIZE - np.cumsum(starts, 1)
    kept = np.where(starts, sentinels, ids)[~mask | starts]
    rows = kept.reshape(len(ids), -1).astype("int32")
    return np.concatenate([rows, np.full_like(rows[:, :1], END)], 1)


BENCHMARKS = {
    "spans": Benchmark(
        f"Random spans of batches of ({BATCH}, {TEXT})",
        (
            Competitor("numpy", "denoising:spans_numpy"),
            Competitor(
                "numpy, as transformers' script",
                "denoising:spans_numpy",
                {"shuffled": True},
            ),
            Competitor("keras_bertfam", "denoising:spans_keras_bertfam"),
        ),
        amount=BATCH * BATCHES * TEXT / 1e6,
        unit="M tokens",
    ),
    "text-spans": Benchmark(
        f"Text to random spans in rows of {INPUTS} ({corpus.SOURCE})",
        (Competitor("keras_bertfam", "denoising:text_keras_bertfam"),),
        amount=CHARACTERS / 1e6,
        unit="MB",
    ),
}
