"""Fine-tuning on SST-2 and MRPC: a part of an epoch, from strings to updated weights.

All competitors have MiniLM's architecture (6 x 384), batches of 32 rows, AdamW and the
same examples in random order. A packed row holds nine sentences of SST-2 or two pairs
of MRPC, so that an epoch has as many times fewer steps. Needs the folder of real data.
"""

import csv
import dataclasses
import itertools
import time

from benchmarks.corpus import DATA
from benchmarks.harness import Benchmark, Competitor

EXAMPLES = 1024
# File, labels' column, texts' columns.
_FILES = {
    "sst2": ("train.tsv", "label", ("sentence",)),
    "mrpc": ("msr_paraphrase_train.txt", "Quality", ("#1 String", "#2 String")),
}
PACKED_EXAMPLES = {"sst2": 4096, "mrpc": 1024}  # 13 batches of rows
BATCH = 32
LENGTH = 128
LEARNING_RATE = 5e-5
ARCHITECTURE = {
    "vocabulary_size": 30522,
    "num_layers": 6,
    "num_heads": 12,
    "hidden_dim": 384,
    "intermediate_dim": 1536,
    "max_sequence_length": 512,
    "dropout": 0.1,
}


def keras_bertfam(task="sst2", count=EXAMPLES, jit_compile="auto", packed=False):
    """Our classifier on batches of like length, or of packed rows.

    Args:
        task: `"sst2"` or `"mrpc"`.
        count: int. How many examples.
        jit_compile: see `keras.Model.compile`. On CPUs Keras chooses `False` with
            TensorFlow; `True` compiles once for each length in the data.
        packed: see `keras_bertfam.tasks.TextClassifierPreprocessor`.
    """
    import keras_bertfam

    tokenizer = keras_bertfam.tokenizers.BertTokenizer(
        vocabulary_file(), lowercase=True
    )
    preprocessor = keras_bertfam.tasks.TextClassifierPreprocessor(
        tokenizer, LENGTH, packed=packed
    )
    backbone = keras_bertfam.models.BertBackbone(**ARCHITECTURE)
    model = keras_bertfam.tasks.TextClassifier(backbone, 2, preprocessor)
    optimizer = keras_bertfam.optimizers.AdamW(LEARNING_RATE)
    model.compile(optimizer, jit_compile=jit_compile)
    return _fit(model, preprocessor.dataset(_examples(task, count), BATCH))


def keras_hub():
    """KerasHub's classifier, whose rows are all of full length."""
    import keras
    import keras_hub
    import tensorflow as tf

    tokenizer = keras_hub.tokenizers.BertTokenizer(vocabulary_file(), lowercase=True)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        tokenizer, sequence_length=LENGTH
    )
    model = keras_hub.models.BertTextClassifier(
        keras_hub.models.BertBackbone(**ARCHITECTURE), 2, preprocessor
    )
    model.compile(
        keras.optimizers.AdamW(LEARNING_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    data = tf.data.Dataset.from_tensor_slices(_examples("sst2", EXAMPLES))
    return _fit(model, data.shuffle(EXAMPLES).batch(BATCH))


def _fit(model, data):
    def timed():
        start = time.perf_counter()
        model.fit(data, verbose=0)
        return time.perf_counter() - start

    def run(steps):
        return [timed() for _ in range(steps)]

    return run


def transformers(grouped, task="sst2", count=EXAMPLES):
    """HF's classifier in a PyTorch loop, batches padded to their longest row.

    Args:
        task: `"sst2"` or `"mrpc"`.
        count: int. How many examples.
        grouped: bool. Whether batches are of like length, which is an option of
            HF's trainer.
    """
    import numpy as np
    import torch
    import transformers

    tokenizer = transformers.BertTokenizerFast(vocab=str(vocabulary_file()))
    model = transformers_classifier().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    texts, labels = _examples(task, count)
    texts = texts if isinstance(texts, tuple) else (texts,)
    lengths = np.array([len(ids) for ids in tokenizer(*texts)["input_ids"]])
    rng = np.random.default_rng(0)

    def batches():
        order = rng.permutation(count)
        if grouped:
            order = order[np.argsort(lengths[order], kind="stable")]
        batches = order.reshape(-1, BATCH)
        return rng.permutation(batches) if grouped else batches

    def epoch():
        start = time.perf_counter()
        for batch in batches():
            x = tokenizer(
                *([part[k] for k in batch] for part in texts),
                padding=True,
                truncation=True,
                max_length=LENGTH,
                return_tensors="pt",
            )
            y = torch.tensor([labels[k] for k in batch])
            loss = model(**x, labels=y).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        loss.item()
        return time.perf_counter() - start

    def run(steps):
        return [epoch() for _ in range(steps)]

    return run


def transformers_classifier():
    """HF's classifier of that architecture, with new weights."""
    import transformers

    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=ARCHITECTURE["vocabulary_size"],
            hidden_size=ARCHITECTURE["hidden_dim"],
            num_hidden_layers=ARCHITECTURE["num_layers"],
            num_attention_heads=ARCHITECTURE["num_heads"],
            intermediate_size=ARCHITECTURE["intermediate_dim"],
        )
    )


def vocabulary_file():
    """The path of BERT's vocabulary."""
    return str(DATA / "tokenizers" / "bert_uncased" / "vocab.txt")


def _examples(task, count):
    """The first texts of the training part, or two lists of pairs', and the labels."""
    name, label, columns = _FILES[task]
    with open(DATA / task / name, encoding="utf-8-sig") as file:
        table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = list(itertools.islice(table, count))
    texts = tuple([row[column] for row in rows] for column in columns)
    labels = [int(row[label]) for row in rows]
    return texts if len(texts) > 1 else texts[0], labels


def sentences(count):
    """The first sentences of SST-2's training part."""
    return _examples("sst2", count)[0]


def _benchmark(title, *competitors, count=EXAMPLES):
    return Benchmark(title, competitors, amount=count, unit="examples")


_HF = tuple(
    Competitor(label, "finetune:transformers", {"grouped": grouped}, "torch")
    for label, grouped in (
        ("transformers, dynamic padding", False),
        ("transformers, grouped by length", True),
    )
)
_OURS = {
    backend: Competitor(
        f"keras_bertfam, {backend}", "finetune:keras_bertfam", {}, backend
    )
    for backend in ("tensorflow", "jax", "torch")
}
_COMPILED = Competitor(
    "keras_bertfam, tensorflow, jit_compile=True",
    "finetune:keras_bertfam",
    {"jit_compile": True},
    "tensorflow",
)


def _packed(task, count):
    """Ours in packed rows, beside the better one of HF."""
    examples = {"task": task, "count": count}
    peer = dataclasses.replace(_HF[1], arguments={"grouped": True, **examples})
    ours = (
        dataclasses.replace(
            each, name=f"{each.name}, packed", arguments={"packed": True, **examples}
        )
        for each in _OURS.values()
    )
    title = f"Fine-tune on {task} in packed rows"
    return _benchmark(title, peer, *ours, count=count)


BENCHMARKS = {
    "finetune-transformers": _benchmark(
        "Fine-tune on SST-2 beside transformers",
        *_HF,
        *_OURS.values(),
        _COMPILED,
    ),
    **{
        f"finetune-packed-{task}": _packed(task, count)
        for task, count in PACKED_EXAMPLES.items()
    },
    **{
        f"finetune-keras-hub-{backend}": _benchmark(
            f"Fine-tune on SST-2 beside KerasHub, {backend}",
            Competitor(f"keras_hub, {backend}", "finetune:keras_hub", {}, backend),
            ours,
        )
        for backend, ours in _OURS.items()
    },
}
