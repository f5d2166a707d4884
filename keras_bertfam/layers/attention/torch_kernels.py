"""Attention by PyTorch's kernels."""

import contextlib
from typing import Any

from keras_bertfam.layers.attention.definition import Asked, whole_mask
from keras_bertfam.types import Tensor


def hiding_in_torch(mask: Tensor, dtype: Any) -> Tensor:
    """Do what `hiding` does without numbers from the host, for which GPUs wait."""
    import torch

    least = -3e4 if dtype == torch.float16 else -1e9
    added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return added.masked_fill_(~mask, least)


def sdpa_takes(asked: Asked) -> bool:
    """Tell whether `sdpa` computes what is asked, no slower than the explicit form."""
    if asked.window:
        return False
    if asked.dropout is None:
        return True
    # On CPUs it would draw from PyTorch's generator, one number at a time, and compute
    # the scores as the explicit form does. `torch.compile` can't set a generator.
    import torch

    return asked.query.is_cuda and not torch.compiler.is_compiling()


def sdpa(asked: Asked) -> Tensor:
    """Compute by PyTorch's kernel: flash, cuDNN's, memory-efficient or for CPUs.

    What is dropped follows from the layer's seeds. Flash rounds the rate to 1/256; of
    cuDNN's bits a few hang together, by which rates in a batch vary twice as much.

    Rows that sequences share are computed with a mask. In rows of 512 tokens, of which
    a token sees 187, kernels for sequences of many lengths gain a sixth of attention's
    time over cuDNN's, which skips nothing: too little for a second way.

    Hidden keys have scores of -1e9, as everywhere here, and not -inf: rows that see no
    key would be NaN in some kernels.
    """
    from torch.nn.functional import scaled_dot_product_attention

    mask, added, causal = asked.mask, asked.added, asked.causal
    if causal and (mask is not None or asked.bias is not None):
        # They don't go together.
        mask, added, causal = whole_mask(asked), None, False
    if added is not None:
        added = added.to(asked.query.dtype)
    elif mask is not None:
        added = hiding_in_torch(mask, asked.query.dtype)
    if asked.bias is not None:
        bias = asked.bias.to(asked.query.dtype)
        added = bias if added is None else bias + added
    rate = 0.0
    scope: contextlib.AbstractContextManager = contextlib.nullcontext()
    if asked.dropout is not None:
        rate = 1 - asked.dropout.kept_rate
        scope = asked.dropout.generator_of(asked.query.device)
    with scope:
        context = scaled_dot_product_attention(
            asked.query.transpose(1, 2),
            asked.key.transpose(1, 2),
            asked.value.transpose(1, 2),
            attn_mask=added,
            dropout_p=rate,
            is_causal=causal,
            scale=asked.scale,
            enable_gqa=asked.is_grouped,
        )
    return context.transpose(1, 2)
