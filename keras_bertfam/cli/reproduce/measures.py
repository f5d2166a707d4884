"""Measure a pre-trained model in the same way for all objectives.

Keras is imported only when something is measured: tables are checked without it.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_bertfam import tasks
from keras_bertfam.cli.reproduce import labelled
from keras_bertfam.cli.reproduce.labelled import LABELLED_LIMIT
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.corpus import python_docstrings
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.types import Model, TFDataset

# Packages whose docstrings a classifier learns to tell apart.
PACKAGES = ("asyncio", "email", "importlib", "logging")
_BATCH, _MOST_BATCHES = 32, 200
_TIMED = 15  # updates


@dataclasses.dataclass
class Trained:
    """Hold a pre-trained model and the data to measure it on.

    Attributes:
        task: a task of pre-training.
        run: `PretrainingRun` that trained it.
        held_out: `tf.data.Dataset` of documents, or a prepared corpus.
        paper: `PretrainingRun` with the paper's settings.
        labelled: folder of labelled data, or `None`.
        labelled_limit: int, the most examples to learn of each dataset in it.
    """

    task: Model
    run: PretrainingRun
    held_out: TFDataset
    paper: PretrainingRun
    labelled: str | None = None
    labelled_limit: int = LABELLED_LIMIT

    @functools.cached_property
    def model(self) -> Model:
        """The task, or the student of a distiller."""
        return getattr(self.task, "student", self.task)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer that made its training rows."""
        return self.task.preprocessor.tokenizer

    @functools.cached_property
    def masked(self) -> "MaskedTokens | None":
        """See `masked_tokens`; `None` for a task that fills no masks in."""
        if not hasattr(self.model, "masked_lm_logits"):
            return None
        length = self.run.sequence_length
        return masked_tokens(self.model, self.tokenizer, self.held_out, length)


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedTokens:
    """Hold a model's predictions of masked tokens, as arrays of shape `(tokens,)`.

    Attributes:
        targets: int, the original tokens.
        guesses: int, the most probable ones.
        certainty: float, their probabilities.
        losses: float, the cross-entropies of `targets` in nats.
    """

    targets: np.ndarray
    guesses: np.ndarray
    certainty: np.ndarray
    losses: np.ndarray

    @property
    def accuracy(self) -> float:
        """The share of right guesses."""
        return float(np.mean(self.guesses == self.targets))


def masked_tokens(
    model: Model, tokenizer: Any, documents: TFDataset, sequence_length: int
) -> MaskedTokens:
    """Mask 15 % of the tokens of rows, as in BERT, and predict them.

    Args:
        model: a task with `masked_lm_logits`.
        tokenizer: its tokenizer.
        documents: `tf.data.Dataset` of strings, or a prepared corpus. The first 6,400
            rows are used.
        sequence_length: int. Tokens in a row.
    """
    from keras import ops

    usual = tasks.MaskedLMPreprocessor(
        tokenizer, sequence_length, strategy="tokens", seed=0
    )
    batches = usual.dataset(documents, _BATCH, training=False).take(_MOST_BATCHES)
    found = []
    for x, y, weights in batches.as_numpy_iterator():
        kept = weights > 0
        targets, logits = y[kept], ops.convert_to_numpy(model.masked_lm_logits(x))[kept]
        logits = logits.astype(float) - logits.max(-1, keepdims=True)
        total = np.exp(logits).sum(-1)
        losses = np.log(total) - logits[np.arange(len(targets)), targets]
        found.append((targets, logits.argmax(-1), 1 / total, losses))
    return MaskedTokens(*map(np.concatenate, zip(*found, strict=True)))


def nats_per_token(model: Model, documents: TFDataset) -> float:
    """Compute the negative log-likelihood per token of documents, or a bound above it.

    It is exact for a `CausalLM`, and an upper bound for a `MaskedDiffusionLM`. Tokens
    that mark the ends of texts aren't counted.

    Args:
        model: a `CausalLM` or a `MaskedDiffusionLM`.
        documents: `tf.data.Dataset` of strings, or a prepared corpus. The first 6,400
            rows are used.

    Returns:
        Float, the mean negative log-likelihood in nats.
    """
    from keras_bertfam.tokenizers.pipeline_ops import special_token_ids

    specials = special_token_ids(model.preprocessor.tokenizer)
    data = model.preprocessor.dataset(documents, _BATCH, training=False)
    batches = data.take(_MOST_BATCHES).as_numpy_iterator()
    losses, counts = [], []
    for x, y, weights in batches:
        weights = np.where(np.isin(y, specials), 0, weights)
        model.reset_metrics()  # Keras would average batches by their rows
        logs = model.test_on_batch(x, y, weights, return_dict=True)
        losses.append(float(logs["loss"]))
        # What the loss was divided by; masked tokens have weights of any size.
        is_bound = isinstance(model, tasks.MaskedDiffusionLM)
        counts.append((y >= 0).sum() if is_bound else weights.sum())
    return float(np.average(losses, weights=counts))


def docstring_parts() -> list[tuple[list[str], list[str]]]:
    """Give docstrings and their packages: a fifth to test on, the rest to train on."""
    examples = python_docstrings(PACKAGES)
    order = np.random.default_rng(0).permutation(len(examples))
    count = len(examples) // 5
    parts = []
    for numbers in (order[:count], order[count:]):
        texts, labels = zip(*(examples[k] for k in numbers), strict=True)
        parts.append(([*texts], [*labels]))
    return parts


def _masked_accuracy(trained):
    return None if trained.masked is None else trained.masked.accuracy


def _masked_perplexity(trained):
    return None if trained.masked is None else np.exp(trained.masked.losses.mean())


def _character_nats(trained):
    """Convert the loss of masked tokens to nats per character, for any vocabulary."""
    from keras_bertfam.layers.data.prepared.token_corpus import TokenCorpus

    if trained.masked is None or isinstance(trained.held_out, TokenCorpus):
        return None  # a prepared corpus has tokens, not characters
    texts = [text.decode() for text in trained.held_out.as_numpy_iterator()]
    tokens = sum(len(trained.tokenizer(text)) for text in texts)
    return trained.masked.losses.mean() * tokens / max(sum(map(len, texts)), 1)


def _token_nats(trained):
    whole = (tasks.CausalLM, tasks.MaskedDiffusionLM)
    if not isinstance(trained.model, whole):
        return None
    return nats_per_token(trained.model, trained.held_out)


def _sentence_accuracy(objective, trained):
    from keras import ops

    if not isinstance(trained.model, tasks.MaskedLMSentencePair):
        return None
    preprocessor = tasks.MaskedLMSentencePairPreprocessor(
        trained.tokenizer, trained.run.sequence_length, sentence_objective=objective
    )
    data = preprocessor.dataset(trained.held_out, _BATCH, training=False)
    right = total = 0.0
    for x, y, weights in data.take(_MOST_BATCHES).as_numpy_iterator():
        logits = ops.convert_to_numpy(trained.model(x, training=False)["sentence"])
        # Of three classes (StructBERT's), the two that this objective tells apart.
        logits = logits[..., [0, -1]] if objective == "nsp" else logits[..., :2]
        right += np.sum((logits.argmax(-1) == y["sentence"]) * weights["sentence"])
        total += np.sum(weights["sentence"])
    return right / total if total else None


def _mean_states(trained, texts):
    """Average the last states of each text (for T5, its encoder's)."""
    from keras import ops

    from keras_bertfam.tasks.summary import is_encoder_decoder, mean_states

    length, tokenizer = trained.run.sequence_length, trained.tokenizer
    backbone = trained.model.backbone
    if tokenizer.start_token_id is not None or not is_encoder_decoder(backbone):
        preprocessor = tasks.TextEmbedderPreprocessor(
            tokenizer, length, buckets=[length]
        )
        model = tasks.TextEmbedder(backbone, preprocessor, normalize=False)
        return model.predict(texts, 4 * _BATCH, verbose=0)
    ids = np.full((len(texts), length), tokenizer.pad_token_id)
    for row, text in zip(ids, texts, strict=True):
        tokens = np.asarray(tokenizer(text))[:length]
        row[: len(tokens)] = tokens
    means = []
    for k in range(0, len(ids), _BATCH):
        inside = ids[k : k + _BATCH] != tokenizer.pad_token_id
        inputs = {"token_ids": ids[k : k + _BATCH], "padding_mask": inside}
        states = backbone.encoder(inputs)["sequence_output"]
        means.append(ops.convert_to_numpy(mean_states(states, inside)[:, 0]))
    return np.concatenate(means)


def _frozen(trained):
    """Fit a linear classifier of mean states by ridge regression."""
    (test, labels), (train, train_labels) = docstring_parts()
    x = _mean_states(trained, [*test, *train])
    learned = x[len(test) :]
    x = (x - learned.mean(0)) / (learned.std(0) + 1e-6)
    x, x_train = x[: len(test)], x[len(test) :]
    y = np.array([[label == p for p in PACKAGES] for label in train_labels], float)
    penalty = 0.01 * len(train) * np.eye(x.shape[1])
    weights = np.linalg.solve(
        x_train.T @ x_train + penalty, x_train.T @ (y - y.mean(0))
    )
    return _accuracy(x @ weights + y.mean(0), labels)


def _fine_tuned(trained):
    """Fine-tune a `TextClassifier` for three epochs, and put the weights back."""
    length = trained.run.sequence_length
    preprocessor = tasks.TextClassifierPreprocessor(
        trained.tokenizer,
        length,
        label_names=PACKAGES,
        buckets=[length],
        seed=trained.run.seed,
    )
    backbone = trained.model.backbone
    before = backbone.get_weights()
    model = tasks.TextClassifier(backbone, preprocessor=preprocessor)
    model.compile(learning_rate=5e-4, jit_compile=False)
    test, train = docstring_parts()
    model.fit(*train, batch_size=_BATCH, epochs=3, verbose=0)
    outputs = model.predict(test[0], batch_size=_BATCH, verbose=0)
    backbone.set_weights(before)
    return _accuracy(np.asarray(outputs), test[1])


def _accuracy(scores, labels):
    numbers = [PACKAGES.index(label) for label in labels]
    return np.mean(scores.argmax(-1) == numbers)


def _parameters(trained):
    return trained.model.backbone.count_params()


def _published_parameters(trained):
    from keras_bertfam.cli.building import make_backbone
    from keras_bertfam.presets.converting.conversion import skip_initialization

    with skip_initialization():
        return make_backbone(trained.paper).count_params()


def _steps_per_second(trained):
    """Time steps on the first batch, and put the weights back.

    With accumulation, a step takes the time of several batches.
    """
    import time

    import keras

    model, run = trained.task, trained.run
    data = model.preprocessor.dataset(
        trained.held_out, run.batch_size, packing=run.packing, training=False
    )
    batch = keras.utils.unpack_x_y_sample_weight(next(iter(data)))
    before, seconds = model.get_weights(), []
    for _ in range(_TIMED):
        start = time.perf_counter()
        model.train_on_batch(*batch)
        seconds.append(time.perf_counter() - start)
    model.set_weights(before)
    usual = np.median(
        seconds[_TIMED // 3 :]
    )  # the first calls trace and compile the step
    return 1 / (usual * run.accumulate)


def _targets(trained):
    if not isinstance(trained.model, tasks.TextToText):
        return None
    data = trained.model.preprocessor.dataset(trained.held_out, _BATCH, training=False)
    weights = [w for _, _, w in data.take(_MOST_BATCHES).as_numpy_iterator()]
    return np.concatenate([each.sum(-1) for each in weights]).mean()


@dataclasses.dataclass(frozen=True)
class Measure:
    """Describe a column of a table.

    Attributes:
        title: str.
        function: takes a `Trained` and returns a number, or `None` where it makes no
            sense.
        share: bool. Whether the number is shown in percent.
    """

    title: str
    function: Callable[[Trained], Any]
    share: bool = False


MEASURES = {
    "masked_accuracy": Measure("masked accuracy", _masked_accuracy, True),
    "masked_perplexity": Measure("masked perplexity", _masked_perplexity),
    "character_nats": Measure("masked nats per character", _character_nats),
    "token_nats": Measure("nats per token", _token_nats),
    "nsp_accuracy": Measure(
        "NSP accuracy", functools.partial(_sentence_accuracy, "nsp"), True
    ),
    "sop_accuracy": Measure(
        "SOP accuracy", functools.partial(_sentence_accuracy, "sop"), True
    ),
    "frozen": Measure("docstrings, frozen", _frozen, True),
    "fine_tuned": Measure("docstrings, fine-tuned", _fine_tuned, True),
    "parameters": Measure("parameters", _parameters),
    "published_parameters": Measure(
        "parameters, published size", _published_parameters
    ),
    "targets": Measure("targets in a row", _targets),
    "steps_per_second": Measure("updates per second", _steps_per_second),
}
MEASURES |= {
    labelled.column(name, way): Measure(
        f"{name}, {way.replace('_', '-')}",
        functools.partial(labelled.score, name, way),
        True,
    )
    for name in labelled.PLACES
    for way in labelled.WAYS
}
MEASURES |= {
    labelled.column(name, labelled.AS_TEXT): Measure(
        f"{name}, as text",
        functools.partial(labelled.score_written, name),
        # Other metrics of labelled data are in percent already.
        TASKS[name].kind == "classification",
    )
    for name in labelled.TEXT_PLACES
}


def measure(trained: Trained, names: Sequence[str]) -> dict[str, float | int | None]:
    """Measure a model.

    Args:
        trained: `Trained`.
        names: keys of `MEASURES`. On held-out text: the accuracy and perplexity of 15 %
            of the tokens, masked as in BERT; their nats per character, which compares
            different vocabularies; the nats per token of a task that models whole
            texts; the accuracy on next sentences, half of them false, and on segments,
            half of them swapped. On docstrings: the accuracy of telling which of four
            packages they are from, by the means of frozen states, and after three
            epochs of fine-tuning. Of the model: how many parameters the backbone has,
            here and in the paper's size; how many tokens a decoder's targets have; and
            steps per second on batches of the run's size. On labelled data: what
            `labelled.score` and `labelled.score_written` give.

    Returns:
        Dict from names to numbers, or `None` where a number makes no sense.
    """
    import keras

    keras.utils.set_random_seed(trained.run.seed)
    found = {name: MEASURES[name].function(trained) for name in names}
    return {
        name: value if value is None or isinstance(value, int) else float(value)
        for name, value in found.items()
    }
