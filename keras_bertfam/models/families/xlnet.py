"""XLNet."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.embedding import TokenEmbedding
from keras_bertfam.layers.recurrent.relative_transformer import (
    RelativeTransformerStack,
)
from keras_bertfam.layers.recurrent.two_streams import (
    arrange_two_streams,
    check_memory,
    extend_memory,
)
from keras_bertfam.models.base import TokenBackbone, arguments_of
from keras_bertfam.presets.families.xlnet import XLNET
from keras_bertfam.transformer_config import checked_pruned_heads, head_dim_of
from keras_bertfam.types import Config, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class XLNetBackbone(TokenBackbone):
    """XLNet: relative positions and segments, memory, and two streams.

    With `mask_positions`, for permutation language modelling, it runs both streams and
    returns the query stream at these positions. Otherwise it is an encoder with the
    same weights, and returns the content stream.

    Args:
        vocabulary_size: int. Rows of the token table.
        num_layers: int.
        num_heads: int. Must divide `hidden_dim` unless `head_dim` is given.
        hidden_dim: int, even. Width of the hidden states.
        intermediate_dim: int. Inner width of the feed-forward sub-layers.
        head_dim: int or `None`. Width of a head; `None` means
            `hidden_dim // num_heads`.
        attention_type: `"bi"`, or `"uni"`: tokens attend to earlier ones only.
        untie_biases: bool. Whether each layer has its own biases `r_w`, `r_r` and
            `r_s`, as in the released models.
        clamp_length: int or `None`. Larger distances count as this one.
        activation: `"gelu_tanh"`, `"gelu"` (erf; that of `transformers`), or a
            Keras activation name.
        dropout: float. Dropout rate of embeddings, positions, sub-layer outputs
            and within the feed-forward sub-layers.
        attention_dropout: float or `None`. Dropout rate of attention
            probabilities; `None` means `dropout`.
        layer_norm_epsilon: float.
        initializer_range: float.
        truncated_initializer: bool. See `EncoderBackbone`.
        pruned_heads: see `EncoderBackbone`.
        head_gates: see `EncoderBackbone`.
        dtype: Keras dtype or policy.

    Call arguments:
        inputs: dict of tensors with `token_ids` (int, `(batch, length)`). These are
            optional:

            - `padding_mask`, bool or int `(batch, length)`, 0 for padding. Padding may
              be on either side;
            - `segment_ids`, int `(batch, length)`. Attention learns only whether the
              segments of two tokens are equal. Memory is of segment 0;
            - `perm_ranks`, int `(batch, length)`: the factorisation order. A token's
              content state sees the tokens of its own and lower ranks. A query state
              sees only tokens of lower ranks. Tokens of equal rank see each other;
            - `perm_mask`, int `(batch, length, length)`, in place of `perm_ranks`: 1
              if token `i` doesn't attend to token `j`. The content stream always sees
              the token itself;
            - `mask_positions`, int `(batch, count)`: the tokens to predict;
            - `target_mapping`, float `(batch, count, length)`, in place of
              `mask_positions`: each row has a single 1, at the token to predict;
            - `reversed_rows`, bool `(batch,)`, true for rows whose text runs backwards;
            - `memory`, list of `num_layers` float tensors `(batch, memory_length,
              hidden_dim)`: the layers' inputs for the tokens just before;
            - `memory_mask`, bool `(batch, memory_length)`, false for states to ignore.
        positions: int tensor `(batch, count)`. Return the sequence output at these
            positions only; for calls without `mask_positions`.
        head_mask: float tensor `(num_layers, num_heads)` or `(num_layers, batch,
            num_heads)`; 0 switches a head off.
        return_pooled: bool. There is no pooler, so `True` is an error.
        return_hidden_states: bool. Whether to add `hidden_states` to the outputs.
        return_attention: bool. Whether to add `attentions` to the outputs.
        memory_length: int. Above 0, add `memory` to the outputs: the last
            `memory_length` states of the given memory and the first `reuse_length`
            tokens. No gradient flows through them.
        reuse_length: int or `None`. `None` means all tokens.

    Returns:
        Dict of float tensors: `sequence_output` `(batch, length or count,
        hidden_dim)`; `hidden_states`, list of `num_layers + 1` content states
        `(batch, length, hidden_dim)`; with two streams also `query_hidden_states`
        `(batch, count, hidden_dim)`; `attentions`, list of `num_layers` tensors
        `(batch, num_heads, queries, keys)`, whose queries are the tokens and then the
        tokens to predict; `memory`, list of `num_layers`.

    Raises:
        ValueError: for an odd `hidden_dim`, or one that `num_heads` doesn't
            divide; an unknown `attention_type`; ids outside the vocabulary in a
            NumPy input; an unknown input name; a memory with a wrong number of
            layers or rows; or tokens to predict without an order, which would see
            themselves.

    `from_preset()` knows the sizes `xlnet_base_en_cased` and
    `xlnet_large_en_cased`.

    Reference: [Yang et al., 2019](https://arxiv.org/abs/1906.08237). Here the first
    token of an order gets zeros as its context. In the released code it gets the mean
    of all values.

    Example:

    ```python
    backbone = keras_bertfam.models.XLNetBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32)
    token_ids = keras.ops.array([[5, 6, 7, 8]])
    backbone({"token_ids": token_ids})["sequence_output"].shape  # (1, 4, 16)
    backbone({
        "token_ids": token_ids,
        "perm_ranks": keras.ops.array([[3, 1, 0, 2]]),  # order 3, 2, 4, 1
        "mask_positions": keras.ops.array([[3, 0]]),
    })["sequence_output"].shape  # (1, 2, 16)
    ```
    """

    record = XLNET
    input_names = (
        "token_ids",
        "padding_mask",
        "segment_ids",
        "perm_ranks",
        "perm_mask",
        "mask_positions",
        "target_mapping",
        "reversed_rows",
        "memory",
        "memory_mask",
    )

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        attention_type: str = "bi",
        untie_biases: bool = True,
        clamp_length: int | None = None,
        activation: str = "gelu_tanh",
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        layer_norm_epsilon: float = 1e-12,
        initializer_range: float = 0.02,
        truncated_initializer: bool = False,
        pruned_heads: Any = None,
        head_gates: Config | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        head_dim = head_dim_of(hidden_dim, num_heads, head_dim)
        if attention_type not in ("bi", "uni"):
            raise ValueError(
                '`attention_type` must be "bi" or "uni". '
                f"Received: attention_type={attention_type!r}."
            )
        attention_dropout = dropout if attention_dropout is None else attention_dropout
        pruned_heads = checked_pruned_heads(pruned_heads, num_layers, num_heads)
        super().__init__(dtype=dtype, **kwargs)
        dtype = self.policies(dtype)
        self.keep_arguments(locals())

        # === Layers ===
        self.token_embedding = TokenEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=self.make_initializer(),
            dtype=dtype,
            name="token_embedding",
        )
        # A table of one row: the first state of every token to predict.
        self.query_embedding = TokenEmbedding(
            1,
            hidden_dim,
            embeddings_initializer=self.make_initializer(),
            dtype=dtype,
            name="query_embedding",
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.output_dropout = Dropout(dropout, dtype=dtype, name="output_dropout")
        self.encoder = RelativeTransformerStack(
            **self.arguments_for(RelativeTransformerStack),
            causal=attention_type == "uni",
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
        self.query_embedding.build((None, None))
        self.encoder.build((None, None, self.hidden_dim))
        self._finish_made_layers()
        self.built = True

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        super().check_inputs(inputs)
        check_memory(inputs.get("memory") or (), self.num_layers, inputs["token_ids"])
        asked = {"mask_positions", "target_mapping"} & inputs.keys()
        if asked and not {"perm_ranks", "perm_mask"} & inputs.keys():
            raise ValueError(
                f"`{min(asked)}` needs `perm_ranks` or `perm_mask`: without an order "
                "the tokens to predict would see themselves. Received: "
                f"{sorted(inputs)}."
            )
        self.check_positions("mask_positions", inputs.get("mask_positions"), inputs)

    def call(
        self,
        inputs: dict[str, Any],
        positions: Tensor = None,
        head_mask: Tensor = None,
        return_pooled: bool | None = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
        memory_length: int = 0,
        reuse_length: int | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        if return_pooled:
            raise ValueError("`return_pooled` must be false: XLNet has no pooler.")
        token_ids = ops.cast(inputs["token_ids"], "int32")
        length = ops.shape(token_ids)[1]
        arranged = arrange_two_streams(inputs, causal=self.attention_type == "uni")
        x = self.token_embedding(token_ids)
        queries = None
        if arranged["positions"] is None:
            arranged["positions"] = positions
        else:
            queries = self.query_embedding(ops.zeros_like(arranged["positions"]))
            queries = self.embedding_dropout(queries, training=training)
        x, states, scores = self.encoder(
            self.embedding_dropout(x, training=training),
            queries=queries,
            head_mask=head_mask,
            return_hidden_states=return_hidden_states,
            return_scores=return_attention,
            training=training,
            **arranged,
        )
        outputs = {"sequence_output": self.output_dropout(x, training=training)}
        if return_hidden_states:
            outputs["hidden_states"] = [state[:, :length] for state in states]
            if queries is not None:
                outputs["query_hidden_states"] = [state[:, length:] for state in states]
        if return_attention:
            outputs["attentions"] = scores
        if memory_length:
            content = [state[:, :length] for state in states[:-1]]
            outputs["memory"] = extend_memory(
                arranged["memory"], content, memory_length, reuse_length
            )
        return outputs

    def _parts(self):
        embeddings = [self.token_embedding, self.query_embedding]
        return embeddings, [(block,) for block in self.encoder.blocks]

    def default_lora_layer_names(self) -> list[str]:
        return ["query", "key_value"]
