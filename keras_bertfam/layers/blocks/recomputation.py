"""Recomputation for the gradient, which saves memory.

A training step keeps the results of each operation until the gradient has used them.
For 12 layers of attention with dropout these are 12 times the probabilities of all
pairs of tokens. Of a part that is recomputed the step keeps only the inputs. It
computes the part a second time when it computes the part's gradient.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras import ops

from keras_bertfam.keras_quirks.model_layers import layers_of
from keras_bertfam.layers.blocks.dropout import Dropout

RECOMPUTED = ("none", "attention", "block")


def recomputed(call: Callable[..., Any], layers: Iterable[Any]) -> Callable[..., Any]:
    """Make a function that is computed again for its gradient.

    Dropout drops the same elements both times, since its seeds are drawn outside of the
    function. Keras's own `keras.remat` ignores dropout: with TensorFlow and PyTorch the
    second computation would drop other elements, and the gradient would be wrong; JAX
    raises an error for a seed that changes inside.

    Args:
        call: function of any nest of tensors and other values. It returns a tensor or a
            tuple of tensors.
        layers: the layers that `call` calls.

    Returns:
        Function of the same arguments.
    """
    dropouts = {
        id(each): each
        for layer in layers
        for each in layers_of(layer)
        if isinstance(each, Dropout) and each.kept_rate < 1
    }.values()

    def run(*args, **kwargs):
        leaves = keras.tree.flatten((args, kwargs))
        places = [k for k, leaf in enumerate(leaves) if _is_value(leaf)]
        seeds = [each.next_seed() for each in dropouts]

        def again(*tensors):
            filled = [*leaves]
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            args_, kwargs_ = keras.tree.pack_sequence_as((args, kwargs), filled)
            with contextlib.ExitStack() as stack:
                for each, seed in zip(dropouts, seeds, strict=True):
                    stack.enter_context(each.drops_by(seed))
                return call(*args_, **kwargs_)

        return _remat(again)(*(leaves[place] for place in places))

    return run


def _is_value(leaf):
    # Variables stay out: TensorFlow finds them by itself, and would count their
    # gradients twice. Masks stay out: TensorFlow multiplies its inputs, and a bool
    # can't be multiplied.
    if not ops.is_tensor(leaf) or isinstance(leaf, keras.Variable):
        return False
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(leaf.dtype))


def _remat(function):
    if keras.backend.backend() != "torch":
        return keras.remat(function)
    import torch.utils.checkpoint

    def run(*args):
        # Nothing here draws from PyTorch's own generators. To preserve their states
        # PyTorch would have to read them from a GPU.
        return torch.utils.checkpoint.checkpoint(
            function, *args, use_reentrant=False, preserve_rng_state=False
        )

    return run


def set_recomputation(model: keras.Model, part: str) -> None:
    """Choose which part of each block a model's training step computes twice.

    Args:
        model: `keras.Model`.
        part: one of `RECOMPUTED`.

    Raises:
        ValueError: for another part, or a model without Transformer blocks.
    """
    if part not in RECOMPUTED:
        raise ValueError(
            f"`rematerialize` must be one of {RECOMPUTED}. Received: {part!r}."
        )
    layers = [x for x in layers_of(model) if hasattr(x, "recomputes")]
    if part != "none" and not layers:
        raise ValueError(
            f'`rematerialize` must be "none" for {type(model).__name__}, which has no '
            f"Transformer blocks. Received: rematerialize={part!r}."
        )
    for layer in layers:
        layer.recomputes = part
