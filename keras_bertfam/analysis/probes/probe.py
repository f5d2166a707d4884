"""Probes: small classifiers of the frozen states of each layer."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.analysis.probes.classifiers import (
    KINDS,
    Probes,
    Spans,
    shuffled,
    train,
)
from keras_bertfam.analysis.probes.data import Targets, check_lists, read_targets
from keras_bertfam.analysis.probes.report import ProbeReport
from keras_bertfam.analysis.word_states import (
    PIECES,
    POOLED,
    LayerStates,
    WordRows,
    words_of,
)
from keras_bertfam.arguments import check_number, check_one_of, checked
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.metrics.scores import METRICS
from keras_bertfam.types import Model, Path, Tokenizer
from keras_bertfam.whole_files import file_digest, write_text, written_aside

_BATCH = 80
# Where the parts of an online code end, as shares of the targets.
_CODED = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
_SCORES = ("accuracy", "macro_f1", "matthews", "micro_f1")


@checked
def probe(
    model: Model,
    sentences: Sequence[str | Sequence[str]],
    labels: Sequence[Sequence[Any]],
    kind: str = "linear",
    *,
    test: tuple[Sequence[Any], Sequence[Any]] | None = None,
    cumulative: bool | None = None,
    control: bool = False,
    description_length: bool = False,
    seeds: Sequence[int] = (0,),
    metric: str | None = None,
    pool: str | None = None,
    cache: Path | None = None,
    tokenizer: Tokenizer | None = None,
    learning_rate: float = 1e-3,
    epochs: int = 50,
    patience: int = 3,
) -> ProbeReport:
    """Train small classifiers on the frozen states of a model's layers.

    A probe that tells nouns from verbs by the states of layer 3 shows that layer 3 has
    that information.

    A random tenth of the sentences, always the same one, is held out to end the
    training. Without `test`, another tenth is held out for the scores. Batches have 80
    targets.

    Args:
        model: a backbone, or a task with any head.
        sentences: list of str, which are split at white space and punctuation; or list
            of lists of words.
        labels: a list for each sentence, in one of three forms: a label for each word,
            such as `["DET", "NOUN"]`, with `None` for words without a label; tuples of
            a span and its label, such as `((0, 2), "person")`; or tuples of two spans
            and a label, such as `(0, 1, "nsubj")`. A span is the number of a word,
            counted from 0; or a tuple of the number of its first word and of the word
            after its last one. See `arcs`, `entities` and `read_edges`. For `"edge"` a
            label may be a list of labels, which may be empty.
        kind: the classifier that is trained:

            - `"linear"`: a linear layer and a softmax. Its input is the word's state;
              for a span, the mean state `x` of its words; for a pair of spans, `[x,
              y, x * y]`;
            - `"mlp"`: the same, with a hidden layer of width 1024 and ReLU before;
            - `"edge"`: edge probing. Tokens are projected to width 256, and attention
              pools them to a span. A hidden layer of width 256 and a sigmoid for each
              label follow. A label is predicted if its probability is at least .5, as
              in the paper; a version of the released code compares logits with .5.
        test: tuple of sentences and their labels, to compute the scores on, or `None`.
        cumulative: bool. `True`: probe `k` sees a scalar mix of layers 0 to `k`, for
            each `k`; the report then has the expected layer. `False`: each probe sees
            one layer, and the last probe a mix of all. `None` means `True` for
            `"edge"`, else `False`.
        control: bool. Whether the same probes are also trained on a control task: each
            distinct word (or first span) has a random label, drawn as often as it is in
            the data. The selectivity is the score of the real task minus the control
            task's.
        description_length: bool. Whether the minimum description length of the labels
            is measured by an online code; not for `"edge"`.
        seeds: list of ints. Each trains probes with other initial weights and another
            order of the batches.
        metric: `"accuracy"`, `"macro_f1"`, `"matthews"` or `"micro_f1"`. Micro F1 takes
            each label of each target as a decision of its own, yes or no. `None` means
            `"micro_f1"` for `"edge"`, else `"accuracy"`.
        pool: how the states of a word's tokens become one state, see `embed_words`; or
            `"pieces"`: a span has the states of all tokens of its words. `None` means
            `"pieces"` for `"edge"`, as in the paper, else `"first"`.
        cache: folder that keeps the states of words for the next call, or `None`.
        tokenizer: for a model without a preprocessor.
        learning_rate: float, Adam's.
        epochs: int. The greatest number of epochs.
        patience: int. A probe's training ends after so many epochs without a lower loss
            on the held-out tenth. It keeps its best weights.

    Returns:
        A `keras_bertfam.analysis.probes.report.ProbeReport`.

    Raises:
        ValueError: for labels that don't fit the sentences, fewer than three sentences
            with labels (two with `test`), targets without exactly one label unless
            `kind="edge"` and `metric="micro_f1"`, an unknown `kind`, `metric` or
            `pool`, and what `embed_words` refuses.
        ImportError: for a metric other than accuracy and micro F1 without
            scikit-learn, which the `evaluation` extra has.

    Example:

    ```python
    model = keras_bertfam.tasks.MaskedLM.from_preset("my_bert")
    report = keras_bertfam.analysis.probe(
        model, ["the cat sat", "a dog", "a mat", "the dog"],
        [["DET", "NOUN", "VERB"], ["DET", "NOUN"], ["DET", "NOUN"], ["DET", "NOUN"]],
        control=True, cache="states", epochs=2)
    print(report)
    ```

    References: [Liu et al., 2019](https://arxiv.org/abs/1903.08855), section 3;
    [Tenney et al., 2019](https://arxiv.org/abs/1905.05950), section 3;
    [Hewitt and Liang, 2019](https://arxiv.org/abs/1909.03368), section 2;
    [Voita and Titov, 2020](https://arxiv.org/abs/2003.12298), section 2.
    """
    _check(kind, metric, seeds, description_length)
    check_at_least(1, epochs=epochs, patience=patience)
    check_number("learning_rate", learning_rate, 0.0)
    metric = metric or ("micro_f1" if kind == "edge" else "accuracy")
    pool = pool or (PIECES if kind == "edge" else "first")
    check_one_of("pool", pool, (*POOLED, PIECES))
    cumulative = kind == "edge" if cumulative is None else cumulative
    words = words_of(sentences)
    learned = len(words)
    check_lists(words, labels)
    if test is not None:
        others = words_of(test[0])
        check_lists(others, test[1], "test")
        words, labels = [*words, *others], [*labels, *test[1]]
    targets = read_targets(words, labels)
    _check_sets(targets, kind, metric)
    parts = _parts(targets, learned, test is None)
    rows = WordRows(model, words, tokenizer)
    if pool == PIECES:
        targets = dataclasses.replace(targets, places=rows.word_starts[targets.places])
    states = layer_states(rows, pool, cache)
    y = [targets.labels]
    if control:
        y.append(targets.control_labels(parts[0]))
    runner = _Runner(kind, cumulative, states, targets, y, learning_rate)
    scores, weights, bits = [], [], []
    for seed in seeds:
        runner.fit(parts[0], parts[1], seed, epochs, patience)
        weights.append(runner.model.mix_weights()[runner.count - 1])
        scores.append(runner.scores(parts[2], metric))
        if description_length:
            bits.append(runner.bits(parts[0], parts[1], seed, epochs, patience))
    split = (len(seeds), len(y), runner.count)
    real = np.reshape(scores, split)
    coded = np.reshape(bits, split) if description_length else None
    return ProbeReport(
        metric=metric,
        cumulative=cumulative,
        scores=real[:, 0],
        control_scores=real[:, 1] if control else None,
        mix_weights=np.array(weights),
        description_bits=None if coded is None else coded[:, 0],
        control_bits=coded[:, 1] if coded is not None and control else None,
        uniform_bits=float(len(parts[0]) * np.log2(len(targets.names))),
        majority=_majority(targets, parts, metric),
        label_names=targets.names,
        counts=tuple(map(len, parts)),
    )


class _Runner:
    """A model, states and labels, for a training with each seed."""

    def __init__(self, kind, cumulative, states, targets, labels, learning_rate):
        layers = states.shape[1]
        mixed = np.tri(layers, dtype=bool)
        if not cumulative:
            mixed = np.concatenate([np.eye(layers, dtype=bool), mixed[-1:]])
        self.count, self.classes = len(mixed), len(targets.names)
        self.spans = Spans(states, targets.places)
        self.labels = np.repeat(np.stack(labels, axis=1), self.count, axis=1)
        self.sets = targets.sets
        self.kind = kind
        self.model = Probes(
            kind,
            np.tile(mixed, (len(labels), 1)),
            targets.places.shape[1],
            self.spans.width,
            states.shape[2],
            self.classes,
        )
        self.optimizer = keras.optimizers.Adam(learning_rate)
        self.optimizer.build(self.model.trainable_variables)
        self.model.compile(self.optimizer)
        values = map(keras.ops.convert_to_numpy, self.optimizer.variables)
        self.fresh = [np.array(value) for value in values]

    def fit(self, rows, held_out, seed, epochs, patience):
        for variable, value in zip(self.optimizer.variables, self.fresh, strict=True):
            variable.assign(value)
        self.model.restart(seed)
        rng = np.random.default_rng(seed)

        def batches():
            for some in shuffled(rows, _BATCH, rng):
                yield self.spans[some], self.sets[self.labels[some]]

        def validate():
            return self.losses(held_out).mean(0)

        train(self.model, batches, validate, epochs, patience)

    def logits(self, rows):
        return self.spans.logits(self.model, rows)

    def losses(self, rows):
        """Compute cross-entropies in nats, `(targets, probes)`."""
        logits = self.logits(rows).astype(float)
        right = (logits * self.sets[self.labels[rows]]).sum(-1)
        if self.kind == "edge":
            return (np.logaddexp(0, logits).sum(-1) - right) / self.classes
        return np.logaddexp.reduce(logits, axis=-1) - right

    def scores(self, rows, metric):
        logits, y = self.logits(rows), self.labels[rows]
        if metric == "micro_f1":
            limit = 0.0 if self.kind == "edge" else logits.max(-1, keepdims=True)
            said = logits >= limit
            return _micro_f1(said, self.sets[y])
        guesses = logits.argmax(-1)
        if metric == "accuracy":
            return (guesses == y).mean(0)
        function = METRICS[metric]
        return np.array([function(*pair) for pair in zip(y.T, guesses.T, strict=True)])

    def bits(self, rows, held_out, seed, epochs, patience):
        """Compute the code length of labels; each part is coded by those before."""
        rows = np.random.default_rng(seed).permutation(rows)
        ends = sorted({max(1, round(share * len(rows))) for share in _CODED})
        total = np.full(self.labels.shape[1], ends[0] * np.log2(self.classes))
        for begin, end in zip(ends[:-1], ends[1:], strict=True):
            self.fit(rows[:begin], held_out, seed, epochs, patience)
            total += self.losses(rows[begin:end]).sum(0) / np.log(2)
        return total


def _micro_f1(said, there):
    """Compute micro F1 `(probes,)` of bool arrays `(targets, probes, labels)`."""
    both = said.sum((0, 2)) + there.sum((0, 2))
    return 2 * (said & there).sum((0, 2)) / np.maximum(both, 1)


def _majority(targets, parts, metric):
    """Score the most frequent label of the training, given as every answer."""
    most = np.bincount(targets.labels[parts[0]]).argmax()
    labels = targets.labels[parts[2]]
    if metric != "micro_f1":
        return float(np.mean(labels == most))
    there = targets.sets[labels][:, None]
    [score] = _micro_f1(np.broadcast_to(targets.sets[most], there.shape), there)
    return float(score)


def _check(kind, metric, seeds, description_length):
    check_one_of("kind", kind, KINDS)
    if metric is not None:
        check_one_of("metric", metric, _SCORES)
    if not np.iterable(seeds) or not len(seeds):
        raise ValueError(f"`seeds` must be a list of ints. Received: {seeds!r}.")
    if description_length and kind == "edge":
        raise ValueError(
            '`description_length` must be `False` for kind="edge", whose labels have '
            "no common probability. Received: description_length=True."
        )


def _check_sets(targets, kind, metric):
    """Raise a `ValueError` for labels that the kind or the metric can't take."""
    sizes = targets.sets.sum(axis=1)
    if (sizes != 1).any() and (kind, metric) != ("edge", "micro_f1"):
        raise ValueError(
            '`labels` must be one for each target, except with kind="edge" and '
            f'metric="micro_f1". Received: up to {sizes.max()}, down to {sizes.min()}, '
            f"kind={kind!r}, metric={metric!r}."
        )


def _parts(targets: Targets, learned: int, held_out: bool) -> list[np.ndarray]:
    """Split targets into those to train on, to end the training by, and to score."""
    labelled = np.unique(targets.sentences[targets.sentences < learned])
    few = 3 if held_out else 2
    if len(labelled) < few or (not held_out and targets.sentences.max() < learned):
        raise ValueError(
            f"`labels` must have labels of at least {few} sentences, and of at "
            f"least one of `test`. Received: labels of {len(labelled)} sentences."
        )
    order = np.random.default_rng(0).permutation(labelled)
    tenth = max(1, len(order) // 10)
    cuts = [order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth]]
    if not held_out:
        others = np.unique(targets.sentences[targets.sentences >= learned])
        cuts = [order[tenth:], order[:tenth], others]
    return [np.flatnonzero(np.isin(targets.sentences, cut)) for cut in cuts]


_HASHED_AT_ONCE = 256
_VOUCHER = ".sha256"


def layer_states(
    rows: WordRows,
    pool: str = "first",
    cache: Path | None = None,
    *,
    batch_size: int = 32,
) -> Any:
    """Compute the states of each word in every layer, or read them from the cache.

    Args:
        rows: the sentences, as the model reads them.
        pool: see `probe`.
        cache: folder that keeps the states for later calls, or `None`. The name of a
            file is a digest of all that the states depend on: weights, settings, and
            the token ids of the sentences. Numbers are read from it when they are
            needed. A damaged file is made anew.
        batch_size: see `embed_words`.

    Returns:
        float32 array `(words, num_layers + 1, hidden_dim)` for the words of all
        sentences; with `pool="pieces"`, for their tokens. The first layer is the output
        of the embeddings.

    Raises:
        ValueError: for what `embed_words` refuses.
    """
    backbone: Any = rows.backbone
    count = sum(map(len, rows.words))
    if pool == PIECES:
        count = int(rows.word_starts[-1])
    shape = (count, backbone.num_layers + 1, backbone.hidden_dim)
    if cache is None or not count:
        states = np.empty(shape, "float32")
        _fill(states, rows, pool, batch_size)
        return states
    os.makedirs(cache, exist_ok=True)
    path = os.path.join(cache, f"{_digest(rows, pool)}.npy")
    if not _is_whole(path):
        with written_aside(path) as part:
            states = np.lib.format.open_memmap(part, "w+", "float32", shape)
            _fill(states, rows, pool, batch_size)
            states.flush()
            write_text(f"{path}{_VOUCHER}", file_digest(part))
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _fill(states, rows, pool, batch_size):
    done, layers = 0, range(states.shape[1])
    all_of_them = LayerStates(rows.backbone, layers, "concat")
    for _, part in rows.vectors(all_of_them, pool, batch_size):
        states[done : done + len(part)] = part.reshape(-1, *states.shape[1:])
        done += len(part)


def _digest(rows, pool):
    backbone = rows.backbone
    config = {**backbone.get_config(), "name": None, "trainable": None}
    kind = [type(backbone).__name__, config, pool, [*map(len, rows.words)]]
    digest = hashlib.sha256(json.dumps(kind, sort_keys=True, default=str).encode())
    for array in _hashed(rows):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _hashed(rows):
    """Yield the arrays that the states are computed from."""
    for weight in rows.backbone.weights:
        yield ops.convert_to_numpy(weight)
    for batch in rows.batches(_HASHED_AT_ONCE):
        yield from (batch[name] for name in sorted(batch))


def _is_whole(path):
    """Tell whether a file has the digest beside it."""
    try:
        with open(f"{path}{_VOUCHER}", encoding="utf-8") as file:
            return file_digest(path) == file.read()
    except (OSError, ValueError):
        return False
