"""Compile a whole training step as one graph under PyTorch.

Keras gives the step to `torch.compile`, which reads Python's bytecode. That stops at
Keras's code around each call of a layer, so that only single layers are compiled. Here
the step is called once with tensors that record all operations, with the gradient, as
JAX does. The record contains no code of Keras, and is compiled as a whole. Only the
optimizer's update stays outside; PyTorch does it with one kernel.
"""

import contextlib
from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.blocks.dropout import SeedsOfGraph
from keras_bertfam.types import Model, Tensor

# The most calls of dropouts in a step; BERT large has 74.
MOST_DROPOUTS = 1024


class CompiledSteps:
    """Hold the training steps of a task: a graph for each shape of its batches.

    Dropouts draw the same seeds as without a graph. So on a CPU a run is the same with
    and without it, except for rounding.

    Args:
        task: a built and compiled task.
    """

    def __init__(self, task: Model) -> None:
        self._task = task
        self._graphs: dict[Any, _Graph] = {}

    def __call__(self, batches: Any) -> dict[str, Tensor]:
        """Train on the batch in a list, in the form that Keras's loop asks for."""
        data = keras.tree.map_structure(_as_tensor, batches[0])
        leaves = keras.tree.flatten(data)
        known = tuple(
            (tuple(leaf.shape), leaf.dtype) if ops.is_tensor(leaf) else leaf
            for leaf in leaves
        )
        # Between two calls, parts of a model may be frozen, or its weights replaced.
        task = self._task
        variables = tuple(
            tuple(map(id, group))
            for group in (task.trainable_variables, task.non_trainable_variables)
        )
        key = (str(keras.tree.map_structure(type, data)), known, variables)
        if key not in self._graphs:
            self._graphs[key] = _Graph(self._task, data)
        return self._graphs[key].step(leaves)


class _Graph:
    """Hold the step for one shape of batches.

    Args:
        task: the task.
        data: a batch of the shape.
    """

    def __init__(self, task: Model, data: Any) -> None:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        self._task = task
        self._trainable = [*task.trainable_variables]
        self._others = [*task.non_trainable_variables, *task.metrics_variables]
        scale = getattr(task.optimizer, "dynamic_scale", None)
        self._others += [] if scale is None else [scale]
        self._changed: list[int] = []
        leaves = keras.tree.flatten(data)
        self._places = [k for k, leaf in enumerate(leaves) if ops.is_tensor(leaf)]
        self._device = self._trainable[0].value.device
        keys = torch.zeros((MOST_DROPOUTS, 2), dtype=torch.int32, device=self._device)

        def step(trainable, others, tensors, keys):
            values = [value.detach().requires_grad_() for value in trainable]
            filled = [*leaves]
            for place, tensor in zip(self._places, tensors, strict=True):
                filled[place] = tensor
            batch = keras.tree.pack_sequence_as(data, filled)
            self._seeds = SeedsOfGraph(keys)
            variables = [*self._trainable, *self._others]
            pairs = zip(variables, [*values, *others], strict=True)
            with (
                self._seeds.recorded(),
                keras.StatelessScope(list(pairs)) as scope,
                _gradients_kept(task) as kept,
            ):
                logs = task.train_step(batch)
            after = [scope.get_current_value(v) for v in self._others]
            self._changed = [
                k for k, before in enumerate(others) if after[k] is not before
            ]
            return kept.gradients, [after[k] for k in self._changed], logs

        recorded = make_fx(step, tracing_mode="fake")
        graph = recorded(*self._values(), [leaves[k] for k in self._places], keys)
        self._compiled = torch.compile(graph, fullgraph=True, dynamic=False)

    def _values(self):
        return tuple(
            [variable.value.detach() for variable in variables]
            for variables in (self._trainable, self._others)
        )

    def step(self, leaves: list[Any]) -> dict[str, Tensor]:
        """Train on a batch, given as its leaves."""
        import torch

        keys = torch.from_numpy(self._seeds.draw()).to(self._device)
        seeding = self._seeds.seeding
        scope: Any = contextlib.nullcontext()
        if seeding is not None:
            scope = seeding.generator_of(self._device)
        with torch.no_grad():
            tensors = [leaves[k] for k in self._places]
            with scope:
                gradients, after, logs = self._compiled(*self._values(), tensors, keys)
            for place, value in zip(self._changed, after, strict=True):
                self._others[place].assign(value)
            self._task.optimizer.apply(gradients, self._trainable)
        return logs


class _KeptGradients:
    """Stand in for an optimizer, and keep the gradients that it gets."""

    def __init__(self, optimizer):
        self.scale_loss = optimizer.scale_loss
        self.gradients: Any = None

    def apply(self, gradients, variables):
        self.gradients = [*gradients]


@contextlib.contextmanager
def _gradients_kept(task):
    optimizer = task.optimizer
    task.optimizer = _KeptGradients(optimizer)
    try:
        yield task.optimizer
    finally:
        task.optimizer = optimizer


def _as_tensor(leaf):
    return None if leaf is None else ops.convert_to_tensor(leaf)


def check_part(jit_compile: Any, name: str, given: Any) -> None:
    """Raise an error for an argument of `compile()` that a single graph can't have.

    The compiler would merge computations that a step repeats to save memory. And the
    weights of several batches aren't in the graph of one batch.

    Args:
        jit_compile: the argument of `compile()`.
        name: str. The other argument's name.
        given: its value. A graph can have `None` or `"none"`.

    Raises:
        ValueError: for any other value, with `jit_compile=True` under PyTorch.
    """
    makes_graphs = jit_compile is True and keras.backend.backend() == "torch"
    if makes_graphs and given not in (None, "none"):
        raise ValueError(
            f"`{name}` must be left out with jit_compile=True under PyTorch. "
            f"Received: {name}={given!r}."
        )
