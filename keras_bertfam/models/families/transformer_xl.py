"""Transformer-XL."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.attention.self_attention import with_rows
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.heads.adaptive import AdaptiveEmbedding
from keras_bertfam.layers.recurrent.relative_transformer import (
    RelativeTransformerStack,
)
from keras_bertfam.layers.recurrent.two_streams import (
    check_memory,
    extend_memory,
    visible_keys,
)
from keras_bertfam.models.base import (
    TokenBackbone,
    arguments_of,
    check_without_cache,
)
from keras_bertfam.presets.families.transformer_xl import TRANSFORMER_XL
from keras_bertfam.transformer_config import head_dim_of
from keras_bertfam.types import Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TransformerXLBackbone(TokenBackbone):
    """Transformer-XL: causal, with relative positions and memory of earlier segments.

    Args:
        vocabulary_size: int.
        num_layers: int.
        num_heads: int. Must divide `hidden_dim` unless `head_dim` is given.
        hidden_dim: int, even. Width of the hidden states.
        intermediate_dim: int. Inner width of the feed-forward sub-layers.
        head_dim: int or `None`. Width of a head; `None` means
            `hidden_dim // num_heads`.
        cutoffs: sequence of ints: the first ids of clusters of rarer tokens, for
            adaptive embeddings and softmax, see `AdaptiveEmbedding`. Defaults to none.
        divisor: int. The width of embeddings is divided by it from cluster to cluster.
        untie_biases: bool. Whether each layer has its own biases `r_w` and `r_r`.
        same_length: bool. If true and there is memory, each token sees itself and as
            many earlier tokens as the memory is long. If false, it sees all earlier
            tokens and the whole memory.
        clamp_length: int or `None`. Larger distances count as this one.
        activation: `"relu"`, or another Keras activation name.
        dropout: float. Dropout rate of embeddings, positions, sub-layer outputs, the
            output and within the feed-forward sub-layers.
        attention_dropout: float. Dropout rate of attention probabilities.
        layer_norm_epsilon: float.
        initializer_range: float.
        dtype: Keras dtype or policy.

    Call arguments:
        inputs: dict of tensors with `token_ids` (int, `(batch, length)`). Three are
            optional: `padding_mask`, bool `(batch, length)`, false for padding;
            `memory`, list of `num_layers` float tensors `(batch, memory_length,
            hidden_dim)`: the layers' inputs for the tokens just before; and
            `memory_mask`, bool `(batch, memory_length)`, false for states to ignore.
        positions: int tensor `(batch, count)`. Return the sequence output only there.
        head_mask: see `XLNetBackbone`.
        return_pooled: bool. There is no pooler, so `True` is an error.
        return_hidden_states: bool. Whether to add `hidden_states` to the outputs.
        return_attention: bool. Whether to add `attentions` to the outputs.
        memory_length: int. Above 0, add `memory` to the outputs: the last
            `memory_length` states of the given memory and the tokens. No gradient flows
            through them.
        same_length, clamp_length: replace the constructor's values, if given.
        cache: what `empty_cache` or the call for earlier tokens gave. It holds all
            earlier tokens. Such calls take `token_ids` alone, and none of the arguments
            above.
        cache_index: int scalar, the number of earlier tokens.

    Returns:
        Dict of float tensors: `sequence_output` `(batch, length or count, hidden_dim)`;
        `hidden_states`, list of `num_layers + 1`; `attentions`, list of `num_layers`
        `(batch, num_heads, length, keys)`; `memory`, list of `num_layers`. With a
        `cache` it has `sequence_output` and the new `cache`.

    Raises:
        ValueError: for an odd `hidden_dim`, or one that `num_heads` doesn't divide, ids
            outside the vocabulary in a NumPy input, or a memory of another number of
            layers or rows.

    `from_preset()` knows the sizes `transformer_xl_base_en_wikitext103` and
    `transformer_xl_base_enwik8`, without weights.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.

    Example:

    ```python
    backbone = keras_bertfam.models.TransformerXLBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    inputs = {"token_ids": keras.ops.array([[5, 6, 7, 8]])}
    outputs = backbone(inputs, memory_length=3)
    backbone({**inputs, "memory": outputs["memory"]})
    ```
    """

    record = TRANSFORMER_XL
    causal = True
    input_names = ("token_ids", "padding_mask", "memory", "memory_mask")
    truncated_initializer = False

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        cutoffs: Sequence[int] = (),
        divisor: int = 1,
        untie_biases: bool = False,
        same_length: bool = False,
        clamp_length: int | None = None,
        activation: str = "relu",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        head_dim = head_dim_of(hidden_dim, num_heads, head_dim)
        cutoffs = [int(cutoff) for cutoff in cutoffs]
        super().__init__(dtype=dtype, **kwargs)
        dtype = self.policies(dtype)
        self.keep_arguments(locals())

        # === Layers ===
        common = {
            "embeddings_initializer": self.make_initializer(),
            "dtype": dtype,
            "name": "token_embedding",
        }
        self.token_embedding: Any = (
            AdaptiveEmbedding(vocabulary_size, hidden_dim, cutoffs, divisor, **common)
            if cutoffs
            else TokenEmbedding(vocabulary_size, hidden_dim, **common)
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.output_dropout = Dropout(dropout, dtype=dtype, name="output_dropout")
        self.encoder = RelativeTransformerStack(
            **self.arguments_for(RelativeTransformerStack),
            causal=True,
            use_segments=False,
            initializer=self.make_initializer(),
            dtype=dtype,
            name="encoder",
        )
        self.build()

    argument_names = arguments_of(__init__)

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return
        self.token_embedding.build((None, None))
        self.encoder.build((None, None, self.hidden_dim))
        self._finish_made_layers()
        self.built = True

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        super().check_inputs(inputs)
        check_memory(inputs.get("memory") or (), self.num_layers, inputs["token_ids"])

    def call(
        self,
        inputs: dict[str, Any],
        positions: Tensor = None,
        head_mask: Tensor = None,
        return_pooled: bool | None = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        memory_length: int = 0,
        same_length: bool | None = None,
        clamp_length: int | None = None,
        training: bool | None = None,
        cache: Any = None,
        cache_index: Tensor = 0,
    ) -> dict[str, Any]:
        if return_pooled:
            raise ValueError(
                "`return_pooled` must be false: Transformer-XL has no pooler."
            )
        if cache is not None:
            others = {
                "positions": positions,
                "head_mask": head_mask,
                "return_hidden_states": return_hidden_states,
                "return_attention": return_attention,
                "memory_length": memory_length or None,
                "same_length": same_length,
                "clamp_length": clamp_length,
                **{name: inputs.get(name) for name in self.input_names[1:]},
            }
            check_without_cache(others)
            return self._go_on(inputs, cache, cache_index, training)
        memory = inputs.get("memory") or None
        same = self.same_length if same_length is None else same_length
        x = self.token_embedding(ops.cast(inputs["token_ids"], "int32"))
        x = self.embedding_dropout(x * self.hidden_dim**0.5, training=training)
        x, states, scores = self.encoder(
            x,
            positions=None if positions is None else ops.cast(positions, "int32"),
            attention_mask=self._visible(inputs, memory, same),
            memory=memory,
            head_mask=head_mask,
            clamp_length=clamp_length,
            return_hidden_states=return_hidden_states,
            return_scores=return_attention,
            training=training,
        )
        outputs = {"sequence_output": self.output_dropout(x, training=training)}
        if return_hidden_states:
            outputs["hidden_states"] = states
        if return_attention:
            outputs["attentions"] = scores
        if memory_length:
            outputs["memory"] = extend_memory(memory, states[:-1], memory_length)
        return outputs

    def _go_on(self, inputs, cache, cache_index, training):
        """Compute the outputs of tokens that follow the tokens in the cache."""
        first = ops.convert_to_tensor(cache_index, "int32")
        batch, keys = ops.shape(cache[0])[:2]
        slots = ops.arange(keys, dtype="int32")
        # Rotate the cache so that the latest states come last, as in a memory.
        order = ops.mod(slots + first, keys)
        known = ops.broadcast_to(slots >= keys - first, (batch, keys))
        outputs = self.call(
            {
                "token_ids": inputs["token_ids"],
                "memory": [ops.take(states, order, axis=1) for states in cache],
                "memory_mask": known,
            },
            return_hidden_states=True,
            training=training,
        )
        after = zip(cache, outputs["hidden_states"][:-1], strict=True)
        cache = tuple(with_rows(states, first, new) for states, new in after)
        return {"sequence_output": outputs["sequence_output"], "cache": cache}

    def empty_cache(self, batch_size: int | Tensor, keys: int) -> tuple:
        """Make an empty cache with room for `keys` tokens.

        Returns:
            A tuple with a float tensor `(batch_size, keys, hidden_dim)` for each
            layer's inputs.

        Example:

        ```python
        backbone = keras_bertfam.models.TransformerXLBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32)
        cache = backbone.empty_cache(1, keys=8)
        prompt = {"token_ids": keras.ops.array([[1, 2, 3]])}
        cache = backbone(prompt, cache=cache)["cache"]
        outputs = backbone(
            {"token_ids": keras.ops.array([[4]])}, cache=cache, cache_index=3)
        outputs["sequence_output"].shape  # (1, 1, 16)
        ```
        """
        shape = (batch_size, keys, self.hidden_dim)
        return tuple(
            ops.zeros(shape, self.compute_dtype) for _ in range(self.num_layers)
        )

    def _visible(self, inputs, memory, same_length):
        """Tell which keys each token sees: first the memory's, then the tokens'."""
        token_ids, remembered = inputs["token_ids"], inputs.get("memory_mask")
        if memory is not None and remembered is None:
            remembered = ops.ones_like(memory[0][:, :, 0], dtype="bool")
        mask = visible_keys(
            token_ids,
            padding_mask=inputs.get("padding_mask"),
            causal=True,
            memory_mask=remembered,
        )
        if memory is None or not same_length:
            return mask
        rows, keys = ops.shape(mask)[1:]
        near = ops.expand_dims(ops.arange(rows), 1) <= ops.arange(keys)
        return ops.logical_and(mask, near)

    def _parts(self):
        return [self.token_embedding], [(block,) for block in self.encoder.blocks]

    def default_lora_layer_names(self) -> list[str]:
        return ["query", "key_value"]
