"""Which keys each query of a layer sees: the layer's pattern, and that in a batch."""

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
    """What is known of the tokens of a batch before its first layer is computed.

    Attributes:
        batch: int.
        queries: int, the tokens of a row.
        keys: int, the tokens of a row and of the cache, if there is one.
        first_query: int scalar. The key that the first query stands at.
        mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, true where a key
            may be seen, or `None`.
        prefix_mask: bool tensor `(batch, keys)`, true for keys that queries before
            them see as well, or `None`.
        sequence_ids: int tensor `(batch, keys)` or `None`. Tokens see those of their
            own number only.
        global_tokens: what `windows.tokens_at` gives, or `None`.
        has_cache: whether keys are of a cache.
        places: int tensor `(batch, keys)`, or `None`. Where in the text the tokens
            are that a bias by relative position is of, if they aren't in order.
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
    """The keys that queries see in whole rows, as `SelfAttention` is told.

    Attributes:
        mask: bool tensor `(batch, keys)` or `(batch, queries, keys)`, true where a key
            is seen; `None` for all keys.
        causal: whether a query sees the keys up to its own place only.
        numbers: int tensor `(batch, keys)`, or `None`. The mask in other words, for
            kernels that take these: queries see the keys of their own number.
        added: float tensor of the mask's shape, or `None`. The mask in other words,
            for kernels that add it to the scores.
    """

    mask: Tensor | None = None
    causal: bool = False
    numbers: Tensor | None = None
    added: Tensor | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class NearbyKeys:
    """The keys that queries see within a window, as `LocalSelfAttention` is told.

    Attributes:
        window: int. Even number of neighbours, half of them on each side; 0 for all.
        dilations: tuple of ints, one for each head.
        causal: whether a query sees the keys up to its own place only.
        mask: bool tensor `(batch, length)`, false for padding, or `None`.
        sequence_ids: see `TokenRows`, and so `global_tokens`.
        hidden: what `hiding` gives, made once for many layers, or `None`.
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
        """Make what is added to scores: 0 where a key is seen.

        Args:
            batch: int.
            length: int, the tokens of a row.
            dtype: name of the scores' dtype.
            whole: bool. Whether all scores of a row are computed in any case.

        Returns:
            A tuple of a float tensor for each dilation that there is, or of one for
            whole rows.
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
        dilations: tuple of ints, one for each head that the layer has, in a stack
            with windows or global tokens.
        rotary_base: base of the rotations of queries and keys; `None` for none.

    Example: a layer of four tokens that are written one after another, whose batch has
    a prefix of two tokens. The queries (rows) see these keys:

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
        """Make what a layer of this pattern is told of a batch.

        Args:
            rows: `TokenRows`.
            dtype: name of the scores' dtype.
            relative_bias: `RelativePositionBias`, or `None`.
            at: int tensor `(batch, count)`, the positions that queries are computed
                at, or `None` for all.

        Returns:
            The keys, and a bias that is added to the scores, or `None`.
        """
        if self.window and (rows.has_cache or rows.prefix_mask is not None):
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
        # A bias and a mask are summed here, once for all layers.
        bias = ops.zeros((), dtype)
        if relative_bias is not None and rows.places is not None:
            bias = relative_bias.between(rows.places, rows.places)
        elif relative_bias is not None:
            bias = relative_bias(**sizes, first_query=rows.first_query)
        if keys.mask is not None:
            bias = bias + hiding(keys.mask, dtype)
        return dataclasses.replace(keys, mask=None), bias

    def _nearby(self, rows, dtype):
        """Give the keys within the window, and what hides others if there are heads."""
        masks = (rows.mask, rows.sequence_ids, rows.global_tokens)
        keys = NearbyKeys(self.window, self.dilations, self.causal, *masks)
        if not self.dilations:
            return keys
        hidden = keys.hiding(rows.batch, rows.queries, dtype)
        return dataclasses.replace(keys, hidden=hidden)

    def _near_in_whole_rows(self, rows):
        """Give a mask of a text that has a prefix, or is being written."""
        if {*self.dilations} - {1}:
            raise ValueError(
                "`attention_dilation` must be 1 where texts have a prefix or are "
                f"written. Received: {self.dilations}."
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
        # Kernels know causal rows; some take a mask of keys beside that.
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
            # The first base is of layers that see all tokens.
            config.rotary_base and config.rotary_base[bool(window)],
        )
        for layer, window in enumerate(windows)
    ]


def _dilations_of(config, layer):
    given = config.attention_dilation
    heads = config.heads_of(layer)
    return tuple(given[layer][head] if given else 1 for head in heads)
