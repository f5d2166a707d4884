"""Maps between variables of our models and tensors of checkpoints.

A `WeightMap` is read in both directions. Its `Transform` is a pair of functions that
change the values: one makes the variable from tensors, and the other is its inverse.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from keras_bertfam.types import Model


@dataclasses.dataclass(frozen=True)
class Transform:
    """A pair of functions: from tensors of PyTorch to a variable here, and back.

    Attributes:
        join: function that takes a list of arrays and returns an array.
        split: function that takes an array, the number of tensors and the backbone, and
            returns a list of arrays.
        takes_heads: whether `join` takes the number of heads as well.
    """

    join: Callable[..., Any]
    split: Callable[..., Any]
    takes_heads: bool = False


def _beside(arrays, axis):
    # A single array isn't copied.
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)


# Side by side, as query, key and value are one variable of ours.
VECTOR = Transform(
    lambda arrays: _beside(arrays, 0), lambda a, count, _: np.split(a, count, 0)
)
KERNEL = Transform(
    lambda arrays: _beside([a.T for a in arrays], 1),
    lambda a, count, _: [part.T for part in np.split(a, count, 1)],
)


def _by_heads(kernel, _, backbone):
    """Cut a kernel into those of queries, keys and values.

    Keys and values may have fewer heads than queries.
    """
    first = backbone.num_heads * backbone.head_dim
    last = (kernel.shape[1] + first) // 2
    return [part.T for part in np.split(kernel, (first, last), 1)]


# Side by side as well, for queries that may share keys and values.
GROUPED = Transform(KERNEL.join, _by_heads)
# XLNet's kernels are `(hidden_dim, num_heads, head_dim)`.
HEADS = Transform(
    lambda arrays: _beside([a.reshape(len(a), -1) for a in arrays], 1),
    lambda a, count, backbone: [
        part.reshape(len(a), backbone.num_heads, -1) for part in np.split(a, count, 1)
    ],
)
HEADS_OUT = Transform(
    lambda arrays: arrays[0].reshape(len(arrays[0]), -1).T,
    lambda a, _, backbone: [a.T.reshape(a.shape[1], backbone.num_heads, -1)],
)
STACKED = Transform(np.stack, lambda a, *_: list(a))
FIRST = Transform(lambda arrays: arrays[0][0], lambda a, *_: [a[None]])
# Add the only row of token types to every position, as our model has no types.
POSITIONS = Transform(
    lambda arrays: arrays[0] + arrays[1][0],
    lambda a, *_: [a, np.zeros((1, a.shape[1]), a.dtype)],
)
# The output table, if it isn't the token table.
OUTPUT_TABLE = "token_embedding.reverse_embeddings"


@dataclasses.dataclass(frozen=True)
class WeightMap:
    """The name of a variable of ours, and the names of the tensors that make it.

    Attributes:
        ours: str. Path of attributes from the backbone, or from the head, to the
            variable. `{layer}` stands for each index of the list before it. A map
            whose path leads to `None` doesn't apply.
        theirs: tuple of names of tensors, without the family's prefix.
        transform: `Transform`.
        segments: bool or `None`. With `True` the map applies only to a backbone with
            segments, with `False` only to one without. `None` is for both.
        required: bool. Whether a checkpoint must have the tensors.
    """

    ours: str
    theirs: tuple
    transform: Transform = VECTOR
    segments: bool | None = None
    required: bool = True

    def at(self, layer: int) -> "WeightMap":
        """Give the map for one layer."""
        return dataclasses.replace(
            self,
            ours=self.ours.format(layer=layer),
            theirs=tuple(name.format(layer=layer) for name in self.theirs),
        )


WeightMaps: TypeAlias = tuple[WeightMap, ...]


def same(ours: str, theirs: str, **kwargs: Any) -> WeightMaps:
    """Map one variable to one tensor."""
    return (WeightMap(ours, (theirs,), **kwargs),)


def dense(ours: str, *theirs: str, **kwargs: Any) -> WeightMaps:
    """Map a dense layer to one or more layers of `torch.nn.Linear`, side by side."""
    return (
        WeightMap(
            f"{ours}.kernel", tuple(f"{n}.weight" for n in theirs), KERNEL, **kwargs
        ),
        WeightMap(f"{ours}.bias", tuple(f"{n}.bias" for n in theirs), **kwargs),
    )


def norm(ours: str, theirs: str) -> WeightMaps:
    """Map a layer norm."""
    return (
        WeightMap(f"{ours}.gamma", (f"{theirs}.weight",)),
        WeightMap(f"{ours}.beta", (f"{theirs}.bias",)),
    )


def find(owner: Any, path: str) -> Any:
    """Follow a path of attributes from an object; give `None` if it ends early."""
    for name in path.split("."):
        if owner is None:
            return None
        owner = owner[int(name)] if name.isdigit() else getattr(owner, name, None)
    return owner


def applying(
    weights: Iterable[WeightMap], owner: Any, backbone: Model
) -> Iterator[tuple[WeightMap, Any]]:
    """Yield the maps that apply to a model, one for each variable.

    Args:
        weights: tuple of `WeightMap`.
        owner: the backbone or the head, from which paths start.
        backbone: the backbone.

    Yields:
        Pairs of a `WeightMap` and its variable.
    """
    for weight in weights:
        if weight.segments not in (None, bool(getattr(backbone, "num_segments", 0))):
            continue
        layers = [weight]
        if "{layer}" in weight.ours:
            blocks = find(owner, weight.ours.partition(".{layer}")[0])
            layers = [weight.at(index) for index in range(len(blocks))]
        for one in layers:
            variable = find(owner, one.ours)
            if variable is not None:
                yield one, variable
