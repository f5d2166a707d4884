"""The stack of Transformer blocks, which shares weights between them."""

from typing import Any

import keras
from keras import ops

from keras_bertfam.arguments import checked
from keras_bertfam.layers.modeling.cross_attention import CrossAttention
from keras_bertfam.layers.modeling.dense import take_positions
from keras_bertfam.layers.modeling.dropout import Dropout
from keras_bertfam.layers.modeling.recomputation import recomputed
from keras_bertfam.layers.modeling.relative_bias import RelativePositionBias
from keras_bertfam.layers.modeling.stack_heads import StackHeads
from keras_bertfam.layers.modeling.stack_sight import StackSight
from keras_bertfam.layers.modeling.sublayers import (
    NO_NORM,
    FeedForward,
    ResidualSublayer,
    check_first_norm,
    check_sharing,
    is_wide,
    make_norm,
)
from keras_bertfam.types import Config, Initializer, Shape, Tensor

# Those of the constructor that are attributes as they are.
_ARGUMENTS = (
    "num_layers num_heads head_dim intermediate_dim share num_groups norm_first "
    "activation attention_dropout layer_norm_epsilon causal cross_attention norm "
    "use_bias gated attention_scale activation_dropout output_dropout "
    "relative_buckets relative_distance head_gates norm_bias first_norm rotary_base "
    "attention_window attention_dilation max_global_tokens"
).split()


@checked
@keras.saving.register_keras_serializable("keras_bertfam")
class TransformerStack(StackSight, StackHeads, keras.layers.Layer):
    """A stack of Transformer blocks, with weights shared as asked.

    Args:
        num_layers: int.
        num_heads: int.
        head_dim: int. Width of a head.
        intermediate_dim: int. Inner width of the feed-forward sub-layer.
        share: `"none"`, `"attention"`, `"ffn"` or `"all"`. Which sub-layers
            (each with its norm) the layers of a group share (ALBERT, section
            3.1 and table 4).
        num_groups: int. Groups of consecutive layers that share; layer `l`
            belongs to group `l * num_groups // num_layers`.
        norm_first: bool. Pre-norm blocks and a final norm after the stack.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float. Dropout rate on each sub-layer's output.
        attention_dropout: float. Dropout rate on attention probabilities.
        layer_norm_epsilon: float.
        initializer: initializer of the kernels.
        causal: bool. Whether tokens attend to those before them and themselves only.
        cross_attention: bool. Whether each block attends to a `context` as well,
            between its two other sub-layers.
        norm: `"layer"` or `"rms"`, by the root mean square and without a bias.
        use_bias: bool. Whether projections and feed-forward have biases.
        gated: bool. Gated feed-forward, see `FeedForward`.
        attention_scale: float or `None`. What scores are multiplied by; `None` means
            `head_dim ** -0.5`.
        activation_dropout: float. Dropout rate inside the feed-forward sub-layer.
        output_dropout: float. Dropout rate on the output of the stack.
        relative_buckets: int. Buckets of the relative position bias that all blocks
            share, see `RelativePositionBias`; 0 for none.
        relative_distance: int. Its greatest distance.
        pruned_heads: for each layer a list of the heads that it lacks, or `None`.
        head_gates: dict of arguments of `HeadGates`, or `None` for no gates.
        norm_bias: bool. Whether norms have biases.
        first_norm: bool. Whether pre-norm begins with the first block's attention.
        rotary_base: see `keras_bertfam.models.EncoderBackbone`, and so
            `attention_window`, `attention_dilation` and `max_global_tokens`.

    Call arguments:
        x: float tensor of shape `(batch, length, width)`.
        attention_mask: bool tensor `(batch, length)` or `(batch, length, length)`, true
            where a key may be attended to.
        positions: int tensor `(batch, count)`. The last block computes queries,
            output projection and feed-forward at these positions only, which
            gives the same states there for less work.
        head_mask: float tensor `(num_layers, num_heads)`, or `(num_layers, batch,
            num_heads)`; 0 switches a head off.
        prefix_mask: bool tensor `(batch, length)`. Keys that tokens before them see
            as well, in a causal stack.
        context: float tensor `(batch, keys, width)` that blocks attend to, or a tuple
            of what `CrossAttention.project` made of it for each.
        cross_mask: bool tensor `(batch, keys)` or `(batch, length, keys)`.
        cache: tuple of a pair for each layer, see `SelfAttention`.
        cache_index: int scalar, the position of the first token of `x`.
        position_ids: int tensor `(batch, length)`, for rotary positions.
        sequence_ids: int tensor `(batch, length)`. Tokens see their own sequence only.
        global_tokens: what the method `global_tokens` gives.
        return_hidden_states: bool.
        return_scores: bool.

    Returns:
        Float tensor of shape `(batch, length or count, width)`; with
        `return_hidden_states` or `return_scores` a triple of it, the list of
        `num_layers + 1` states (the input first; `None` if not asked for) and
        the list of `num_layers` attention probabilities; with a `cache` a pair of
        it and the new cache.

    Example:

    ```python
    stack = keras_bertfam.layers.TransformerStack(
        num_layers=2, num_heads=2, head_dim=4, intermediate_dim=32, share="all")
    stack(keras.random.normal((1, 5, 8))).shape  # (1, 5, 8)
    ```
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        intermediate_dim: int,
        share: str = "none",
        num_groups: int = 1,
        norm_first: bool = False,
        activation: str = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-12,
        initializer: Initializer = "glorot_uniform",
        causal: bool = False,
        cross_attention: bool = False,
        norm: str = "layer",
        use_bias: bool = True,
        gated: bool = False,
        attention_scale: float | None = None,
        activation_dropout: float = 0.0,
        output_dropout: float = 0.0,
        relative_buckets: int = 0,
        relative_distance: int = 128,
        pruned_heads: Any = None,
        head_gates: Config | None = None,
        norm_bias: bool = True,
        first_norm: bool = True,
        rotary_base: Any = None,
        attention_window: Any = None,
        attention_dilation: Any = None,
        max_global_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        values = locals()
        super().__init__(**kwargs)
        check_sharing(share, num_groups, num_layers)
        check_first_norm(first_norm, norm_first, share)
        for name in _ARGUMENTS:
            setattr(self, name, values[name])
        self.dropout_rate = dropout
        self.recomputes = "none"
        self.initializer = keras.initializers.get(initializer)
        common = {"dtype": self.dtype_policy}
        # Names are fixed: policies of int8 models go by the path.
        attending = {
            "num_heads": num_heads,
            "head_dim": head_dim,
            "dropout": attention_dropout,
            "use_bias": use_bias,
            "scale": attention_scale,
            **common,
        }
        self._settle_heads(pruned_heads)
        self._settle_sight()
        self.attention_layers = self._sublayers(
            "attention",
            lambda index, **kwargs: self._self_attention(index, **attending, **kwargs),
        )
        self.cross_attention_layers = self.relative_bias = self.final_norm = None
        if cross_attention:
            self.cross_attention_layers = self._sublayers(
                "attention",
                lambda _, **kwargs: CrossAttention(
                    name="cross_attention", **attending, **kwargs
                ),
                name="cross_attention",
            )
        self.feedforward_layers = self._sublayers(
            "ffn",
            lambda _, **kwargs: FeedForward(
                intermediate_dim,
                activation=activation,
                dropout=activation_dropout,
                use_bias=use_bias,
                gated=gated,
                wide_output=norm == "rms",
                name="feed_forward",
                **common,
                **kwargs,
            ),
        )
        if relative_buckets:
            self.relative_bias = RelativePositionBias(
                num_heads,
                relative_buckets,
                relative_distance,
                bidirectional=not causal,
                initializer=self.initializer.clone(),
                name="relative_bias",
                **common,
            )
        if norm_first:
            wide = is_wide(norm, self.compute_dtype)
            self.final_norm = make_norm(
                norm,
                layer_norm_epsilon,
                "final_norm",
                bias=norm_bias,
                dtype="float32"
                if is_wide(norm, self.compute_dtype)
                else common["dtype"],
            )
        self.dropout = Dropout(output_dropout, name="dropout", **common)

    def _sublayers(self, kind, make, name=None):
        bare = not self.first_norm and kind == "attention" and name is None
        return [
            ResidualSublayer(
                make(index, initializer=self.initializer.clone()),
                norm_first=self.norm_first,
                dropout=self.dropout_rate,
                layer_norm_epsilon=self.layer_norm_epsilon,
                norm=NO_NORM if bare and not index else self.norm,
                norm_bias=self.norm_bias,
                name=f"{name or kind}_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(self._count(kind))
        ]

    @property
    def _kinds(self):
        """The lists of sub-layers that a block has one of each, in their order."""
        kinds = (
            self.attention_layers,
            self.cross_attention_layers,
            self.feedforward_layers,
        )
        return [layers for layers in kinds if layers is not None]

    def block(self, layer: int) -> tuple[ResidualSublayer, ...]:
        """The sub-layers that a layer uses, attention first and feed-forward last.

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
                layer.build(input_shape)
        for layer in (self.relative_bias, self.final_norm, self.gates):
            if layer is not None:
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
        return_hidden_states: bool = False,
        return_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        states, scores, caches = [x], [], []
        head_masks = self._mask_of_each(head_mask, training)
        masks, caching = (attention_mask, prefix_mask), (positions, cache, cache_index)
        tokens = (position_ids, sequence_ids, global_tokens)
        sights = self._sights(x, *masks, *caching, *tokens)
        for index in range(self.num_layers):
            at = positions if index == self.num_layers - 1 else None
            if at is not None and len(getattr(cross_mask, "shape", ())) == 3:
                cross_mask = take_positions(cross_mask, at)
            compute = self._compute_block
            if training and self.recomputes == "block":
                compute = recomputed(compute, self.block(index))
            x, *more = compute(
                index,
                x,
                context[index] if isinstance(context, tuple) else context,
                cross_mask,
                training,
                positions=at,
                head_mask=head_masks[index],
                return_scores=return_scores,
                **sights[index],
            )
            if cache is not None:
                caches.append(more.pop())
            scores += more
            states.append(x)
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

    def _compute_block(self, index, x, context, cross_mask, training, **attending):
        """Compute the states after a block, and what else its self-attention gives."""
        attention, *crossing, feedforward = self.block(index)
        outputs = attention(x, training=training, **attending)
        x, *more = outputs if isinstance(outputs, tuple) else (outputs,)
        for layer in crossing:
            x = layer(x, context=context, cross_mask=cross_mask, training=training)
        return feedforward(x, training=training), *more

    def compute_output_shape(self, input_shape: Shape, **kwargs: Any) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in _ARGUMENTS},
            "pruned_heads": self.pruned_heads,
            "dropout": self.dropout_rate,
            "initializer": keras.initializers.serialize(self.initializer),
        }
