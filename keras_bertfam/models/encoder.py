"""The one Transformer encoder behind every BERT-like family."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bertfam.layers.attention.masks import (
    positions_without_padding,
    restarted_positions,
)
from keras_bertfam.layers.attention.windows import (
    tokens_at,
    tokens_of_mask,
    with_nan_for_too_many,
)
from keras_bertfam.layers.blocks.embedding import EncoderEmbedding
from keras_bertfam.layers.blocks.transformer import TransformerStack
from keras_bertfam.layers.heads.heads import Pooler
from keras_bertfam.models.base import TokenBackbone
from keras_bertfam.presets.families.encoder import ENCODER
from keras_bertfam.transformer_config import FIELDS, TransformerConfig, take_settings
from keras_bertfam.types import Config, Tensor

# Inputs that say which tokens attend to all, and are seen by all.
_MASK, _POSITIONS = "global_attention_mask", "global_positions"


@keras.saving.register_keras_serializable("keras_bertfam")
class EncoderBackbone(TokenBackbone):
    """Bidirectional Transformer encoder; a family is a set of its arguments.

    Args:
        vocabulary_size: int. Rows of the token table.
        num_layers: int.
        num_heads: int. Must divide `hidden_dim` unless `head_dim` is given.
        hidden_dim: int. Width of the hidden states.
        intermediate_dim: int. Inner width of the feed-forward sub-layers.
        shared_embeddings: dict or `None`. What to share with another backbone, see
            `shared` of `EncoderEmbedding`. No part of the config.
        dtype: Keras dtype or dtype policy.
        **kwargs: any other field of `keras_bertfam.models.TransformerConfig`, and
            `name`.

    Call arguments:
        inputs: dict of tensors with `token_ids` (int, `(batch, length)`) and,
            if wanted,

            - `padding_mask`, bool or int `(batch, length)`, 1 = keep;
            - `segment_ids`, int `(batch, length)`, all zero if missing;
            - `language_ids`, int `(batch, length)`, with `num_languages`: -1 for no
              language, as it is for all if missing;
            - `position_ids`, int `(batch, length)`, counted from 0;
            - `sequence_ids`, int `(batch, length)`: the number of the sequence
              that each token of a packed row belongs to. Tokens see their own
              sequence only, and positions restart with each. A sequence's
              tokens are contiguous;
            - `global_attention_mask`, bool or int `(batch, length)`: 1 for global
              tokens, of which a row has at most `max_global_tokens`; or in its place
              `global_positions`, int `(batch, count)`, where they are, -1 for none.

            Padding may be anywhere. It counts as a position, as in `transformers`'
            BERT, but for `position_offset` above 0, as in RoBERTa; else pass
            `position_ids` for padding that isn't on the right.
        positions: int tensor `(batch, count)`. Return the sequence output at
            these positions only; the last layer is computed just there.
        head_mask: float tensor `(num_layers, num_heads)` or `(num_layers, batch,
            num_heads)`, 0 = off.
        return_pooled: bool. Whether to compute the pooled output. `None` means
            if there is a pooler.
        return_hidden_states: bool. Add `hidden_states`.
        return_attention: bool. Add `attentions`.
        cache: with `causal=True` what `empty_cache` or an earlier call gave for the
            tokens before these. Positions go on from `cache_index`; masks are of all
            keys of the cache.
        cache_index: int scalar, the position of the first token.
        added_queries: with `disentangled` a float tensor that broadcasts to `(batch,
            length or count, hidden_dim)`, see `EnhancedMaskDecoder`. The last layer
            is computed twice, to the states before it: for these and what is added,
            and for its own output.

    Returns:
        Dict of float tensors: `sequence_output` `(batch, length or count,
        hidden_dim)`, `pooled_output` `(batch, hidden_dim)`, `hidden_states`
        (list of `num_layers + 1`, the embedding output first) and `attentions`
        (list of `num_layers`, each `(batch, num_heads, length or count,
        length)`, of the heads that a layer has left). With a `cache` a dict of
        `sequence_output` and the new `cache`.

    Raises:
        ValueError: for a `hidden_dim` that `num_heads` doesn't divide, a
            sequence longer than `max_sequence_length`, ids outside the
            vocabulary in a NumPy input, an unknown input name, a `cache` without
            `causal=True`.

    Example:

    ```python
    backbone = keras_bertfam.models.EncoderBackbone(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32, embedding_dim=8, share="all")
    backbone({"token_ids": keras.ops.array([[1, 2, 3]])})["sequence_output"]
    ```
    """

    record = ENCODER
    settings = FIELDS
    # The pooler is an attribute of another kind.
    argument_names = tuple(name for name in FIELDS if name != "pooler")
    input_names: tuple[str, ...] = (
        "token_ids",
        "padding_mask",
        "segment_ids",
        "position_ids",
        "sequence_ids",
        "global_attention_mask",
        "global_positions",
        "language_ids",
    )

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        *,
        shared_embeddings: dict[str, Any] | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        settings, kwargs = take_settings(kwargs)
        config = TransformerConfig(
            vocabulary_size,
            num_layers,
            num_heads,
            hidden_dim,
            intermediate_dim,
            **settings,
        )
        super().__init__(dtype=dtype, **kwargs)
        dtype = self.policies(dtype)
        self.config = config
        self.keep_arguments(vars(config))

        # === Layers ===
        self.embeddings = EncoderEmbedding(
            config,
            initializer=self.make_initializer(table=True),
            reverse_initializer=self.make_initializer(),
            shared=shared_embeddings,
            dtype=dtype,
            name="embeddings",
        )
        self.token_embedding = self.embeddings.token_embedding
        self.encoder = TransformerStack(
            config, initializer=self.make_initializer(), dtype=dtype, name="encoder"
        )
        if config.pooler:
            self.pooler = Pooler(
                hidden_dim, self.make_initializer(), dtype=dtype, name="pooler"
            )
        self.build()

    def build(self, input_shape: Any = None) -> None:
        if self.built:
            return
        self.embeddings.build((None, None))
        self.encoder.build((None, None, self.hidden_dim))
        if self.pooler is not None:
            self.pooler.build((None, None, self.hidden_dim))
        self._finish_made_layers()
        self.built = True

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        super().check_inputs(inputs)
        if inputs.get("language_ids", None) is not None and not self.num_languages:
            raise ValueError(
                "`language_ids` must be left out of the inputs of a backbone with "
                f"num_languages=0. Received: a {type(self).__name__} of no languages."
            )
        given = [
            name for name in (_MASK, _POSITIONS) if inputs.get(name, None) is not None
        ]
        if not given:
            return
        if not self.max_global_tokens or len(given) > 1:
            raise ValueError(
                f"`{given[0]}` must be left out of the inputs of a backbone with "
                "max_global_tokens=0, and given without the other name. Received: "
                f"max_global_tokens={self.max_global_tokens}, {', '.join(given)}."
            )
        (name,) = given
        if isinstance(inputs[name], np.ndarray) and inputs[name].size:
            check = _check_positions if name == _POSITIONS else _check_count
            check(inputs[name], inputs["token_ids"].shape[1], self.max_global_tokens)

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
        added_queries: Tensor = None,
    ) -> dict[str, Any]:
        if added_queries is not None and self.disentangled is None:
            raise ValueError(
                "`added_queries` must be `None` where attention isn't disentangled. "
                f"Received: {type(added_queries).__name__}."
            )
        if cache is not None:
            return self._go_on(inputs, cache, cache_index, training)
        return self._compute(
            inputs,
            positions,
            return_pooled,
            training,
            head_mask=head_mask,
            return_hidden_states=return_hidden_states,
            return_scores=return_attention,
            added_queries=added_queries,
        )

    def _compute(self, inputs, positions, return_pooled, training, **arguments):
        """Compute the outputs of a call; the stack takes the `arguments`."""
        mask, position_ids, table_ids = self.mask_and_places(inputs)
        pooled = self.pooler is not None if return_pooled is None else return_pooled
        if positions is not None and pooled:
            positions = ops.pad(ops.cast(positions, "int32"), [[0, 0], [1, 0]])
        x = self._embed(inputs, mask, table_ids, training)
        x, global_tokens = self._global_tokens(x, inputs)
        x, states, scores = _as_triple(
            self.encoder(
                x,
                attention_mask=mask,
                positions=positions,
                position_ids=position_ids,
                sequence_ids=inputs.get("sequence_ids"),
                global_tokens=global_tokens,
                training=training,
                **arguments,
            )
        )
        outputs = {"sequence_output": x}
        if pooled:
            outputs["pooled_output"] = self.pooler(x)
            if positions is not None:
                # Without the pooler's own, which was put before them.
                outputs["sequence_output"] = x[:, 1:]
                if states is not None:
                    states[-1] = states[-1][:, 1:]
                if scores is not None:
                    scores[-1] = scores[-1][:, :, 1:]
        if states is not None:
            outputs["hidden_states"] = states
        if scores is not None:
            outputs["attentions"] = scores
        return outputs

    def embed(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        """Compute what the first layer is given: the sum of the embeddings.

        Args:
            inputs: as for a call.
            training: bool or `None`.

        Returns:
            Float tensor `(batch, length, hidden_dim)`.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
        backbone.embed({"token_ids": keras.ops.array([[1, 2]])}).shape  # (1, 2, 128)
        ```
        """
        mask, _, table_ids = self.mask_and_places(inputs)
        return self._embed(inputs, mask, table_ids, training)

    def position_vectors(self, inputs: dict[str, Tensor]) -> Tensor:
        """Look up the vectors of tokens' positions, as they are in the embeddings.

        Args:
            inputs: as for a call, of a backbone with a table of positions.

        Returns:
            Float tensor `(batch or 1, length, embedding_dim)`.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone.from_preset(
            "bert_tiny_en_uncased", load_weights=False)
        tokens = {"token_ids": keras.ops.array([[1, 2]])}
        backbone.position_vectors(tokens).shape  # (1, 2, 128)
        ```
        """
        _, _, table_ids = self.mask_and_places(inputs)
        vectors = self.embeddings.position_vectors(inputs["token_ids"], table_ids)
        return vectors if len(vectors.shape) == 3 else ops.expand_dims(vectors, 0)

    def _embed(self, inputs, mask, table_ids, training):
        return self.embeddings(
            ops.cast(inputs["token_ids"], "int32"),
            segment_ids=inputs.get("segment_ids"),
            position_ids=table_ids,
            padding_mask=mask,
            language_ids=inputs.get("language_ids"),
            training=training,
        )

    def mask_and_places(
        self, inputs: dict[str, Tensor]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Give the padding mask, the positions, and their rows of the table, if any.

        Args:
            inputs: as for a call.

        Returns:
            A bool tensor and two int tensors `(batch, length)`, each of which may be
            `None`: nothing is padding, and positions are `0, 1, 2, ...`.
        """
        mask, position_ids = inputs.get("padding_mask"), inputs.get("position_ids")
        mask = None if mask is None else ops.cast(mask, "bool")
        if inputs.get("sequence_ids") is not None and position_ids is None:
            position_ids = restarted_positions(inputs["sequence_ids"])
        table_ids = position_ids
        counts = mask is not None and inputs.get("position_ids") is None
        if counts and self.position_offset:
            # Rows before the first position's are padding's.
            table_ids = positions_without_padding(mask, position_ids)
        return mask, position_ids, table_ids

    def _go_on(self, inputs, cache, cache_index, training, **arguments):
        """Compute the outputs for the tokens that follow those in the cache."""
        if not self.causal:
            raise ValueError(
                f"`cache` must be `None` for a {type(self).__name__} with "
                f"causal=False. Received: {type(cache).__name__}."
            )
        token_ids = ops.cast(inputs["token_ids"], "int32")
        mask, position_ids = inputs.get("padding_mask"), inputs.get("position_ids")
        mask = None if mask is None else ops.cast(mask, "bool")
        if position_ids is None and mask is not None and self.position_offset:
            places, first = positions_without_padding(mask), [0, cache_index]
            position_ids = ops.slice(places, first, ops.shape(token_ids))
        elif position_ids is None:
            places = ops.arange(ops.shape(token_ids)[1], dtype="int32") + cache_index
            position_ids = ops.broadcast_to(places, ops.shape(token_ids))
        x = self.embeddings(
            token_ids,
            segment_ids=inputs.get("segment_ids"),
            position_ids=position_ids,
            language_ids=inputs.get("language_ids"),
            training=training,
        )
        x, cache = self.encoder(
            x,
            attention_mask=mask,
            cache=cache,
            cache_index=cache_index,
            position_ids=position_ids,
            training=training,
            **arguments,
        )
        return {"sequence_output": x, "cache": cache}

    def empty_cache(self, batch_size: int | Tensor, keys: int) -> tuple:
        """Make the cache of a causal backbone that has seen nothing.

        Args:
            batch_size: int.
            keys: int. The tokens that there is room for.

        Returns:
            A tuple, with a pair of float tensors `(batch_size, keys, num_heads,
            head_dim)` for each layer, the keys and values; or of
            `num_key_value_heads`.

        Example:

        ```python
        backbone = keras_bertfam.models.BertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32, causal=True)
        cache = backbone.empty_cache(1, keys=8)
        prompt = {"token_ids": keras.ops.array([[1, 2, 3]])}
        cache = backbone(prompt, cache=cache)["cache"]
        outputs = backbone(
            {"token_ids": keras.ops.array([[4]])}, cache=cache, cache_index=3)
        outputs["sequence_output"].shape  # (1, 1, 16)
        ```
        """
        counts = [
            self.num_key_value_heads or len(self.encoder.heads_of(layer))
            for layer in range(self.num_layers)
        ]
        shapes = ((batch_size, keys, count, self.head_dim) for count in counts)
        return tuple(
            (ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype))
            for shape in shapes
        )

    def _global_tokens(
        self, x: Tensor, inputs: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        """Give the embedded tokens, and those among them that are global, if any.

        A row of too many has no numbers: what is compiled can't raise an error.
        """
        mask, positions = inputs.get(_MASK), inputs.get(_POSITIONS)
        if mask is not None:
            mask = ops.cast(mask, "bool")
            x = with_nan_for_too_many(x, mask, self.max_global_tokens)
            return x, tokens_of_mask(mask, self.max_global_tokens)
        if positions is not None:
            return x, tokens_at(positions, ops.shape(x)[1])
        return x, None

    def global_projections(self) -> list[keras.layers.Layer]:
        """List the dense layers that project global tokens, which only these train."""
        layers = (layer.sublayer for layer in self.encoder.attention_layers)
        found = (getattr(layer, "global_qkv", None) for layer in layers)
        return [layer for layer in found if layer is not None]

    def copy_global_projections(self) -> None:
        """Make the projections of global tokens those of all tokens.

        As a Longformer is to begin fine-tuning: pre-training without global tokens
        doesn't train theirs.

        Reference: [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 5.

        Example:

        ```python
        backbone = keras_bertfam.models.LongformerBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
            intermediate_dim=32, attention_window=4)
        backbone.copy_global_projections()
        ```
        """
        for layer in self.encoder.attention_layers:
            theirs = getattr(layer.sublayer, "global_qkv", None)
            if theirs is not None:
                pairs = zip(layer.sublayer.qkv.weights, theirs.weights, strict=True)
                for source, target in pairs:
                    target.assign(ops.copy(source))  # JAX would share the buffer

    def _parts(self):
        blocks = [self.encoder.block(index) for index in range(self.num_layers)]
        return [self.embeddings], blocks

    def calibrated_blocks(self) -> Config | None:
        """Give what `quantize()` goes through to measure states, or `None`.

        Sub-layers compute alone what they do in the stack, if all they attend by are
        states.
        """
        windows = self.causal, self.attention_window, self.rotary_base
        if any(windows) or self.relative_buckets or self.cross_attention:
            return None
        embeddings, blocks = self._parts()
        if not all(isinstance(part, keras.layers.Layer) for part in embeddings):
            return None
        layers = {id(layer): layer for block in blocks for layer in block}
        return {"pre_block_layers": embeddings, "sequential_blocks": [*layers.values()]}

    def default_lora_layer_names(self) -> list[str]:
        return ["qkv"]

    def get_config(self) -> Config:
        return {**super().get_config(), "pooler": self.pooler is not None}


def _as_triple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs, None, None)


def _check_positions(positions, length, most):
    if positions.min() < -1 or positions.max() >= length:
        raise ValueError(
            f"`{_POSITIONS}` must be from 0 to {length - 1}, in rows of {length} "
            f"tokens, or -1 for none. Received: {positions.min()} to "
            f"{positions.max()}."
        )
    if positions.shape[1] > most:
        raise ValueError(
            f"`{_POSITIONS}` must be at most max_global_tokens={most} of a row. "
            f"Received: {positions.shape[1]}."
        )


def _check_count(mask, length, most):
    count = int((mask != 0).sum(axis=1).max())
    if mask.shape[1] != length or count > most:
        raise ValueError(
            f"`{_MASK}` must have a row's {length} tokens, at most "
            f"max_global_tokens={most} of them global. Received: the shape "
            f"{mask.shape}, with {count} in a row."
        )
