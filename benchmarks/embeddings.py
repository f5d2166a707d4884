"""Training and encoding of MiniLM beside sentence-transformers, from strings.

Pairs are SQuAD's questions and their paragraphs, which are some ten times as long, and
STS-B's sentences, which are equally long; the loss is that of negatives in the batch.
What is encoded are SQuAD's paragraphs and questions, in one list. Needs the folder of
real data.
"""

import time

import numpy as np

from benchmarks.finetune import DATA
from benchmarks.harness import Benchmark, Competitor, repeated
from benchmarks.retrieval import minilm, squad

# Each process of training holds some 6 GB.
PAIRS, BATCH, TEXTS = 64, 32, 256


def _pairs(kind):
    """Lists of the first and the second texts."""
    if kind == "sentences":
        import keras_bertfam

        found = keras_bertfam.datasets.load_examples("stsb", "train", DATA / "stsb")
        return [list(texts[:PAIRS]) for texts in found.x]
    paragraphs, questions = squad()
    chosen = np.random.default_rng(0).permutation(len(questions))[:PAIRS]
    asked = [questions[number] for number in chosen]
    return [row[0] for row in asked], [paragraphs[row[1]] for row in asked]


def _texts():
    paragraphs, questions = squad()
    texts = paragraphs[: TEXTS // 2] + [row[0] for row in questions[: TEXTS // 2]]
    return [texts[number] for number in np.random.default_rng(0).permutation(TEXTS)]


def train_keras_bertfam(kind):
    """Ours: a step is a pass over the pairs."""
    import keras

    import keras_bertfam

    model = keras_bertfam.tasks.TextEmbedder.from_preset(minilm())
    pairs = tuple(_pairs(kind))

    class Clock(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.times.append(time.perf_counter())

    def run(steps):
        clock = Clock()
        clock.times = []
        # One pass more: the first of every call pays for the call.
        model.fit(pairs, None, BATCH, steps + 1, verbose=0, callbacks=[clock])
        return np.diff(clock.times).tolist()

    return run


def train_sentence_transformers(kind):
    """Their loss in a loop of PyTorch, batches padded to their longest text."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    model = SentenceTransformer(minilm(), device="cpu")
    loss = losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5, fused=True)
    columns = _pairs(kind)
    model.train()

    def one_pass():
        order = np.random.permutation(PAIRS)
        for begin in range(0, PAIRS, BATCH):
            batch = order[begin : begin + BATCH]
            rows = [model.tokenize([column[k] for k in batch]) for column in columns]
            loss(rows, None).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return repeated(one_pass)


def encode_keras_bertfam():
    """Ours: a step is the vectors of all texts."""
    import keras_bertfam

    model, texts = keras_bertfam.tasks.TextEmbedder.from_preset(minilm()), _texts()
    return repeated(lambda: model.encode(texts, "passage", BATCH))


def encode_sentence_transformers():
    """Theirs, which sorts texts by their length, too."""
    from sentence_transformers import SentenceTransformer

    model, texts = SentenceTransformer(minilm(), device="cpu"), _texts()
    return repeated(
        lambda: model.encode(texts, batch_size=BATCH, show_progress_bar=False)
    )


def _trainers(kind):
    yield Competitor(
        "sentence-transformers",
        "embeddings:train_sentence_transformers",
        {"kind": kind},
        "torch",
    )
    for backend in ("tensorflow", "torch"):
        yield Competitor(
            f"keras_bertfam, {backend}",
            "embeddings:train_keras_bertfam",
            {"kind": kind},
            backend,
        )


_ENCODERS = [
    Competitor(
        "sentence-transformers", "embeddings:encode_sentence_transformers", {}, "torch"
    ),
    *(
        Competitor(
            f"keras_bertfam, {backend}", "embeddings:encode_keras_bertfam", {}, backend
        )
        for backend in ("tensorflow", "torch")
    ),
]
BENCHMARKS = {
    **{
        f"embed-train-{kind}": Benchmark(
            f"Train MiniLM on pairs of {said}, batches of {BATCH}",
            tuple(_trainers(kind)),
            amount=PAIRS,
            unit="pairs",
        )
        for kind, said in (
            ("questions", "questions and paragraphs"),
            ("sentences", "sentences"),
        )
    },
    "embed-encode": Benchmark(
        f"Encode {TEXTS} questions and paragraphs by MiniLM",
        tuple(_ENCODERS),
        amount=TEXTS,
        unit="texts",
    ),
}
