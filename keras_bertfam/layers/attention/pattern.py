"""Which keys each query sees: a layer's pattern, and what it becomes for a batch."""

import dataclasses
from typing import Any

from keras import ops

from keras_bertfam.layers.attention.kernels import added_mask, knows_patterns
from keras_bertfam.layers.attention.masks import (
    hiding,
    numbers_of,
    same_sequence,
    seen_keys,
)
from keras_bertfam.layers.attention.windows import (
    neighbours_in_blocks,
    neighbours_in_rows,
    uses_blocks,
)
from keras_bertfam.transformer_config import TransformerConfig
from keras_bertfam.types import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class TokenRows:
    """What is known of a batch before its first layer is computed.

    Attributes:
        batch: int, the number of rows.
        queries: int, the number of tokens of a row.
        keys: int, the number of tokens of a row, or of the cache if there is one.
        first_query: int scalar. The position of the first query among the keys.
        mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, true where a key
            may be seen, or `None`.
        prefix_mask: bool tensor `(batch, keys)`, true for keys that earlier queries
            see too, or `None`.
        sequence_ids: int tensor `(batch, keys)` or `None`. Tokens see tokens of the
            same sequence only.
        global_tokens: what `windows.tokens_at` gives, or `None`.
        has_cache: bool. Whether the keys come from a cache.
        places: int tensor `(batch, keys)`, or `None`. Each token's position in the
            text, for a bias by relative position of tokens that aren't in order.
    """

    batch: int | Tensor
    queries: int | Tensor
    keys: int | Tensor
    first_query: int | Tensor = 0
    mask: Tensor | None = None
    prefix_mask: Tensor | None = None
    sequence_ids: Tensor | None = None
    global_tokens: dict[str, Tensor] | None = None
    has_cache: bool = False
    places: Tensor | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class VisibleKeys:
    """Which keys queries see if all scores of a row are computed.

    `SelfAttention` takes it as its `attention_mask`.

    Attributes:
        mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, true where a key
            is seen; `None` for all keys.
        causal: whether a query sees the keys up to its own place only.
        numbers: int tensor `(batch, keys)`, or `None`. The same mask in another form:
            a query sees the keys that have its own number.
        added: float tensor of the mask's shape, or `None`. The same mask in another
            form: a tensor that is added to the scores.
    """

    mask: Tensor | None = None
    causal: bool = False
    numbers: Tensor | None = None
    added: Tensor | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class NearbyKeys:
    """Which keys queries see within a window.

    `LocalSelfAttention` takes it as its `attention_mask`.

    Attributes:
        window: int. Even number of neighbours, half of them on each side; 0 for all.
        dilations: tuple of ints, one for each head.
        causal: whether a query sees the keys up to its own place only.
        mask: bool tensor `(batch, length)`, false for padding, or `None`.
        sequence_ids, global_tokens: see `TokenRows`.
        hidden: what `hiding` gives, if it was made once for many layers, or `None`.
    """

    window: int
    dilations: tuple[int, ...]
    causal: bool = False
    mask: Tensor | None = None
    sequence_ids: Tensor | None = None
    global_tokens: dict[str, Tensor] | None = None
    hidden: tuple[Tensor, ...] | None = None

    def uses_blocks(self, length: int | Tensor) -> bool:
        """Tell whether rows of a length are cut into blocks."""
        return uses_blocks(length, self.window, self.dilations)

    def hiding(
        self, batch: int | Tensor, length: int | Tensor, dtype: str, whole: bool = False
    ) -> tuple[Tensor, ...]:
        """Make float masks that are added to scores: 0 where a key is seen.

        Args:
            batch: int, the number of rows.
            length: int, the number of tokens of a row.
            dtype: name of the scores' dtype.
            whole: bool. Whether to make a mask of all scores of a row, however long
                the row is.

        Returns:
            A tuple of float tensors: one for each different dilation if rows are cut
            into blocks, else a single one.
        """
        masks = (self.mask, self.sequence_ids, self.global_tokens, self.causal)
        window, dilations = self.window, self.dilations
        if whole or not self.uses_blocks(length):
            return (neighbours_in_rows(length, window, dilations, dtype, *masks),)
        return tuple(
            neighbours_in_blocks(batch, length, window // 2, step, dtype, *masks)
            for step in sorted({*dilations})
        )


@dataclasses.dataclass(frozen=True)
class AttentionPattern:
    """Which keys the queries of one layer see, whatever the batch.

    Attributes:
        causal: whether a query sees the keys up to its own place only.
        window: int. Even number of neighbours, half of them on each side; 0 for all.
        dilations: tuple of ints, one for each head of the layer; empty in a stack
            without windows and global tokens.
        rotary_base: base of the rotations of queries and keys; `None` for none.

    Example: a causal layer, and rows of four tokens of which two are a prefix. The
    queries (rows) see these keys (columns):

        1 1 0 0
        1 1 0 0
        1 1 1 0
        1 1 1 1
    """

    causal: bool = False
    window: int = 0
    dilations: tuple[int, ...] = ()
    rotary_base: float | None = None

    def visible_keys(
        self, rows: TokenRows, dtype: str, relative_bias: Any = None, at: Any = None
    ) -> tuple[VisibleKeys | NearbyKeys, Tensor | None]:
        """Make the masks and the bias of a batch for layers of this pattern.

        Args:
            rows: `TokenRows`.
            dtype: name of the scores' dtype.
            relative_bias: `RelativePositionBias`, or `None`.
            at: int tensor `(batch, count)`, the positions of the queries that are
                computed, or `None` for all.

        Returns:
            A pair: the visible keys; and a bias that is added to the scores, or `None`.
        """
        prefix = self.causal and rows.prefix_mask is not None
        if self.window and (rows.has_cache or prefix):
            return self._near_in_whole_rows(rows), None
        if self.window or rows.global_tokens is not None:
            return self._nearby(rows, dtype), None
        keys = self._in_whole_rows(rows, biased=relative_bias is not None)
        sizes = {"queries": rows.queries, "keys": rows.keys}
        if relative_bias is not None and at is not None:
            if rows.places is not None:
                queries = ops.take_along_axis(rows.places, at, axis=1)
                return keys, relative_bias.between(queries, rows.places)
            return keys, relative_bias(**sizes, positions=at)
        if relative_bias is None and not rows.has_cache:
            if keys.mask is None or len(keys.mask.shape) < 3:
                return keys, None
            return dataclasses.replace(keys, added=added_mask(keys.mask, dtype)), None
        # Sum bias and mask here, once for all layers.
        bias = ops.zeros((), dtype)
        if relative_bias is not None and rows.places is not None:
            bias = relative_bias.between(rows.places, rows.places)
        elif relative_bias is not None:
            bias = relative_bias(**sizes, first_query=rows.first_query)
        if keys.mask is not None:
            bias = bias + hiding(keys.mask, dtype)
        return dataclasses.replace(keys, mask=None), bias

    def _nearby(self, rows, dtype):
        """Give the keys within the window, with float masks if there are heads."""
        masks = (rows.mask, rows.sequence_ids, rows.global_tokens)
        keys = NearbyKeys(self.window, self.dilations, self.causal, *masks)
        if not self.dilations:
            return keys
        hidden = keys.hiding(rows.batch, rows.queries, dtype)
        return dataclasses.replace(keys, hidden=hidden)

    def _near_in_whole_rows(self, rows):
        """Give the mask of a text that has a prefix, or is being generated."""
        if {*self.dilations} - {1}:
            raise ValueError(
                "`attention_dilation` must be 1 for texts that have a prefix or are "
                f"generated. Received: {self.dilations}."
            )
        mask = rows.mask
        if rows.sequence_ids is not None:
            mask = same_sequence(rows.sequence_ids, mask)
        sizes = (rows.queries, rows.keys, rows.first_query)
        seen = seen_keys(*sizes, rows.prefix_mask, mask)
        queries = ops.arange(rows.queries, dtype="int32") + rows.first_query
        keys = ops.arange(rows.keys, dtype="int32")
        apart = ops.abs(ops.expand_dims(queries, 1) - keys)
        return VisibleKeys(ops.logical_and(seen, apart <= self.window // 2))

    def _in_whole_rows(self, rows, biased):
        mask, numbers = rows.mask, None
        if rows.sequence_ids is not None:
            numbers = None if biased else numbers_of(rows.sequence_ids, mask)
            mask = same_sequence(rows.sequence_ids, mask)
        # All kernels take causal rows; only some take a mask of keys as well.
        known = mask is None or knows_patterns()
        known = known and rows.prefix_mask is None and not (rows.has_cache or biased)
        if self.causal and not known:
            sizes = (rows.queries, rows.keys, rows.first_query)
            return VisibleKeys(seen_keys(*sizes, rows.prefix_mask, mask))
        return VisibleKeys(mask, self.causal, numbers)


def patterns_of(config: TransformerConfig) -> list[AttentionPattern]:
    """Give the pattern of each layer of a Transformer."""
    windows = config.attention_window or (0,) * config.num_layers
    return [
        AttentionPattern(
            config.causal,
            window,
            _dilations_of(config, layer) if config.is_local else (),
            # The first base is for layers without a window.
            config.rotary_base and config.rotary_base[bool(window)],
        )
        for layer, window in enumerate(windows)
    ]


def _dilations_of(config, layer):
    given = config.attention_dilation
    heads = config.heads_of(layer)
    return tuple(given[layer][head] if given else 1 for head in heads)
