"""Probes of many layers, trained side by side."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.types import Tensor

_HIDDEN = {"linear": 0, "mlp": 1024, "edge": 256}
KINDS = tuple(_HIDDEN)
_PROJECTED = 256
_EDGE_DROPOUT = 0.3


class Probes(keras.Model):
    """Classifiers of spans by frozen states, one for each layer, as one model.

    Each weight has an axis for the probe. The loss is the sum of the probes' losses,
    and Adam works on each number by itself. So each probe is trained as it would be
    alone.

    Args:
        kind: a name in `KINDS`.
        mixed: bool array `(probes, layers)`: which layers each probe sees. It sees
            several layers as a scalar mix.
        spans: int, 1 or 2.
        width: int. Words of the longest span.
        dim: int. Width of the states.
        classes: int.

    Call arguments:
        inputs: dict of `states`, float `(batch, spans, width, layers, dim)`, and
            `mask`, bool `(batch, spans, width)`, `True` for words in the spans.

    Returns:
        Float tensor `(batch, probes, classes)`: logits.
    """

    def __init__(
        self,
        kind: str,
        mixed: np.ndarray,
        spans: int,
        width: int,
        dim: int,
        classes: int,
    ) -> None:
        super().__init__(dtype="float32")
        self.kind, self.mixed = kind, mixed
        count, layers = mixed.shape
        self._several = mixed.sum(axis=1) > 1
        self._sizes: dict[str, tuple[int, ...]] = {}
        if layers > 1:
            self._sizes |= {"mix": (layers,), "gamma": ()}
        inner = dim * (3 if spans == 2 else 1)
        if kind == "edge":
            for k in range(spans):
                self._sizes[f"projection_{k}"] = (dim, _PROJECTED)
                self._sizes[f"projection_bias_{k}"] = (_PROJECTED,)
                if width > 1:
                    self._sizes[f"attention_{k}"] = (_PROJECTED, 1)
            inner = spans * _PROJECTED
        if kind != "linear":
            self._sizes["hidden"] = (inner, _HIDDEN[kind])
            self._sizes["hidden_bias"] = (_HIDDEN[kind],)
            inner = _HIDDEN[kind]
        if kind == "edge":
            self._sizes |= {"scale": (inner,), "center": (inner,)}
            self._seeds = keras.random.SeedGenerator(0)
        self._sizes |= {"kernel": (inner, classes), "bias": (classes,)}
        self.values = {
            name: self.add_weight(shape=(count, *size), name=name, initializer="zeros")
            for name, size in self._sizes.items()
        }
        self.built = True

    def restart(self, seed: int) -> None:
        """Set all weights to the initial values of a seed."""
        rng = np.random.default_rng(seed)
        if self.kind == "edge":
            self._seeds.state.assign(keras.random.SeedGenerator(seed).state)
        for name, size in self._sizes.items():
            shape = (self.mixed.shape[0], *size)
            if len(size) == 2:
                limit = math.sqrt(6.0 / sum(size))
                self.values[name].assign(rng.uniform(-limit, limit, shape))
            else:
                self.values[name].assign(
                    np.full(shape, float(name in ("gamma", "scale")))
                )

    def mix_weights(self) -> np.ndarray:
        """Give the layers' shares in each probe's input, `(probes, layers)`."""
        return ops.convert_to_numpy(self._shares(self._tensors()))

    def _tensors(self):
        return {name: ops.convert_to_tensor(v) for name, v in self.values.items()}

    def _shares(self, values):
        if self.mixed.shape[1] == 1:
            return ops.ones(self.mixed.shape)
        return ops.softmax(ops.where(self.mixed, values["mix"], -1e30))

    def call(self, inputs: dict[str, Tensor], training: bool = False) -> Tensor:
        values = self._tensors()
        shares = self._shares(values)
        if shares.shape[1] > 1:
            gamma = ops.where(self._several, values["gamma"], 1.0)
            shares = shares * ops.expand_dims(gamma, 1)
        states = ops.einsum("pl,bswld->pbswd", shares, inputs["states"])
        mask = ops.cast(inputs["mask"], "float32")
        _, _, spans, width, _ = states.shape
        if self.kind == "edge":
            pooled = [
                _attended(states[:, :, k], mask[:, k], values, k) for k in range(spans)
            ]
        else:
            sums = ops.sum(states * ops.expand_dims(mask, -1), axis=3)
            means = sums / ops.expand_dims(ops.sum(mask, axis=2), -1)
            pooled = [means[:, :, k] for k in range(spans)]
            if spans == 2:
                pooled.append(pooled[0] * pooled[1])
        x = ops.concatenate(pooled, axis=-1)
        if self.kind == "mlp":
            x = ops.relu(_dense(x, values, "hidden", "hidden_bias"))
        if self.kind == "edge":
            x = ops.tanh(_dense(x, values, "hidden", "hidden_bias"))
            x = x - ops.mean(x, axis=-1, keepdims=True)
            x = x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-5)
            x = x * ops.expand_dims(values["scale"], 1)
            x = x + ops.expand_dims(values["center"], 1)
            if training:
                x = keras.random.dropout(x, _EDGE_DROPOUT, seed=self._seeds)
        return ops.transpose(_dense(x, values, "kernel", "bias"), (1, 0, 2))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Add up the mean losses of the probes.

        `y`, bool `(batch, probes, classes)`, is `True` for a target's labels.
        """
        target = ops.cast(y, y_pred.dtype)
        if self.kind == "edge":
            losses = ops.mean(ops.softplus(y_pred) - target * y_pred, axis=-1)
        else:
            losses = -ops.sum(target * ops.log_softmax(y_pred), axis=-1)
        return ops.sum(ops.mean(losses, axis=0))


def _dense(x, values, kernel, bias):
    return ops.matmul(x, values[kernel]) + ops.expand_dims(values[bias], 1)


def _attended(states, mask, values, k):
    """Project the words of a span, and average them by attention."""
    count, batch, width, dim = states.shape
    flat = ops.reshape(states, (count, -1, dim))
    flat = _dense(flat, values, f"projection_{k}", f"projection_bias_{k}")
    if width == 1:
        return flat
    scores = ops.matmul(flat, values[f"attention_{k}"])
    scores = ops.reshape(scores, (count, batch, -1))  # widths differ
    scores = ops.where(ops.cast(mask, "bool")[None], scores, -1e30)
    states = ops.reshape(flat, (count, batch, -1, _PROJECTED))
    return ops.sum(ops.expand_dims(ops.softmax(scores), -1) * states, axis=2)


_AT_ONCE = 256 * 32  # words of spans


class Spans:
    """Targets in the form that `Probes` take.

    Args:
        states: float array `(words, layers, dim)`.
        places: int array `(targets, spans, 2)`, see `Targets`.
    """

    def __init__(self, states: Any, places: np.ndarray) -> None:
        self._states, self._places = states, places
        self.width = int((places[..., 1] - places[..., 0]).max())

    def __getitem__(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Give the inputs of some targets, by their numbers."""
        begins, ends = self._places[rows, :, :1], self._places[rows, :, 1:]
        places = begins + np.arange(self._width(rows))
        mask = places < ends
        return {"states": self._states[np.where(mask, places, begins)], "mask": mask}

    def _lengths(self, rows):
        places = self._places[rows]
        return (places[..., 1] - places[..., 0]).max(axis=1)

    def _width(self, rows):
        # A batch is as wide as the next power of 2. So few widths are compiled, and one
        # long span doesn't make all batches wide.
        width = 2 ** math.ceil(math.log2(max(2, self._lengths(rows).max())))
        return min(width, self.width)

    def logits(self, model: Probes, rows: np.ndarray, size: int = 256) -> np.ndarray:
        """Compute a model's logits for some targets, `(targets, probes, classes)`.

        The widest targets come first. A batch has at most `size`, and fewer if they are
        wide.
        """
        order = np.argsort(-self._lengths(rows), kind="stable")
        found, done = [], 0
        while done < len(rows):
            width = self._width(rows[order[done : done + 1]])
            count = max(1, min(size, _AT_ONCE // width))
            # The last target is repeated to fill the last batch.
            at = order[np.minimum(np.arange(done, done + count), len(rows) - 1)]
            found.append(ops.convert_to_numpy(model.predict_on_batch(self[rows[at]])))
            done += count
        return np.concatenate(found)[np.argsort(order)]


def shuffled(
    rows: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield shuffled numbers of targets for an epoch, in batches of one size.

    Targets left over after the last full batch are left out. Fewer targets than a batch
    has are repeated.
    """
    rows = rng.permutation(np.resize(rows, max(len(rows), size)))
    yield from rows[: len(rows) // size * size].reshape(-1, size)


def train(
    model: Probes,
    batches: Callable[[], Iterator[tuple[Any, Any]]],
    validate: Callable[[], np.ndarray],
    epochs: int,
    patience: int,
) -> None:
    """Train each probe until its held-out loss stops falling; keep its best weights.

    Args:
        model: compiled `Probes`.
        batches: function without arguments that gives the batches of an epoch, tuples
            of inputs and labels.
        validate: function without arguments that gives a float array, the held-out loss
            of each probe.
        epochs: int. The greatest number of epochs.
        patience: int. A probe's training ends after so many epochs without a lower
            loss.
    """
    variables = list(model.values.values())
    least, waited = np.full(len(model.mixed), np.inf), np.zeros(len(model.mixed), int)
    best = _arrays(variables)
    for _ in range(epochs):
        for x, y in batches():
            model.train_on_batch(x, y)
        losses, running = validate(), waited < patience
        better = (losses < least) & running
        least = np.where(better, losses, least)
        waited = np.where(better, 0, waited + running)
        for kept, now in zip(best, _arrays(variables), strict=True):
            kept[better] = now[better]
        if (waited >= patience).all():
            break
    for variable, kept in zip(variables, best, strict=True):
        variable.assign(kept)


def _arrays(variables):
    tensors = map(ops.convert_to_tensor, variables)
    return [np.array(ops.convert_to_numpy(tensor)) for tensor in tensors]
