"""What is measured of a pre-trained model, the same for all objectives.

Keras is imported when something is measured, as tables are checked without.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_bertfam import tasks
from keras_bertfam.cli.reproduce import labelled
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.corpus import python_docstrings
from keras_bertfam.datasets.task_data import TASKS
from keras_bertfam.types import Model, TFDataset

# What is learned to be told apart: the docstrings of these packages.
PACKAGES = ("asyncio", "email", "importlib", "logging")
_BATCH, _MOST_BATCHES = 32, 200


@dataclasses.dataclass
class Trained:
    """A pre-trained model, and what it is measured on.

    Attributes:
        task: a task of pre-training.
        run: how it was made.
        held_out: `tf.data.Dataset` of documents, or a prepared corpus.
        paper: the paper's run.
        labelled: folder of labelled data, or `None`.
    """

    task: Model
    run: PretrainingRun
    held_out: TFDataset
    paper: PretrainingRun
    labelled: str | None = None

    @functools.cached_property
    def model(self) -> Model:
        """The task, or the student of a distiller."""
        return getattr(self.task, "student", self.task)

    @property
    def tokenizer(self) -> Any:
        """That of the rows it was trained on."""
        return self.task.preprocessor.tokenizer

    @functools.cached_property
    def masked(self) -> tuple[np.ndarray, np.ndarray] | None:
        """See `masked_logits`; `None` of a task that fills no masks in."""
        if not hasattr(self.model, "masked_lm_logits"):
            return None
        length = self.run.sequence_length
        return masked_logits(self.model, self.tokenizer, self.held_out, length)


def masked_logits(
    model: Model, tokenizer: Any, documents: TFDataset, sequence_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute logits of masked tokens, 15 % of rows of documents, as in BERT.

    Args:
        model: a task with `masked_lm_logits`.
        tokenizer: its tokenizer.
        documents: `tf.data.Dataset` of strings, or a prepared corpus. The first 6,400
            rows are used.
        sequence_length: int. Tokens in a row.

    Returns:
        Tuple of the tokens that were there, int `(tokens,)`, and float32 logits
        `(tokens, vocabulary_size)`.
    """
    from keras import ops

    usual = tasks.MaskedLMPreprocessor(
        tokenizer, sequence_length, strategy="tokens", seed=0
    )
    batches = usual.dataset(documents, _BATCH, training=False).take(_MOST_BATCHES)
    targets, logits = [], []
    for x, y, weights in batches.as_numpy_iterator():
        kept = weights > 0
        targets.append(y[kept])
        logits.append(ops.convert_to_numpy(model.masked_lm_logits(x))[kept])
    return np.concatenate(targets), np.concatenate(logits)


def docstring_parts() -> list[tuple[list[str], list[str]]]:
    """Give docstrings and their packages: a fifth to test on, and the others."""
    examples = python_docstrings(PACKAGES)
    order = np.random.default_rng(0).permutation(len(examples))
    count = len(examples) // 5
    parts = []
    for numbers in (order[:count], order[count:]):
        texts, labels = zip(*(examples[k] for k in numbers), strict=True)
        parts.append(([*texts], [*labels]))
    return parts


def _masked_accuracy(trained):
    if trained.masked is None:
        return None
    targets, logits = trained.masked
    return np.mean(logits.argmax(-1) == targets)


def _masked_perplexity(trained):
    if trained.masked is None:
        return None
    targets, logits = trained.masked
    top = logits.max(-1, keepdims=True)
    totals = top[:, 0] + np.log(np.exp(logits - top).sum(-1))
    return np.exp(np.mean(totals - logits[np.arange(len(targets)), targets]))


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
        right += np.sum((logits.argmax(-1) == y["sentence"]) * weights["sentence"])
        total += np.sum(weights["sentence"])
    return right / total if total else None


def _mean_states(trained, texts):
    """Average the last states of each text, of T5 those of its encoder."""
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
    """Fit a linear classifier of mean states by least squares with a penalty."""
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


def _targets(trained):
    if not isinstance(trained.model, tasks.TextToText):
        return None
    data = trained.model.preprocessor.dataset(trained.held_out, _BATCH, training=False)
    weights = [w for _, _, w in data.take(_MOST_BATCHES).as_numpy_iterator()]
    return np.concatenate([each.sum(-1) for each in weights]).mean()


@dataclasses.dataclass(frozen=True)
class Measure:
    """A column of a table.

    Attributes:
        title: str.
        function: of a `Trained`, whose number is `None` where it makes no sense.
        share: bool. Whether it is shown in percent.
    """

    title: str
    function: Callable[[Trained], Any]
    share: bool = False


MEASURES = {
    "masked_accuracy": Measure("masked accuracy", _masked_accuracy, True),
    "masked_perplexity": Measure("masked perplexity", _masked_perplexity),
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
        # The others' metrics are in percent.
        TASKS[name].kind == "classification",
    )
    for name in labelled.TEXT_PLACES
}


def measure(trained: Trained, names: Sequence[str]) -> dict[str, float | int | None]:
    """Measure a model.

    Args:
        trained: `Trained`.
        names: keys of `MEASURES`: on held-out text, the accuracy and perplexity of
            15 % of its tokens, masked as in BERT, of an even mixture of true and
            false next sentences, and of swapped segments; the accuracy of telling
            which of four packages a docstring is from, by the means of frozen
            states, and fine-tuned for three epochs; how many parameters the backbone
            has, here and in the paper's size; how many tokens a decoder's
            targets have; and what `labelled.score` and `labelled.score_written` give
            of labelled data.

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
