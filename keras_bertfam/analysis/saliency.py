"""Find the tokens from which a fine-tuned task's answer comes."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis import plots
from keras_bertfam.analysis.gradients import gradient_of
from keras_bertfam.analysis.word_states import backbone_of, reads_rows
from keras_bertfam.arguments import checked
from keras_bertfam.keras_quirks.without_gradients import without_gradients
from keras_bertfam.layers.data.pipelines import check_at_least
from keras_bertfam.layers.data.user_inputs import refuse_single
from keras_bertfam.tokenizers.pipeline_ops import token_strings
from keras_bertfam.types import Model, Path, Tensor

_WIDEST = 60  # inches of a plot

_BASELINES = ("mask", "pad", "zero")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Saliency:
    """Hold how much each token of an example adds to an output.

    Attributes:
        tokens: list of strings, without padding.
        scores: float array `(tokens,)`, above 0 for tokens that make the output
            greater.
        target: the output's place, a tuple of ints, or `None` for a function.
        output: float, the output.
        baseline_output: float, the output for the baseline. `scores` add up to the
            difference of the two outputs, except for the error of a finite number of
            steps.
        name: str, the task's name for the output, such as a class; or `None`.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset("my_bert", num_classes=2)
    [saliency] = keras_bertfam.analysis.token_saliency(model, ["a dog sat"])
    saliency.plot("saliency.png")
    ```
    """

    tokens: list[str]
    scores: np.ndarray
    target: tuple[int, ...] | None
    output: float
    baseline_output: float
    name: str | None = None

    @property
    def error(self) -> float:
        """float: how far the sum of the scores is from the difference of the
        outputs.
        """
        return float(self.scores.sum() - (self.output - self.baseline_output))

    def __repr__(self) -> str:
        pairs = zip(self.tokens, self.scores, strict=True)
        return " ".join(f"{token} ({score:+.3f})" for token, score in pairs)

    def plot(self, path: Path | None = None) -> Any:
        """Draw a bar for each token.

        Args:
            path: file to write; its suffix (`.png`, `.svg`, `.pdf`) sets the format. Or
                `None`.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: without `matplotlib`, which the `analysis` extra has.
        """
        figure, [axes] = plots.new_figure(1)
        figure.set_size_inches(min(max(4, 0.25 * len(self.tokens)), _WIDEST), 4)
        colors = np.where(self.scores < 0, "tab:red", "tab:blue")
        places = np.arange(len(self.tokens))
        axes.bar(places, self.scores, color=list(colors))
        axes.set_xticks(places, self.tokens, rotation=90, parse_math=False)
        axes.axhline(0, color="black", linewidth=0.8)
        change = f"{self.baseline_output:.3g} to {self.output:.3g}"
        what = "the output" if self.name is None else f"{self.name!r}"
        axes.set(ylabel=f"added to {what}", title=f"{what}: from {change}")
        return plots.written(figure, path)


@checked
def token_saliency(
    task: Model,
    x: Any,
    target: int | str | Sequence[Any] | Callable[[Any], Tensor] | None = None,
    *,
    steps: int = 32,
    baseline: str = "mask",
    batch_size: int = 32,
) -> list[Saliency]:
    """Compute how much each token adds to an output, by integrated gradients.

    Gradients with respect to the tokens' embeddings are averaged along the straight
    line from a text without content to the text, and multiplied by the change of the
    embeddings. Special tokens, positions and segments don't change along the line.

    Args:
        task: a fine-tuning task.
        x: inputs of the task's `predict()`, a batch; or a dict of preprocessed rows.
        target: the output to explain, among those that calling the task gives:

            - an int or the name of a class, for classifiers of texts and choices;
            - `(word, class)` of a `TokenClassifier`; `(word,)` is its greatest one;
            - `("start_logits", place)`, or another name of a dict of outputs;
            - a function of the task's outputs that gives a tensor `(rows,)`;
            - `None`: the greatest one, or a regressor's only one.
        steps: int. Number of points on the line, by Gauss-Legendre quadrature.
        baseline: the text without content: `"mask"` or `"pad"` puts that token in place
            of each; `"zero"` has embeddings of zeros.
        batch_size: int. Rows in a batch.

    Returns:
        A `Saliency` for each example; for questions, one for each of their windows.

    Raises:
        ValueError: for a task without a preprocessor, an unknown `baseline`, or a
            `target` that isn't an output.

    Example:

    ```python
    model = keras_bertfam.tasks.TextClassifier.from_preset(
        "my_bert", label_names=["negative", "positive"])
    keras_bertfam.analysis.token_saliency(model, ["the cat sat"], "positive")
    ```

    Reference: [Sundararajan et al., 2017](https://arxiv.org/abs/1703.01365), sections
    3 and 5.
    """
    if task.preprocessor is None:
        raise ValueError("`task` must have a preprocessor. Received one of None.")
    preprocessed = isinstance(x, dict) and "token_ids" in x
    if not preprocessed and not hasattr(task.preprocessor, "as_tensors"):
        raise ValueError(
            "`task` must be a fine-tuning task with outputs for a text. Received: a "
            f"{type(task).__name__}."
        )
    if baseline not in _BASELINES:
        raise ValueError(
            f"`baseline` must be one of {_BASELINES}. Received: {baseline!r}."
        )
    check_at_least(1, steps=steps, batch_size=batch_size)
    rows = _rows(task.preprocessor, x)
    line = _Line(task, target, baseline, steps, batch_size)
    return [
        line.integrated({name: value[k] for name, value in rows.items()})
        for k in range(len(rows["token_ids"]))
    ]


class _Line:
    """Compute along the line from a baseline's embeddings to an example's."""

    def __init__(self, task, target, baseline, steps, batch_size):
        self.task, self.target, self.batch_size = task, target, batch_size
        self.name = None
        self.tokenizer = tokenizer = task.preprocessor.tokenizer
        self.special = [
            getattr(tokenizer, f"{name}_token_id") for name in ("start", "end", "pad")
        ]
        # Tokens that the task has added to the vocabulary are special, too.
        self.known = tokenizer.vocabulary_size()
        self.strings = token_strings(tokenizer)
        self.added = getattr(task.preprocessor, "new_tokens", ())
        self.special += range(self.known, self.known + len(self.added))
        self.content = None
        if baseline != "zero":
            self.content = getattr(tokenizer, f"{baseline}_token_id", None)
            if self.content is None:
                raise ValueError(
                    "`baseline` must be a token that the tokenizer has. Received: "
                    f"{baseline!r}."
                )
        self.embedding = backbone_of(task).token_embedding
        if self.embedding is None:
            raise ValueError(
                "`task` must read tokens. Received: one that reads characters, on "
                f"{type(task.backbone).__name__}."
            )
        self.first = None
        if not reads_rows(task):
            # The text is read on both sides; the decoder's has a start token before it.
            ids = np.array([task.backbone.record.start_token_ids], "int32")
            self.first = ops.cast(self.embedding(ids), "float32")
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        self.nodes, self.weights = (nodes + 1) / 2, weights / 2
        self.gradient = gradient_of(lambda *x: ops.sum(self._output(*x)), task)

    def integrated(self, row):
        """Compute the `Saliency` of an example, a dict of arrays."""
        ids = row["token_ids"]
        end = ops.convert_to_numpy(ops.cast(self.embedding(ids), "float32"))
        start = self._start(ids, end)
        place, chosen = self._chosen(row)
        ends = _repeated(row, 2)
        output, baseline_output = ops.convert_to_numpy(
            self._output(ops.convert_to_tensor(np.stack([end, start])), ends, chosen)
        )
        total = np.zeros(end.shape)
        for at in range(0, len(self.nodes), self.batch_size):
            part = slice(at, at + self.batch_size)
            points = self.nodes[part].reshape(-1, *[1] * end.ndim) * (end - start)
            points = ops.convert_to_tensor((start + points).astype("float32"))
            rows = _repeated(row, len(points))
            slopes = ops.convert_to_numpy(self.gradient(points, rows, chosen))
            total += np.tensordot(self.weights[part], slopes, axes=1)
        scores = ((end - start) * total).sum(axis=-1)
        seen = np.asarray(row.get("padding_mask", np.ones(ids.shape)), bool)
        tokens = [self._token(int(token)) for token in ids[seen]]
        return Saliency(
            tokens,
            scores[seen],
            place,
            float(output),
            float(baseline_output),
            self._called(place),
        )

    def _token(self, number):
        if number < self.known:
            return self.strings[number]
        return self.added[number - self.known]

    def _called(self, place):
        """Name an output as the task does: by its class or its key."""
        names = getattr(self.task, "label_names", None)
        if names is not None and place:
            return str(names[place[-1]])
        classes = getattr(self.task, "num_classes", None)
        return self.name if not classes or not place else f"class {place[-1]}"

    def _chosen(self, row):
        """Find the target's output, and make an array with a 1 in its place."""
        if callable(self.target):
            return None, np.zeros(0, "float32")
        given = _outputs(self.task, _repeated(row, 1))
        name, place = _place(self.task, given, self.target)
        words = row.get("word_mask")
        if words is not None and place and not words[place[0]]:
            raise ValueError(
                f"`target` must be one of the {np.sum(words)} words of an example. "
                f"Received: {self.target!r}."
            )
        self.name = name
        chosen = np.zeros((given if name is None else given[name]).shape, "float32")
        chosen[place] = 1
        return place, chosen

    def _output(self, states, rows, chosen):
        """Compute the output of each row from the states of its tokens' embeddings."""
        with _embedded_as(self.embedding, states, self.first):
            outputs = self.task(rows, training=False)
        if callable(self.target):
            values = ops.cast(self.target(outputs), "float32")
            if values.shape != states.shape[:1]:
                raise ValueError(
                    "`target` must give a number for each row. Received: a tensor of "
                    f"the shape {tuple(values.shape)} of {states.shape[0]} rows."
                )
            return values
        outputs = outputs if self.name is None else outputs[self.name]
        products = ops.multiply(ops.cast(outputs, "float32"), chosen)
        return ops.sum(ops.reshape(products, (states.shape[0], -1)), axis=1)

    def _start(self, ids, end):
        special = np.isin(ids, self.special)
        if self.content is None:
            return np.where(special[..., None], end, 0.0)
        ids = np.where(special, ids, self.content).astype(ids.dtype)
        return ops.convert_to_numpy(ops.cast(self.embedding(ids), "float32"))


@contextlib.contextmanager
def _embedded_as(layer: Any, states: Tensor, first: Tensor | None) -> Iterator[None]:
    """Let a layer return given states, whatever its inputs, within this context.

    With `first`, float `(1, 1, width)`, the second call, a decoder's, returns it
    followed by all states except the last.
    """
    calls = itertools.count()

    def call(ids: Tensor, reverse: bool = False) -> Tensor:
        found = ops.reshape(states, (*ids.shape, states.shape[-1]))
        if first is not None and next(calls):
            begin = ops.broadcast_to(first, (found.shape[0], 1, first.shape[-1]))
            found = ops.concatenate([begin, found[:, :-1]], axis=1)
        return ops.cast(found, layer.compute_dtype)

    names = ("call", "quantized_call")  # quantised layers use the second method
    for name in names:
        object.__setattr__(layer, name, call)
    try:
        yield
    finally:
        for name in names:
            object.__delattr__(layer, name)


def _rows(preprocessor, x):
    """Make rows of tokens from texts, a dict of arrays."""
    rows = x if isinstance(x, dict) and "token_ids" in x else None
    if rows is None:
        texts = refuse_single(preprocessor.as_tensors(x), preprocessor.single_rank)
        rows = preprocessor.encode(texts)
    # With `start_mask` the outputs would be spans, which have no gradient.
    return {k: np.asarray(value) for k, value in rows.items() if k != "start_mask"}


def _repeated(row, count):
    return {name: np.repeat(value[None], count, axis=0) for name, value in row.items()}


@without_gradients
def _outputs(task, rows):
    """Compute the outputs of a single row, as arrays without the batch axis."""
    outputs = task(rows, training=False)
    if isinstance(outputs, dict):
        return {k: ops.convert_to_numpy(value)[0] for k, value in outputs.items()}
    return ops.convert_to_numpy(outputs)[0]


def _place(task, outputs, target):
    """Find a target's output: a name or `None`, and a tuple of indices."""
    names = getattr(task, "label_names", None)
    if isinstance(target, str) and names is not None and target in names:
        target = list(names).index(target)
    given = list(target) if isinstance(target, (list, tuple)) else [target]
    given = [] if target is None else given
    name = None
    if isinstance(outputs, dict):
        known: Any = {key: value.shape for key, value in outputs.items()}
        name = given.pop(0) if given and given[0] in outputs else None
        shape = known.get(name)
    else:
        known = shape = outputs.shape
    whole = all(isinstance(k, (int, np.integer)) for k in given)
    left = -1 if shape is None else len(shape) - len(given)
    inside = whole and left in (0, 1)
    if not inside or not all(0 <= k < n for k, n in zip(given, shape, strict=False)):
        raise ValueError(
            f"`target` must be one of the outputs of an example, {known}. "
            f"Received: {target!r}."
        )
    found = (outputs if name is None else outputs[name])[tuple(given)]
    return name, (*map(int, given), *([int(found.argmax())] if left else []))
