"""Attention by PyTorch's kernels."""

import contextlib
from typing import Any

from keras_bertfam.layers.attention.definition import Asked, for_each_head, whole_mask
from keras_bertfam.types import Tensor


def hiding_in_torch(mask: Tensor, dtype: Any) -> Tensor:
    """Do what `hiding` does, without numbers from the host, which GPUs wait for."""
    import torch

    least = -3e4 if dtype == torch.float16 else -1e9
    added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return added.masked_fill_(~mask, least)


def sdpa_takes(asked: Asked) -> bool:
    """Tell whether `sdpa` computes this attention, no slower than the explicit form."""
    if asked.window:
        return False
    if asked.dropout is None:
        return True
    # With dropout on CPUs, PyTorch's kernel draws from its own generator, one number at
    # a time, and computes all scores. `torch.compile` can't set that generator.
    import torch

    return asked.query.is_cuda and not torch.compiler.is_compiling()


def sdpa(asked: Asked) -> Tensor:
    """Compute attention by PyTorch's kernel: flash, cuDNN, memory-efficient or CPU.

    Dropout follows from the layer's seeds. The flash kernel rounds the rate to 1/256.
    Some random bits of cuDNN's kernel are correlated: the share of dropped elements
    varies twice as much between batches.

    Packed rows are computed with a mask. Kernels for sequences of different lengths
    would skip what the mask hides. In rows of 512 tokens, where a token sees 187, they
    save a sixth of the attention's time over cuDNN's kernel: too little for a second
    code path.

    Hidden keys have scores of -1e9, not -inf: with -inf some kernels give NaN for
    queries that see no key.
    """
    from torch.nn.functional import scaled_dot_product_attention

    mask, added, causal = asked.mask, asked.added, asked.causal
    if causal and (mask is not None or asked.bias is not None):
        # PyTorch takes a mask or `is_causal`, not both.
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
    key, value, grouped = asked.key, asked.value, asked.is_grouped
    if grouped and added is not None and asked.query.is_cuda:
        # With a mask only the kernel that keeps all scores knows groups there.
        heads = asked.query.shape[2]
        key, value = (for_each_head(x, heads) for x in (key, value))
        grouped = False
    with scope:
        context = scaled_dot_product_attention(
            asked.query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=added,
            dropout_p=rate,
            is_causal=causal,
            scale=asked.scale,
            enable_gqa=grouped,
        )
    return context.transpose(1, 2)
