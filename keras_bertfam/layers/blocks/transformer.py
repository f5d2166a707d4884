"""The stack of Transformer blocks, which can share weights between them."""

from typing import Any, Self

import keras
from keras import ops

from keras_bertfam.layers.attention.cross_attention import CrossAttention
from keras_bertfam.layers.attention.disentangled import (
    DisentangledSelfAttention,
    RelativeTable,
)
from keras_bertfam.layers.attention.local_attention import LocalSelfAttention
from keras_bertfam.layers.attention.pattern import TokenRows, patterns_of
from keras_bertfam.layers.attention.positions import (
    RelativePositionBias,
    rotary_positions,
)
from keras_bertfam.layers.attention.self_attention import SelfAttention
from keras_bertfam.layers.attention.stack_heads import NoAttention, StackHeads
from keras_bertfam.layers.blocks.convolution import EmbeddingConvolution
from keras_bertfam.layers.blocks.dense import take_positions
from keras_bertfam.layers.blocks.dropout import Dropout
from keras_bertfam.layers.blocks.recomputation import recomputed
from keras_bertfam.layers.blocks.sublayers import (
    NO_NORM,
    FeedForward,
    ResidualSublayer,
    is_wide,
    make_norm,
)
from keras_bertfam.transformer_config import TransformerConfig, take_settings
from keras_bertfam.types import Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable("keras_bertfam")
class TransformerStack(StackHeads, keras.layers.Layer):
    """A stack of Transformer blocks; the config's `share` says what they share.

    Args:
        config: `TransformerConfig`.
        initializer: initializer of the kernels.
        shared: `TransformerStack` or `None`. Another stack, whose self-attention,
            feed-forward, final norm and head masks this one uses in place of new ones.
            The two configs may differ only in `causal`, `cross_attention` and
            `max_global_tokens`, and this stack can't have head gates. It has its own
            bias by relative position. `get_config()` leaves `shared` out: a stack that
            is made from the config has parts of its own.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        attention_mask: bool tensor `(batch, length)` or `(batch, length, length)`, true
            where a key may be attended to.
        positions: int tensor `(batch, count)`. Give the states at these positions
            only. They are the same as without `positions`, for less work: the last
            block computes queries, output projection and feed-forward only there.
        head_mask: float tensor `(num_layers, num_heads)`, or `(num_layers, batch,
            num_heads)`; 0 switches a head off.
        prefix_mask: bool tensor `(batch, length)`. In a causal stack, true for keys
            that earlier tokens see too.
        context: float tensor `(batch, keys, width)`, the states that cross-attention
            attends to; or a tuple of the keys and values that each block's
            `CrossAttention.project` computed from them.
        cross_mask: bool tensor `(batch, keys)` or `(batch, length, keys)`.
        cache: tuple of one pair for each layer, see `SelfAttention`.
        cache_index: int scalar, the position of the first token of `x`.
        position_ids: int tensor `(batch, length)`, for rotary positions.
        sequence_ids: int tensor `(batch, length)`. Tokens see their own sequence only.
        global_tokens: what `windows.tokens_at` gives, or `None`.
        places: int tensor `(batch, length)`, each token's position in the text, for a
            bias by relative position of tokens that aren't in order.
        added_queries: float tensor that broadcasts to `(batch, length or count,
            width)`. It is for encoders whose config has `disentangled`: DeBERTa's
            enhanced mask decoder. The last block is computed twice, with its inputs as
            keys and values both times. The first queries are its inputs plus
            `added_queries`, the second are the first output.
        return_hidden_states: bool. Whether to return the states of all layers.
        return_scores: bool. Whether to return the attention probabilities.

    Returns:
        Float tensor of shape `(batch, length or count, width)`. With
        `return_hidden_states` or `return_scores` a triple: this tensor, the list of
        `num_layers + 1` states, the input first, and the list of `num_layers`
        probabilities. A list that isn't wanted is `None`. With a `cache` a pair: this
        tensor and the new cache.

    Example:

    ```python
    config = keras_bertfam.models.TransformerConfig(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8,
        intermediate_dim=32, share="all")
    stack = keras_bertfam.layers.TransformerStack(config)
    stack(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        config: TransformerConfig,
        initializer: Initializer = "glorot_uniform",
        shared: "TransformerStack | None" = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.num_layers, self.num_heads = config.num_layers, config.num_heads
        self.head_gates = config.head_gates
        self.recomputes = "none"
        self.initializer = keras.initializers.get(initializer)
        self.patterns = patterns_of(config)
        has_bias = config.relative_buckets and config.disentangled is None
        if config.pruned_heads and has_bias:
            raise ValueError(
                "`pruned_heads` must be `None` with a bias by relative position, which "
                "all layers share. Received: "
                f"relative_buckets={config.relative_buckets}."
            )
        self._set_heads(config.pruned_heads, self._count("attention"))
        # Names are fixed: dtype policies of int8 models go by a layer's path.
        if shared is None:
            self.attention_layers = self._sublayers("attention", self._self_attention)
            self.feedforward_layers = self._sublayers("ffn", self._feed_forward)
        else:
            _check_shared(config, shared.config)
            self._shared = lambda: shared  # a function: Keras would track a layer
            self.attention_layers = shared.attention_layers
            self.feedforward_layers = shared.feedforward_layers
        self.cross_attention_layers = self.relative_bias = self.final_norm = None
        self.relative_table = self.convolution = None
        if config.cross_attention:
            self.cross_attention_layers = self._sublayers(
                "attention", self._cross_attention, name="cross_attention"
            )
        if has_bias:
            self.relative_bias = RelativePositionBias(
                config.num_heads,
                config.relative_buckets,
                config.relative_distance,
                bidirectional=not config.causal,
                initializer=self.initializer.clone(),
                name="relative_bias",
                dtype=self.dtype_policy,
            )
        if config.disentangled is not None:
            normalised = config.disentangled == "shared"
            self.relative_table = RelativeTable(
                config.relative_buckets,
                config.hidden_dim,
                config.relative_distance,
                norm_epsilon=config.layer_norm_epsilon if normalised else None,
                initializer=self.initializer.clone(),
                name="relative_table",
                dtype=self.dtype_policy,
            )
        if config.convolution:
            self.convolution = EmbeddingConvolution(
                config.convolution,
                config.activation,
                config.dropout,
                config.layer_norm_epsilon,
                initializer=self.initializer.clone(),
                name="convolution",
                dtype=self.dtype_policy,
            )
        if shared is not None:
            self.final_norm = shared.final_norm
        elif config.norm_first:
            wide = is_wide(config.norm, self.compute_dtype)
            self.final_norm = make_norm(
                config.norm,
                config.layer_norm_epsilon,
                "final_norm",
                bias=config.norm_bias,
                dtype="float32" if wide else self.dtype_policy,
            )
        self.dropout = Dropout(
            config.output_dropout or 0.0, name="dropout", dtype=self.dtype_policy
        )

    def _count(self, kind):
        """Count the sub-layers of a kind, which layers of a group may share."""
        shared = self.config.share in (kind, "all")
        return self.config.num_groups if shared else self.num_layers

    def _sublayers(self, kind, make, name=None):
        """Make the sub-layers of a kind, each in a `ResidualSublayer`."""
        config = self.config
        bare = not config.first_norm and kind == "attention" and name is None
        return [
            ResidualSublayer(
                make(index),
                norm_first=config.norm_first,
                dropout=config.dropout,
                layer_norm_epsilon=config.layer_norm_epsilon,
                norm=NO_NORM if bare and not index else config.norm,
                norm_bias=config.norm_bias,
                name=f"{name or kind}_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(self._count(kind))
        ]

    def _of_attention(self, num_heads):
        config = self.config
        return {
            "num_heads": num_heads,
            "head_dim": config.head_dim,
            "dropout": config.attention_dropout,
            "initializer": self.initializer.clone(),
            "use_bias": config.use_bias,
            "scale": config.attention_scale,
            "dtype": self.dtype_policy,
        }

    def _self_attention(self, index):
        """Make the self-attention of a group of layers, without pruned heads."""
        layer = -(-index * self.num_layers // self._count("attention"))
        config, count = self.config, len(self.heads_of(layer))
        if not count:
            common = {"use_bias": config.use_bias, "dtype": self.dtype_policy}
            return NoAttention(name="self_attention", **common)
        arguments = {**self._of_attention(count), "name": "self_attention"}
        if config.disentangled is not None:
            return DisentangledSelfAttention(
                separate=config.disentangled == "separate",
                table_dropout=config.dropout,
                **arguments,
            )
        arguments |= {"causal": config.causal}
        arguments |= {"num_key_value_heads": config.num_key_value_heads}
        if config.is_local:
            has_global = bool(config.max_global_tokens)
            return LocalSelfAttention(global_projections=has_global, **arguments)
        return SelfAttention(**arguments)

    def _cross_attention(self, index):
        arguments = self._of_attention(self.num_heads)
        return CrossAttention(name="cross_attention", **arguments)

    def _feed_forward(self, index):
        config = self.config
        return FeedForward(
            config.intermediate_dim,
            activation=config.activation,
            dropout=config.activation_dropout,
            use_bias=config.use_bias,
            gated=config.gated,
            wide_output=config.norm == "rms",
            initializer=self.initializer.clone(),
            name="feed_forward",
            dtype=self.dtype_policy,
        )

    @property
    def _kinds(self):
        """The lists of sub-layers; a block has one of each, in this order."""
        kinds = (
            self.attention_layers,
            self.cross_attention_layers,
            self.feedforward_layers,
        )
        return [layers for layers in kinds if layers is not None]

    def block(self, layer: int) -> tuple[ResidualSublayer, ...]:
        """List the sub-layers that a layer uses, attention first, feed-forward last.

        Args:
            layer: int from 0 to `num_layers - 1`.
        """
        return tuple(
            sublayers[layer * len(sublayers) // self.num_layers]
            for sublayers in self._kinds
        )

    def build(self, input_shape: Shape) -> None:
        for sublayers in self._kinds:
            for layer in sublayers:
                if not layer.built:  # a shared one may be built
                    layer.build(input_shape)
        for layer in (
            self.relative_bias,
            self.relative_table,
            self.convolution,
            self.final_norm,
            self.gates,
        ):
            if layer is not None and not layer.built:
                layer.build(input_shape)
        self.built = True

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        head_mask: Tensor | None = None,
        prefix_mask: Tensor | None = None,
        context: Any = None,
        cross_mask: Tensor | None = None,
        cache: Any = None,
        cache_index: Tensor = 0,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        global_tokens: dict[str, Tensor] | None = None,
        places: Tensor | None = None,
        added_queries: Tensor | None = None,
        return_hidden_states: bool = False,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        states, scores, caches = [x], [], []
        batch, length = ops.shape(x)[:2]
        first = ops.convert_to_tensor(cache_index, "int32")
        rows = TokenRows(
            batch,
            queries=length,
            keys=length if cache is None else ops.shape(cache[0][0])[1],
            first_query=first,
            mask=attention_mask,
            prefix_mask=prefix_mask,
            sequence_ids=sequence_ids,
            global_tokens=global_tokens,
            has_cache=cache is not None,
            places=places,
        )
        attending = self._attending(rows, position_ids, positions)
        head_masks = self._mask_of_each(head_mask, training)
        for index in range(self.num_layers):
            at = positions if index == self.num_layers - 1 else None
            if at is not None and len(getattr(cross_mask, "shape", ())) == 3:
                cross_mask = take_positions(cross_mask, at)
            if cache is not None:
                attending[index] |= {"cache": cache[index], "cache_index": first}
            compute = self._compute_block
            if training and self.recomputes == "block":
                compute = recomputed(compute, self.block(index))
            runs = [{"positions": at}]
            if added_queries is not None and index == self.num_layers - 1:
                runs = [{"memory": x, "places": at}] * 2
                x = (x if at is None else take_positions(x, at)) + added_queries
            for how in runs:
                x, *more = compute(
                    index,
                    x,
                    context[index] if isinstance(context, tuple) else context,
                    cross_mask,
                    training,
                    head_mask=head_masks[index],
                    return_scores=return_scores,
                    **how,
                    **attending[index],
                )
            if not index and self.convolution is not None:
                x = self.convolution(
                    x,
                    embeddings=states[0],
                    padding_mask=attention_mask,
                    sequence_ids=sequence_ids,
                    positions=at,
                    training=training,
                )
            if cache is not None:
                caches.append(more.pop())
            scores += more
            states.append(x)
        if not self.num_layers and positions is not None:
            x = take_positions(x, positions)
        if self.final_norm is not None:
            x = ops.cast(self.final_norm(x), self.compute_dtype)
        x = states[-1] = self.dropout(x, training=training)
        if cache is not None:
            return x, tuple(caches)
        if not (return_hidden_states or return_scores):
            return x
        asked = return_hidden_states, return_scores
        both = zip((states, scores), asked, strict=True)
        return x, *(each if wanted else None for each, wanted in both)

    def _attending(self, rows, position_ids, positions):
        """Make for each layer its attention's keys, bias and rotations.

        Layers of the same pattern get the same tensors.
        """
        keys, rotary, attending = {}, {}, []
        relative = self.relative_table and self.relative_table(length=rows.queries)
        for index, pattern in enumerate(self.patterns):
            at = positions if index == self.num_layers - 1 else None
            # A bias for fewer queries is another tensor.
            case = pattern, self.relative_bias is not None and at is not None
            if case not in keys:
                keys[case] = pattern.visible_keys(
                    rows, self.compute_dtype, self.relative_bias, at
                )
            told = dict(zip(("attention_mask", "bias"), keys[case], strict=True))
            base = pattern.rotary_base
            if base is not None and base not in rotary:
                if position_ids is None:
                    places = ops.arange(rows.queries, dtype="int32") + rows.first_query
                    position_ids = ops.expand_dims(places, 0)
                head_dim = self.config.head_dim
                rotary[base] = rotary_positions(position_ids, head_dim, base)
            told |= {"rotary": rotary.get(base), "relative": relative}
            attending.append({n: x for n, x in told.items() if x is not None})
        return attending

    def _compute_block(self, index, x, context, cross_mask, training, **attending):
        """Compute a block's states, and its self-attention's other outputs."""
        attention, *crossing, feedforward = self.block(index)
        outputs = attention(x, training=training, **attending)
        x, *more = outputs if isinstance(outputs, tuple) else (outputs,)
        for layer in crossing:
            x = layer(x, context=context, cross_mask=cross_mask, training=training)
        return feedforward(x, training=training), *more

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Not by the shape: positions, states and scores change what a call returns.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **vars(self.config),
            "initializer": keras.initializers.serialize(self.initializer),
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        settings, others = take_settings(config)
        return cls(TransformerConfig.of_part(**settings), **others)


def _check_shared(config, theirs):
    """Raise a `ValueError` unless a stack can use the sub-layers of another."""
    own = ("causal", "cross_attention", "max_global_tokens", "head_gates", "pooler")
    names = (name for name in vars(config) if name not in own)
    differing = [n for n in names if getattr(config, n) != getattr(theirs, n)]
    if differing or config.head_gates is not None:
        raise ValueError(
            "`shared` must be a stack of the same config, except for "
            f"{', '.join(own[:3])}, and `head_gates` must be `None`. Received other "
            f"values of: {differing or ['head_gates']}."
        )
