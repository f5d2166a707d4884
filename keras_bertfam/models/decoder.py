"""The causal Transformer of GPT, and the decoder of encoder-decoder models."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.models.encoder import EncoderBackbone
from keras_bertfam.presets.families.decoder import DECODER
from keras_bertfam.types import Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class DecoderBackbone(EncoderBackbone):
    """Causal Transformer, or the decoder of an encoder-decoder model.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int.
        hidden_dim: int.
        intermediate_dim: int.
        **kwargs: any other argument of `EncoderBackbone`. A decoder's defaults are
            `causal=True`, `embedding_norm=False`.

    Call arguments:
        inputs: dict of tensors, see `EncoderBackbone`. It can also have `prefix_mask`,
            bool or int `(batch, length)`: 1 for tokens that earlier tokens see too,
            such as the inputs of a prefix language model.
        context: float tensor `(batch, keys, hidden_dim)`, an encoder's states, or what
            `project_context` computed from them. It is for `cross_attention=True`.
        cross_mask: bool tensor `(batch, keys)` or `(batch, length, keys)`, true where
            the context may be attended to.
        cache: what `empty_cache` or the call for earlier tokens gave. Positions go on
            from `cache_index`; masks cover all keys of the cache.
        cache_index: int scalar, the position of the first token.
        positions, head_mask, return_pooled, return_hidden_states, return_attention:
            see `EncoderBackbone`.

    Returns:
        A dict, see `EncoderBackbone`. With a `cache` a dict of `sequence_output` and
        the new `cache`.

    Raises:
        ValueError: for what `EncoderBackbone` refuses; for a missing `context` with
            cross-attention, or a `context` without it.

    Example:

    ```python
    backbone = keras_bertfam.models.DecoderBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32, norm_first=True)
    outputs = backbone({
        "token_ids": keras.ops.array([[1, 2, 3]]),
        "prefix_mask": keras.ops.array([[1, 1, 0]]),
    })
    outputs["sequence_output"].shape  # (1, 3, 16)
    ```

    References: Radford et al., 2018, section 3.1; prefix:
    [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 3.2.1.
    """

    record = DECODER
    input_names = (*EncoderBackbone.input_names, "prefix_mask")

    def call(
        self,
        inputs: dict[str, Tensor],
        positions: Tensor = None,
        head_mask: Tensor = None,
        return_pooled: bool | None = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        training: bool | None = None,
        cache: Any = None,
        cache_index: Tensor = 0,
        context: Any = None,
        cross_mask: Tensor = None,
    ) -> dict[str, Any]:
        self._check_context(context)
        prefix = inputs.get("prefix_mask")
        arguments = {
            "prefix_mask": None if prefix is None else ops.cast(prefix, "bool"),
            "context": context,
            "cross_mask": cross_mask,
        }
        if cache is not None:
            others = {
                "positions": positions,
                "return_pooled": return_pooled,
                "return_hidden_states": return_hidden_states,
                "return_attention": return_attention,
            }
            self._check_cached(inputs, cache, cache_index, others)
            return self._go_on(
                inputs,
                cache,
                cache_index,
                training,
                head_mask=head_mask,
                **arguments,
            )
        return self._compute(
            inputs,
            positions,
            return_pooled,
            training,
            head_mask=head_mask,
            return_hidden_states=return_hidden_states,
            return_scores=return_attention,
            **arguments,
        )

    def _check_context(self, context):
        if (context is not None) != self.cross_attention:
            expected = "given" if self.cross_attention else "`None`"
            raise ValueError(
                f"`context` must be {expected} for a {type(self).__name__} with "
                f"cross_attention={self.cross_attention}. Received: "
                f"{None if context is None else type(context).__name__}."
            )

    def project_context(self, context: Tensor) -> tuple:
        """Compute the keys and values of an encoder's states, for each layer.

        Args:
            context: float tensor `(batch, keys, hidden_dim)`.

        Returns:
            A tuple, with a pair of float tensors `(batch, keys, num_heads, head_dim)`
            for each layer.
        """
        blocks = (self.encoder.block(index) for index in range(self.num_layers))
        return tuple(block[1].sublayer.project(context) for block in blocks)

    def default_lora_layer_names(self) -> list[str]:
        return ["qkv", "query", "key_value"]
