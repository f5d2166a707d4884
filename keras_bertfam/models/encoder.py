"""The one Transformer encoder behind every BERT-like family."""

import numbers
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
from keras_bertfam.models.base import (
    TokenBackbone,
    check_range,
    check_without_cache,
)
from keras_bertfam.presets.families.encoder import ENCODER
from keras_bertfam.transformer_config import FIELDS, TransformerConfig, take_settings
from keras_bertfam.types import Config, Tensor

# Inputs that choose the global tokens, which attend to all and are seen by all.
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
        shared_embeddings: dict or `None`. Parts of another backbone's embeddings to
            use, see `shared` of `EncoderEmbedding`. The config leaves them out.
        dtype: Keras dtype or dtype policy.
        **kwargs: any other field of `keras_bertfam.models.TransformerConfig`, and
            `name`.

    Call arguments:
        inputs: dict of tensors with `token_ids` (int, `(batch, length)`). These are
            optional:

            - `padding_mask`, bool or int `(batch, length)`, 0 for padding;
            - `segment_ids`, int `(batch, length)`, all zero if missing;
            - `language_ids`, int `(batch, length)`, with `num_languages`: -1 for no
              language, as it is for all if missing, of which training warns;
            - `position_ids`, int `(batch, length)`, counted from 0, below
              `max_sequence_length`;
            - `sequence_ids`, int `(batch, length)`: the number of the sequence to
              which each token of a packed row belongs. Tokens see their own sequence
              only, and positions restart in each sequence. A sequence's tokens must be
              contiguous;
            - `global_attention_mask`, bool or int `(batch, length)`: 1 for global
              tokens, at most `max_global_tokens` in a row. Or in its place
              `global_positions`, int `(batch, count)`: their positions, -1 for none.

            Padding may be anywhere. It counts as a position, as in `transformers`'
            BERT, except with a `position_offset` above 0, as in RoBERTa. So with
            padding that isn't on the right, pass `position_ids` if the offset is 0.
        positions: int tensor `(batch, count)`. Return the sequence output at
            these positions only; the last layer computes only them.
        head_mask: float tensor `(num_layers, num_heads)` or `(num_layers, batch,
            num_heads)`; 0 switches a head off.
        return_pooled: bool. Whether to compute the pooled output. `None` means
            true if there is a pooler.
        return_hidden_states: bool. Whether to add `hidden_states` to the outputs.
        return_attention: bool. Whether to add `attentions` to the outputs.
        cache: what `empty_cache` or the call for earlier tokens gave, for a backbone
            with `causal=True`. Positions go on from `cache_index`; masks cover all keys
            of the cache. Such calls return no pooled output, hidden states or
            attentions, and all positions.
        cache_index: int scalar, the position of the first token.
        added_queries: float tensor that broadcasts to `(batch, length or count,
            hidden_dim)`, for a backbone with `disentangled`; see `EnhancedMaskDecoder`.
            The last layer is computed twice, with its inputs as keys and values both
            times. The first queries are its inputs plus `added_queries`, the second are
            the first output.

    Returns:
        Dict of float tensors: `sequence_output` `(batch, length or count,
        hidden_dim)`, `pooled_output` `(batch, hidden_dim)`, `hidden_states`
        (list of `num_layers + 1`, the embedding output first) and `attentions`
        (list of `num_layers`, each `(batch, num_heads, length or count, length)`;
        pruned heads are left out). With a `cache` a dict of `sequence_output` and the
        new `cache`.

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
    # The attribute `pooler` is a layer, not the argument.
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
        if (count := self.num_segments) > 1:
            check_range("segment_ids", inputs.get("segment_ids"), "num_segments", count)
        if count := self.num_languages:  # -1 is no language
            ids = inputs.get("language_ids")
            check_range("language_ids", ids, "num_languages", count, -1)
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
                f"max_global_tokens=0; others take one of `{_MASK}` and "
                f"`{_POSITIONS}`, not both. Received: max_global_tokens="
                f"{self.max_global_tokens}, {', '.join(given)}."
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
                "`added_queries` must be `None` for a backbone without `disentangled`. "
                f"Received: {type(added_queries).__name__}."
            )
        if cache is not None:
            others = {
                "positions": positions,
                "return_pooled": return_pooled,
                "return_hidden_states": return_hidden_states,
                "return_attention": return_attention,
                "added_queries": added_queries,
            }
            self._check_cached(inputs, cache, cache_index, others)
            return self._go_on(
                inputs, cache, cache_index, training, head_mask=head_mask
            )
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
        """Compute the outputs of a call; `arguments` go to the stack."""
        mask, position_ids, table_ids = self.mask_and_places(inputs)
        pooled = self.pooler is not None if return_pooled is None else return_pooled
        if pooled and self.pooler is None:
            raise ValueError(
                "`return_pooled` must be false: this backbone has no pooler. Received: "
                f"return_pooled={return_pooled} for a {type(self).__name__}."
            )
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
                # Leave out the pooler's position, which was put first.
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
        """Compute the input of the first layer: the sum of the embeddings.

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
        """Look up the vectors of the tokens' positions in the table of positions.

        Args:
            inputs: as for a call. The backbone must have a table of positions.

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
        """Give the padding mask, the positions, and their rows in the table.

        Args:
            inputs: as for a call.

        Returns:
            A bool tensor and two int tensors `(batch, length)`. Each can be `None`: for
            no padding, and for the positions `0, 1, 2, ...`.
        """
        mask, position_ids = inputs.get("padding_mask"), inputs.get("position_ids")
        mask = None if mask is None else ops.cast(mask, "bool")
        if inputs.get("sequence_ids") is not None and position_ids is None:
            position_ids = restarted_positions(inputs["sequence_ids"])
        table_ids = position_ids
        counts = mask is not None and inputs.get("position_ids") is None
        if counts and self.position_offset:
            # The table's rows before the first position are for padding.
            table_ids = positions_without_padding(mask, position_ids)
        return mask, position_ids, table_ids

    def _check_cached(self, inputs, cache, cache_index, others):
        """Raise a `ValueError` for what a call with a `cache` can't do.

        Args:
            others: the arguments, by name, that such calls don't have.
        """
        if not self.causal:
            raise ValueError(
                f"`cache` must be `None` for a {type(self).__name__} with "
                f"causal=False. Received: {type(cache).__name__}."
            )
        check_without_cache({**others, "sequence_ids": inputs.get("sequence_ids")})
        count = inputs["token_ids"].shape[1]
        if isinstance(cache_index, numbers.Integral) and isinstance(count, int):
            end = cache_index + count
            keys = (cache and cache[0][0].shape[1]) or end
            if cache_index < 0 or end > min(keys, self.max_sequence_length or end):
                raise ValueError(
                    "`cache_index` must leave room for the new tokens in a cache of "
                    f"{keys} keys, and in max_sequence_length="
                    f"{self.max_sequence_length}. Received: {cache_index}, and "
                    f"{count} tokens."
                )

    def _go_on(self, inputs, cache, cache_index, training, **arguments):
        """Compute the outputs of tokens that follow the tokens in the cache."""
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
        """Make an empty cache for a causal backbone.

        Args:
            batch_size: int.
            keys: int. The most tokens that the cache can hold.

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
        """Give the embedded tokens, and a description of the global ones, or `None`.

        Padding is never global. A row with too many global tokens becomes NaN, since
        compiled code can't raise an error.
        """
        mask, positions = inputs.get(_MASK), inputs.get(_POSITIONS)
        there = inputs.get("padding_mask")
        there = None if there is None else ops.cast(there, "bool")
        if mask is not None:
            mask = ops.cast(mask, "bool")
            x = with_nan_for_too_many(x, mask, self.max_global_tokens)
            mask = mask if there is None else ops.logical_and(mask, there)
            return x, tokens_of_mask(mask, self.max_global_tokens)
        if positions is not None:
            return x, tokens_at(positions, ops.shape(x)[1], there)
        return x, None

    def global_projections(self) -> list[keras.layers.Layer]:
        """List the dense layers for global tokens; only global tokens train them."""
        layers = (layer.sublayer for layer in self.encoder.attention_layers)
        found = (getattr(layer, "global_qkv", None) for layer in layers)
        return [layer for layer in found if layer is not None]

    def copy_global_projections(self) -> None:
        """Copy the projections of all tokens to those of global tokens.

        Do it before a Longformer is fine-tuned: pre-training has no global tokens, and
        so doesn't train their projections.

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
        """Give the blocks that `quantize()` calibrates, or `None`.

        Calibration calls sub-layers outside of the stack. That gives the right results
        only if attention needs nothing except states.
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
            f"`{_POSITIONS}` must be from 0 to {length - 1} for rows of {length} "
            f"tokens, or -1 for none. Received: {positions.min()} to "
            f"{positions.max()}."
        )
    if positions.shape[1] > most:
        raise ValueError(
            f"`{_POSITIONS}` must have at most max_global_tokens={most} positions for "
            f"a row. Received: {positions.shape[1]}."
        )


def _check_count(mask, length, most):
    count = int((mask != 0).sum(axis=1).max())
    if mask.shape[1] != length or count > most:
        raise ValueError(
            f"`{_MASK}` must have {length} elements for a row, and mark at most "
            f"max_global_tokens={most} of them. Received: the shape "
            f"{mask.shape}, with {count} in a row."
        )
