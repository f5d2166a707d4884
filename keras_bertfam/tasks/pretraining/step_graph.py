"""The step of a loop as a graph, where the backend compiles no loops."""

from collections.abc import Callable
from typing import Any

import keras

# A step is traced once for arguments of these shapes.
Graphs = dict[tuple, Callable[..., Any]]


def as_graph(step: Callable[..., Any], arguments: tuple, known: Graphs) -> Any:
    """A step for arguments like these, without the Python of its layers.

    Args:
        step: function of tensors and nested structures of them.
        arguments: tuple of what it is called with.
        known: dict of the graphs that were made of the same step, to which a new one
            is added.

    Returns:
        A function of the same arguments: under PyTorch, where a layer's call costs
        several times what it computes for a single token, its operations. Elsewhere
        the loop is compiled, and `step` is returned as it is.
    """
    if keras.backend.backend() != "torch":
        return step
    key = tuple((tuple(x.shape), x.dtype) for x in keras.tree.flatten(arguments))
    if key not in known:
        from torch.fx.experimental.proxy_tensor import make_fx

        known[key] = make_fx(step)(*arguments)
    return known[key]
