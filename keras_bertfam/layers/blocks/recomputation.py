"""What is computed again for the gradient, in place of being kept until then.

A step keeps what each operation of the forward pass gave until the gradient has used
it: for 12 layers of attention with dropout, 12 times the probabilities of all pairs of
tokens. Of a part that is recomputed it keeps the inputs only, and computes the part
once more when its gradient's turn comes.
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
    """Make a function whose inner values are computed again for its gradient.

    Keras's own `keras.remat` knows nothing of dropout. Under TensorFlow and PyTorch
    other elements would be dropped the second time, and the gradient be wrong; JAX
    stops at a seed that is changed inside. So seeds are drawn outside.

    Args:
        call: function of any nest of tensors and other values, to a tensor or a tuple
            of tensors.
        layers: the layers that it calls, whose dropouts drop the same both times.

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
    # TensorFlow finds variables by itself, and would count the gradient twice; it
    # multiplies what it is given, which masks can't be.
    if not ops.is_tensor(leaf) or isinstance(leaf, keras.Variable):
        return False
    return keras.backend.is_float_dtype(keras.backend.standardize_dtype(leaf.dtype))


def _remat(function):
    if keras.backend.backend() != "torch":
        return keras.remat(function)
    import torch.utils.checkpoint

    def run(*args):
        # Nothing here draws from PyTorch's own generators, whose states it would read
        # from a GPU.
        return torch.utils.checkpoint.checkpoint(
            function, *args, use_reentrant=False, preserve_rng_state=False
        )

    return run


def set_recomputation(model: keras.Model, part: str) -> None:
    """Say which part of each block a model's training step computes twice.

    Args:
        model: `keras.Model`.
        part: one of `RECOMPUTED`.

    Raises:
        ValueError: for another part, or a model that has no such part.
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
