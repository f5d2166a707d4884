"""Prepared corpora to masked batches: how fast, how soon, and in how much memory."""

import os
import sys
import tempfile
import time

import numpy as np

from benchmarks.harness import Benchmark, Competitor, repeated

BATCH = 256
VOCABULARY_SIZE = 30522
TOKENS = 4_000_000
BATCHES = 60
DOCUMENT = 600  # tokens, of sentences of 25


def write(folder, tokens, shards=8):
    """Writes a corpus of random ids."""
    from keras_bertfam.corpora.manifest import Manifest, describe_tokenizer
    from keras_bertfam.corpora.shards import write_shard

    rng = np.random.default_rng(0)
    lengths = np.full(DOCUMENT // 25, 25)

    def documents():
        for _ in range(tokens // DOCUMENT // shards):
            yield rng.integers(1000, VOCABULARY_SIZE, DOCUMENT, "uint16"), lengths

    written = [write_shard(folder, n, shards, documents()) for n in range(shards)]
    Manifest(describe_tokenizer(tokenizer()), "uint16", written).write(folder)


def tokenizer():
    """BERT's kind, with as many words as BERT's own."""
    import keras_bertfam

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += [f"w{number}" for number in range(VOCABULARY_SIZE - len(words))]
    return keras_bertfam.tokenizers.BertTokenizer(words)


def preprocessor(length):
    """That of masked language modelling, with its defaults."""
    import keras_bertfam

    return keras_bertfam.tasks.MaskedLMPreprocessor(tokenizer(), length, seed=0)


def cached(length):
    """Rows that lie in memory, masked."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    ids = rng.integers(1000, VOCABULARY_SIZE, (4096, length), "int32")
    ids[:, 0], ids[:, -1] = 2, 3
    rows = tf.data.Dataset.from_tensor_slices(
        {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}
    )
    return _masked(preprocessor(length).dataset(rows.repeat(), BATCH))


def from_shards(length, scale=1):
    """Rows that are read from shards in random order, masked."""
    from keras_bertfam.layers import read_tokens

    folder = tempfile.TemporaryDirectory()
    write(folder.name, TOKENS * scale)
    data = preprocessor(length).dataset(read_tokens(folder.name), BATCH)
    run = _masked(data.repeat())
    run.folder = folder  # as long as this is used
    return run


def _masked(dataset):
    batches = iter(dataset)

    def step():
        for _ in range(BATCHES):
            next(batches)

    return repeated(step)


def first_batch(shards=100_000):
    """Seconds to the first batch of a corpus of many shards, with its index there."""
    from keras_bertfam.corpora.manifest import Manifest
    from keras_bertfam.layers import read_tokens

    with tempfile.TemporaryDirectory() as folder:
        write(folder, 4 * DOCUMENT, shards=1)
        manifest = Manifest.read(folder)
        [shard] = manifest.shards
        many = []
        for number in range(shards):
            name = f"tokens-{number:05}-of-{shards:05}.{shard.file.partition('.')[2]}"
            many.append(shard._replace(file=name))
            for old, new in (
                (shard.file, name),
                (shard.lengths_file, many[-1].lengths_file),
            ):
                os.symlink(old, os.path.join(folder, new))
        Manifest(manifest.tokenizer, manifest.dtype, many).write(folder)
        made = preprocessor(128)
        start = time.perf_counter()
        made.dataset(read_tokens(folder), BATCH)
        print(f"index of {shards} shards made: {time.perf_counter() - start:.1f} s")
        made = preprocessor(128)
        start = time.perf_counter()
        next(iter(made.dataset(read_tokens(folder), BATCH)))
        print(f"first batch: {time.perf_counter() - start:.2f} s")


BENCHMARKS = {
    f"prepared-{length}": Benchmark(
        f"Masked batches of ({BATCH}, {length})",
        (
            Competitor("rows in memory", "prepared:cached", {"length": length}),
            Competitor("shards", "prepared:from_shards", {"length": length}),
            Competitor(
                "shards, 10 times the text",
                "prepared:from_shards",
                {"length": length, "scale": 10},
            ),
        ),
        amount=BATCH * BATCHES * length,
        unit="tokens",
    )
    for length in (128, 512)
}


if __name__ == "__main__":
    first_batch(*map(int, sys.argv[1:]))
