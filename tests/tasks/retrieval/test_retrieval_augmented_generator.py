"""RAG: likelihoods, training, the three ways of writing, saving, bad input."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_bertfam import tasks
from keras_bertfam.tasks.losses import token_metrics
from tests import tiny_passages
from tests.gradients import loss_and_gradients
from tests.tasks.generation.text_to_text_tokenizers import word_piece
from tests.tiny_text_to_text import make

SIZE = 8  # of the vocabulary: all texts can be listed
END = 1


def make_task(marginalization="sequence", **kwargs):
    generator = tasks.TextToText(make("T5", vocabulary_size=SIZE, num_layers=1))
    retriever = tiny_passages.make_retriever()
    task = tasks.RetrievalAugmentedGenerator(
        generator, None, retriever, marginalization, **kwargs
    )
    # Loops over tokens take longer to be compiled than to run a few of them.
    task.run_eagerly = keras.backend.backend() == "tensorflow"
    return task


@pytest.fixture(scope="module")
def task():
    return make_task()


def batch(rows=2, passages=3, length=4, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.ones((rows, passages, length), bool)
    mask[:, 1, 2:] = False
    return {
        "query_token_ids": rng.integers(5, 16, (rows, 5)).astype("int32"),
        "query_padding_mask": np.ones((rows, 5), bool),
        "passage_vectors": rng.normal(size=(rows, passages, 6)).astype("float32"),
        "encoder_token_ids": rng.integers(2, SIZE, mask.shape).astype("int32"),
        "encoder_padding_mask": mask,
    }


def targets(rows=2, length=3, seed=1):
    rng = np.random.default_rng(seed)
    y = rng.integers(1, SIZE, (rows, length)).astype("int32")
    weights = np.ones((rows, length), "float32")
    weights[0, -1] = 0.0
    decoder = np.concatenate([np.zeros((rows, 1), "int32"), y[:, :-1]], 1)
    inputs = {"decoder_token_ids": decoder, "decoder_padding_mask": weights > 0}
    return inputs, y, weights


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def token_likelihoods(task, x, y):
    """`log p(z)` and `log p(y_j | z)`, by the parts of the task one by one."""
    query = {name[6:]: x[name] for name in x if name.startswith("query_")}
    vectors = ops.convert_to_numpy(task.retriever.query_vectors(query))
    prior = log_softmax(np.einsum("bd,bkd->bk", vectors, x["passage_vectors"]))
    rows = []
    for k in range(prior.shape[1]):
        inputs = {n: x[n] for n in x if n.startswith("decoder_")}
        inputs |= {n: x[n][:, k] for n in x if n.startswith("encoder_")}
        logits = ops.convert_to_numpy(task.generator(inputs))
        rows.append(np.take_along_axis(log_softmax(logits), y[..., None], -1)[..., 0])
    return prior, np.stack(rows, 1)


@pytest.mark.slow
@pytest.mark.parametrize("marginalization", ["sequence", "token"])
def test_losses_and_what_is_trained(task, marginalization):
    inputs, y, weights = targets()
    x = {**batch(), **inputs}
    prior, likelihoods = token_likelihoods(task, x, y)
    joint = prior[..., None] + likelihoods
    expected = -(np.log(np.exp(joint).sum(1)) * weights).sum()
    if marginalization == "sequence":
        whole = prior + (likelihoods * weights[:, None]).sum(-1)
        expected = -np.log(np.exp(whole).sum(1)).sum()
    cls = tasks.RetrievalAugmentedGenerator
    task = cls(task.backbone, None, task.retriever, marginalization)
    loss, gradients = loss_and_gradients(task, x, y, weights)
    assert loss == pytest.approx(expected / weights.sum(), rel=1e-4)
    found = task.test_on_batch(x, y, weights, return_dict=True)
    assert float(found["loss"]) == pytest.approx(loss, rel=1e-4)
    assert float(found["perplexity"]) == pytest.approx(np.exp(loss), rel=1e-3)
    # All of the question's tower and nothing of the passages' is trained.
    trained = {id(v) for v in task.trainable_variables}
    tower = task.retriever.passage_backbone
    frozen = [*tower.variables, *task.retriever.passage_projection.variables]
    assert not trained & {id(v) for v in frozen}
    sizes = {
        v.path: np.abs(g).max()
        for v, g in zip(task.trainable_variables, gradients, strict=True)
    }
    kernel = task.retriever.projection.dense.kernel
    assert id(kernel) in trained and sizes[kernel.path] > 1e-6
    probabilities = np.exp(ops.convert_to_numpy(task.log_probabilities(task(x))))
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("marginalization", ["sequence", "token"])
def test_metrics_over_all_passages(task, marginalization):
    inputs, y, weights = targets()
    x = {**batch(), **inputs}
    cls = tasks.RetrievalAugmentedGenerator
    task = cls(task.backbone, None, task.retriever, marginalization)
    alone = task.test_on_batch(x, y, weights, return_dict=True)["perplexity"]
    task.compile(weighted_metrics=token_metrics())
    found = task.test_on_batch(x, y, weights, return_dict=True)
    assert float(found["perplexity"]) == pytest.approx(float(alone), rel=1e-4)
    # Each token in the place of each target: the likeliest one is what is predicted.
    every = [np.where(np.arange(3) == j, v, y) for j in range(3) for v in range(SIZE)]
    parts = [token_likelihoods(task, x, tokens) for tokens in every]
    likelihoods = np.stack([each for _, each in parts]).reshape(3, SIZE, 2, 3, 3)
    sums = parts[0][0][..., None] + (
        likelihoods.cumsum(-1) if marginalization == "sequence" else likelihoods
    )
    marginal = np.log(np.exp(sums).sum(-2))  # (place, token, row, token of the row)
    best = np.stack([marginal[j, :, :, j].argmax(0) for j in range(3)], 1)
    right = ((best == y) * weights).sum() / weights.sum()
    assert float(found["accuracy"]) == pytest.approx(right)


def every_text(length):
    """All texts of up to so many tokens, that end with the end token or are full."""
    for size in range(1, length + 1):
        for text in itertools.product(range(SIZE), repeat=size):
            inner = text if size == length else text[:-1]
            if END not in inner[: length - 1] and (size == length or text[-1] == END):
                yield text


def likeliest(task, x, marginalization, length=2):
    """The likeliest text of all, by the likelihoods of each."""
    texts = [*every_text(length)]
    y = np.array([[*text, *[0] * (length - len(text))] for text in texts], "int32")
    weights = np.array([[k < len(text) for k in range(length)] for text in texts])
    copies = {n: np.repeat(v[:1], len(texts), 0) for n, v in x.items()}
    decoder = np.concatenate([np.zeros((len(texts), 1), "int32"), y[:, :-1]], 1)
    prior, likelihoods = token_likelihoods(
        task, {**copies, "decoder_token_ids": decoder}, y
    )
    likelihoods = np.where(weights[:, None], likelihoods, 0.0)
    if marginalization == "token":
        tokens = np.log(np.exp(prior[..., None] + likelihoods).sum(1))
        scores = (tokens * weights).sum(1)
    else:
        scores = np.log(np.exp(prior + likelihoods.sum(-1)).sum(1))
    return list(texts[int(np.argmax(scores))])


@pytest.mark.any_backend
@pytest.mark.parametrize("decoding", ["token", "thorough"])
def test_wide_searches_find_the_likeliest_text(task, decoding):
    x = {name: value[:1] for name, value in batch().items()}
    found = task.generate(
        x, 3, decoding, num_beams=SIZE, stop_token_ids=[END], return_sources=True
    )
    texts, sources = found
    kind = "token" if decoding == "token" else "sequence"
    assert texts == [likeliest(task, x, kind)]
    numbers, shares = zip(*sources[0], strict=True)
    assert sorted(numbers) == [0, 1, 2] and sum(shares) == pytest.approx(1.0, abs=1e-5)
    assert [*shares] == sorted(shares, reverse=True)


@pytest.mark.slow
@pytest.mark.any_backend
def test_fast_search_asks_each_passage_for_its_own_texts(task):
    x = batch(3, seed=5)
    each = []
    for row in range(3):
        rows = {n: x[n][row] for n in ("encoder_token_ids", "encoder_padding_mask")}
        sources = {n[8:]: v for n, v in rows.items()}
        each.append(task.generator.generate(sources, 4, stop_token_ids=[END]))
    fast = task.generate(x, 4, "fast", num_beams=1, stop_token_ids=[END])
    for text, own in zip(fast, each, strict=True):
        assert text in own
    greedy = task.generate(x, 4, "token", num_beams=1, stop_token_ids=[END])
    assert all(1 <= len(text) <= 3 for text in greedy)
    one = {n: v[:, :1] if n.startswith(("enc", "pas")) else v for n, v in x.items()}
    for decoding in ("token", "thorough", "fast"):  # with one passage as without
        alone = task.generate(one, 4, decoding, num_beams=1, stop_token_ids=[END])
        assert alone == [own[0] for own in each]


@pytest.mark.slow
@pytest.mark.any_backend
def test_saved_and_loaded(tmp_path):
    task = make_task("token")
    inputs, y, weights = targets()
    x = {**batch(), **inputs}
    expected = ops.convert_to_numpy(task.log_probabilities(task(x)))
    task.save(tmp_path / "task.keras")
    task.save_to_preset(str(tmp_path / "preset"))
    for other in (
        keras.saving.load_model(tmp_path / "task.keras"),
        tasks.RetrievalAugmentedGenerator.from_preset(str(tmp_path / "preset")),
    ):
        assert other.marginalization == "token"
        found = ops.convert_to_numpy(other.log_probabilities(other(x)))
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.any_backend
def test_fit_and_answers_from_texts():
    search = tiny_passages.make_search(trained=True)
    preprocessor = tasks.RetrievalAugmentedGeneratorPreprocessor(
        word_piece(), sequence_length=14, target_length=6, num_passages=2
    )
    preprocessor.search = search
    backbone = make("T5", vocabulary_size=word_piece().vocabulary_size(), num_layers=1)
    task = tasks.RetrievalAugmentedGenerator(backbone, preprocessor, search.retriever)
    eagerly = keras.backend.backend() == "tensorflow"
    task.compile(keras.optimizers.Adam(0.02), run_eagerly=eagerly)
    questions = tiny_passages.passages(8, seed=4)
    answers = [text.split()[0] for text in questions]
    data = preprocessor.dataset((questions, answers), batch_size=8)
    losses = task.fit(data, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.5
    text, found = task.generate(questions[0], 5, "fast", 1, return_sources=True)
    assert isinstance(text, str) and found[0][1] >= found[1][1]
    assert {name for name, _ in found} <= {*search.passages}


@pytest.mark.any_backend
def test_bad_input(task):
    backbone, retriever = task.backbone, task.retriever
    cls = tasks.RetrievalAugmentedGenerator
    for arguments, message in (
        ((tiny_passages.bert(), None, retriever), "`backbone` must be a `TextToText`"),
        ((backbone, None, None), "`retriever` must be a .*Received: NoneType"),
        ((backbone, None, retriever, "both"), "`marginalization` must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            cls(*arguments)
    for arguments, message in (
        (("a cat", 5), "`inputs` must be a dict of arrays for a task without"),
        ((batch(), 5, "slow"), "`decoding` must be one of .*Received: .*'slow'"),
        ((batch(), 5, "fast", 0), "`num_beams` must be an int of at least 1"),
        ((batch(), 1, "fast"), "`max_length` must be an integer of at least 2"),
    ):
        with pytest.raises(ValueError, match=message):
            task.generate(*arguments)
    with pytest.raises(ValueError, match="`num_beams` must be left out of the setti"):
        task.generate(batch(), 5, settings={"num_beams": 3})
