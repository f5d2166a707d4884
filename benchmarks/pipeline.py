"""The input pipeline in tf.data: tokenise, mask, and both from raw text."""

import itertools
import time

import numpy as np

from benchmarks import corpus
from benchmarks.harness import Benchmark, Competitor, repeated

BATCH = 256
LENGTH = 128
MASKED = 20
BATCHES = 200  # so that autotuning's start is a small part
LINES = 8192
CHARACTERS = 2_000_000
LONG_CHARACTERS = 36_000_000  # a pass's beginning takes as long as 3 million
VOCABULARY_SIZE = 30522
SPECIAL_IDS = {"mask": 103, "others": [0, 100, 101, 102]}


def tokenise_keras_hub():
    """KerasHub's tokenizer on batches of lines."""
    return exhaust(text().map(_keras_hub_tokenizer(), _autotune()))


def tokenise_keras_bertfam():
    """Our tokenizer on batches of lines."""
    return exhaust(text().map(_our_tokenizer(), _autotune()))


def mask_keras_hub():
    """KerasHub's masking layer."""
    import keras_hub

    layer = keras_hub.layers.MaskedLMMaskGenerator(
        vocabulary_size=VOCABULARY_SIZE,
        mask_selection_rate=0.15,
        mask_selection_length=MASKED,
        mask_token_id=SPECIAL_IDS["mask"],
        unselectable_token_ids=[*SPECIAL_IDS["others"], SPECIAL_IDS["mask"]],
    )
    return exhaust(_blocks().map(layer, _autotune()))


def mask_keras_bertfam():
    """Our masking layer."""
    import keras_bertfam

    layer = keras_bertfam.layers.MaskTokens(
        vocabulary_size=VOCABULARY_SIZE,
        mask_selection_rate=0.15,
        mask_selection_length=MASKED,
        mask_token_id=SPECIAL_IDS["mask"],
        unselectable_token_ids=SPECIAL_IDS["others"],
    )
    return exhaust(_blocks().map(layer, _autotune()))


def text_keras_hub(long=False):
    """KerasHub's preprocessor: one line a row, cut at the length."""
    import keras_hub

    layer = keras_hub.models.BertMaskedLMPreprocessor(
        _keras_hub_tokenizer(), sequence_length=LENGTH, mask_selection_length=MASKED
    )
    rows = _documents(long).batch(BATCH).map(layer, _autotune())
    return exhaust(rows, _clock(long))


def text_keras_bertfam(long=False):
    """Our preprocessor: documents packed into full rows, nothing cut."""
    import keras_bertfam

    preprocessor = keras_bertfam.tasks.MaskedLMPreprocessor(
        _our_tokenizer(), sequence_length=LENGTH, seed=0
    )
    rows = preprocessor.dataset(_documents(long), batch_size=BATCH)
    return exhaust(rows, _clock(long))


def text_transformers():
    """HF's fast tokenizer and collator: running text cut into full rows."""
    import transformers

    ids = {token: number for number, token in enumerate(corpus.vocabulary())}
    tokenizer = transformers.BertTokenizerFast(vocab=ids)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer)
    texts = _lines_with(LONG_CHARACTERS)

    def run():
        rest, rows = [], []
        for start in range(0, len(texts), 1000):
            for each in tokenizer(texts[start : start + 1000])["input_ids"]:
                rest += each
            full = len(rest) // LENGTH * LENGTH
            rows += (rest[at : at + LENGTH] for at in range(0, full, LENGTH))
            rest = rest[full:]
            while len(rows) >= BATCH:
                collate([{"input_ids": row} for row in rows[:BATCH]])
                del rows[:BATCH]

    return repeated(run, _clock(long=True))


def _our_tokenizer():
    import keras_bertfam

    return keras_bertfam.tokenizers.BertTokenizer(corpus.vocabulary(), lowercase=True)


def _keras_hub_tokenizer():
    import keras_hub

    return keras_hub.tokenizers.BertTokenizer(corpus.vocabulary(), lowercase=True)


def _autotune():
    import tensorflow as tf

    return tf.data.AUTOTUNE


def text():
    """Batches of lines with `CHARACTERS` in all."""
    import tensorflow as tf

    lines = _lines_with(CHARACTERS)
    return tf.data.Dataset.from_tensor_slices(lines).batch(BATCH).cache()


def _lines_with(characters):
    taken, size = [], 0
    for line in corpus.lines():
        taken.append(line[: characters - size])
        size += len(taken[-1])
        if size == characters:
            return taken


def _documents(long):
    import tensorflow as tf

    if long:
        taken = _lines_with(LONG_CHARACTERS)
    else:
        taken = list(itertools.islice(corpus.lines(), LINES))
    return tf.data.Dataset.from_tensor_slices(taken).cache()


def _clock(long):
    """Of all cores together where the text is long: a pipeline runs beside a step."""
    return time.process_time if long else time.perf_counter


def _blocks():
    """Batches of random ids, every row full and between special tokens."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    ids = rng.integers(1000, VOCABULARY_SIZE, (BATCH, LENGTH), dtype="int32")
    ids[:, 0], ids[:, -1] = 101, 102
    return tf.data.Dataset.from_tensors(ids).repeat(BATCHES)


def exhaust(dataset, clock=time.perf_counter):
    """A step that runs through the dataset without leaving the graph."""
    import tensorflow as tf

    @tf.function
    def run():
        return dataset.reduce(tf.constant(0, tf.int64), lambda total, *_: total + 1)

    return repeated(lambda: run().numpy(), clock)


def _pair(stage):
    return tuple(
        Competitor(name, f"pipeline:{stage}_{name}")
        for name in ("keras_hub", "keras_bertfam")
    )


BENCHMARKS = {
    "tokenise": Benchmark(
        f"Tokenise in tf.data ({corpus.SOURCE})",
        _pair("tokenise"),
        amount=CHARACTERS / 1e6,
        unit="MB",
    ),
    "mask": Benchmark(
        f"Mask batches of ({BATCH}, {LENGTH}) in tf.data",
        _pair("mask"),
        amount=BATCH * BATCHES,
        unit="sequences",
    ),
    "text": Benchmark(
        f"Text to masked batches of ({BATCH}, {LENGTH}) ({corpus.SOURCE})",
        _pair("text"),
        amount=LINES,
        unit="lines",
    ),
    "text-long": Benchmark(
        f"Long text to masked batches of ({BATCH}, {LENGTH}) ({corpus.SOURCE}), of CPU",
        (
            *(
                Competitor(each.name, each.build, {"long": True})
                for each in _pair("text")
            ),
            Competitor("transformers", "pipeline:text_transformers"),
        ),
        amount=LONG_CHARACTERS / 1e6,
        unit="MB",
    ),
}
