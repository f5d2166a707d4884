"""What each layer's self-attention is told of the keys it sees, and of positions."""

import math
from typing import Any

from keras import ops

from keras_bertfam.layers.modeling.attention_kernels import (
    added_mask,
    knows_patterns,
)
from keras_bertfam.layers.modeling.global_tokens import tokens_at, tokens_of_mask
from keras_bertfam.layers.modeling.neighbours import as_dilations, check_window
from keras_bertfam.layers.modeling.rotary import rotary_positions
from keras_bertfam.layers.modeling.sequences import numbers_of, same_sequence
from keras_bertfam.layers.modeling.sight import hide, seen_keys
from keras_bertfam.types import Mixin, Tensor

Windows = tuple[int, ...]


def checked_windows(attention_window: Any, num_layers: int) -> Windows | None:
    """A window for each layer; see `attention_window` of `TransformerStack`.

    Returns:
        A tuple of ints, 0 for all tokens; `None` if no layer has a window.

    Raises:
        ValueError: for a window that is odd, negative or too long, and no windows.
    """
    windows = _by_layer("attention_window", attention_window, num_layers)
    found = tuple(check_window(window or 0) for window in windows)
    return found if any(found) else None


def checked_dilations(
    attention_dilation: Any, num_layers: int, num_heads: int
) -> tuple[Windows, ...] | None:
    """A dilation for each head of each layer; `None` if no head has one.

    Raises:
        ValueError: for a dilation that isn't a positive integer, or another number
            of them.
    """
    given = 1 if attention_dilation is None else attention_dilation
    layers = _by_layer("attention_dilation", given, num_layers)
    found = tuple(as_dilations(each, num_heads) for each in layers)
    return found if any({*each} != {1} for each in found) else None


def _by_layer(name, value, num_layers):
    """One of the values for each layer, a pattern that goes on as far as there are."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ValueError(
            f"`{name}` must be one value, or a list of them by layer. "
            f"Received: {value!r}."
        )
    return [values[layer % len(values)] for layer in range(num_layers)]


def checked_bases(rotary_base: Any) -> tuple[float, float] | None:
    """The bases of rotary positions where all tokens are seen, and within windows.

    Raises:
        ValueError: for what isn't one or two positive numbers.
    """
    if rotary_base is None:
        return None
    pair = rotary_base if isinstance(rotary_base, (list, tuple)) else [rotary_base] * 2
    numbers = (isinstance(x, int | float) and not isinstance(x, bool) for x in pair)
    if len(pair) != 2 or not all(numbers) or not all(0 < x < math.inf for x in pair):
        raise ValueError(
            "`rotary_base` must be a positive number, or two: of layers that see all "
            f"tokens, and of those with a window. Received: {rotary_base!r}."
        )
    return float(pair[0]), float(pair[1])


def checked_sight(
    attention_window: Any,
    attention_dilation: Any,
    rotary_base: Any,
    num_layers: int,
    num_heads: int,
) -> tuple[Any, Any, Any]:
    """The first three, as a stack keeps them; see the functions above."""
    return (
        checked_windows(attention_window, num_layers),
        checked_dilations(attention_dilation, num_layers, num_heads),
        checked_bases(rotary_base),
    )


class StackSight(Mixin):
    """Mixin of a stack whose layers see all tokens, or those in a window.

    Attributes:
        is_local: whether there are windows or global tokens.
    """

    is_local = False

    def _settle_sight(self):
        """Sets what layers see; the arguments of the stack are set."""
        given = (self.attention_window, self.attention_dilation, self.rotary_base)
        found = checked_sight(*given, self.num_layers, self.num_heads)
        self.attention_window, self.attention_dilation, self.rotary_base = found
        most = self.max_global_tokens
        if type(most) is not int or not 0 <= most <= 2**16:
            raise ValueError(
                "`max_global_tokens` must be an integer from 0 to 65536. "
                f"Received: {most!r}."
            )
        self.is_local = bool(self.attention_window or most)
        if self.attention_dilation and not self.attention_window:
            raise ValueError(
                "`attention_dilation` must be 1 without `attention_window`. "
                f"Received: {self.attention_dilation!r}."
            )
        for name, unfit in (("causal", most), ("relative_buckets", self.is_local)):
            if unfit and getattr(self, name):
                windows = "" if name == "causal" else "an `attention_window` or "
                raise ValueError(
                    f"`{name}` must be {type(getattr(self, name))()} where layers have "
                    f"{windows}global tokens. Received: {getattr(self, name)!r}."
                )
        if self.rotary_base and self.head_dim % 2:
            raise ValueError(
                "`head_dim` must be even with a `rotary_base`. "
                f"Received: head_dim={self.head_dim}."
            )

    def global_tokens(
        self, mask: Tensor | None, positions: Tensor | None, length: int | Tensor
    ) -> dict[str, Tensor] | None:
        """Global tokens, from a mask or from positions.

        Args:
            mask: bool tensor `(batch, length)`, or `None`.
            positions: int tensor `(batch, count)`, -1 for none, or `None`.
            length: int, the tokens of a row.

        Returns:
            Dict of tensors that a call takes, or `None` for no global tokens.
        """
        if mask is not None:
            return tokens_of_mask(ops.cast(mask, "bool"), self.max_global_tokens)
        return None if positions is None else tokens_at(positions, length)

    def _window(self, layer):
        return self.attention_window[layer] if self.attention_window else 0

    def _dilation(self, layer):
        given = self.attention_dilation
        heads = self.heads_of(layer)
        return tuple(given[layer][head] if given else 1 for head in heads)

    def _sights(
        self,
        x,
        attention_mask,
        prefix_mask,
        positions,
        cache,
        cache_index,
        position_ids,
        sequence_ids,
        global_tokens,
    ):
        """For each layer the arguments of self-attention that say what it sees."""
        rows, length = ops.shape(x)[:2]
        keys = length if cache is None else ops.shape(cache[0][0])[1]
        first = ops.convert_to_tensor(cache_index, "int32")
        sizes = {"queries": length, "keys": keys, "first_query": first}
        rotaries = self._rotaries(position_ids, length, first)
        made, sights = {}, []
        for layer in range(self.num_layers):
            window, dilation = self._window(layer), self._dilation(layer)
            if window and (cache is not None or prefix_mask is not None):
                sight = _once(
                    made,
                    (window, dilation),
                    lambda w=window, d=dilation: self._written_sight(
                        w, d, (prefix_mask, attention_mask), sequence_ids, sizes
                    ),
                )
            elif window or global_tokens is not None:
                masks = (attention_mask, sequence_ids, global_tokens)
                sight = _once(
                    made,
                    (window, dilation),
                    lambda w=window, d=dilation, m=masks, at=layer: self._local_sight(
                        at, rows, length, m, w, d
                    ),
                )
            else:
                at = positions if layer == self.num_layers - 1 else None
                sight = _once(
                    made,
                    at is None or self.relative_bias is None,
                    lambda p=at: self._whole_sight(
                        (prefix_mask, attention_mask),
                        sequence_ids,
                        p,
                        sizes,
                        cache is not None,
                    ),
                )
            sight = dict(sight)
            if rotaries is not None:
                sight["rotary"] = rotaries[bool(window)]
            if cache is not None:
                sight |= {"cache": cache[layer], "cache_index": first}
            sights.append(sight)
        return sights

    def _rotaries(self, position_ids, length, first):
        """What queries and keys are rotated by, for all tokens and within windows."""
        if self.rotary_base is None:
            return None
        if position_ids is None:
            position_ids = ops.arange(length, dtype="int32") + first
            position_ids = ops.expand_dims(position_ids, 0)
        every, near = self.rotary_base
        made = rotary_positions(position_ids, self.head_dim, every)
        if near == every or not self.attention_window:
            return made, made
        return made, rotary_positions(position_ids, self.head_dim, near)

    def _local_sight(self, layer, rows, length, masks, window, dilation):
        names = ("attention_mask", "sequence_ids", "global_tokens")
        sight = dict(zip(names, masks, strict=True))
        sight |= {"window": window, "dilation": dilation}
        attention = self.block(layer)[0].sublayer
        if dilation:  # and so heads
            pattern = (window, dilation)
            sight["neighbours"] = attention.neighbours(rows, length, *masks, *pattern)
        return sight

    def _written_sight(self, window, dilation, masks, sequence_ids, sizes):
        """Within a window, of a text that has a prefix, or is being written."""
        if {*dilation} - {1}:
            raise ValueError(
                "`attention_dilation` must be 1 where texts have a prefix or are "
                f"written. Received: {self.attention_dilation}."
            )
        prefix_mask, attention_mask = masks
        if sequence_ids is not None:
            attention_mask = same_sequence(sequence_ids, attention_mask)
        seen = seen_keys(*sizes.values(), prefix_mask, attention_mask)
        queries = ops.arange(sizes["queries"], dtype="int32") + sizes["first_query"]
        keys = ops.arange(sizes["keys"], dtype="int32")
        apart = ops.abs(ops.expand_dims(queries, 1) - keys)
        seen = ops.logical_and(seen, apart <= window // 2)
        return {"attention_mask": seen, "causal": False, "window": 0}

    def _whole_sight(self, masks, sequence_ids, positions, sizes, cached):
        prefix_mask, attention_mask = masks
        numbers = None
        if sequence_ids is not None:
            numbers = numbers_of(sequence_ids, attention_mask)
            attention_mask = same_sequence(sequence_ids, attention_mask)
        masks = (prefix_mask, attention_mask)
        plain = all(mask is None for mask in masks) and self.relative_bias is None
        sight = {"attention_mask": attention_mask}
        is_final = not cached and self.relative_bias is None
        # A kernel may be told of both, the mask of keys and that rows are causal.
        plain = plain or (is_final and prefix_mask is None and knows_patterns())
        if numbers is not None and self.relative_bias is None:
            sight["numbers"] = numbers
        if self.is_local:
            sight["window"] = 0
        if self.causal and (cached or not plain):
            seen = seen_keys(*sizes.values(), *masks)
            sight = {"attention_mask": seen, "causal": False}
        if is_final:
            return self._with_added(sight)
        if self.relative_bias is None:
            bias = ops.zeros((), self.compute_dtype)
            return {**sight, **hide(bias, sight["attention_mask"])}
        if positions is not None:
            names = ("queries", "keys")
            only = {name: sizes[name] for name in names}
            return {**sight, "bias": self.relative_bias(**only, positions=positions)}
        bias = self.relative_bias(**sizes)
        return {**sight, **hide(bias, sight["attention_mask"])}

    def _with_added(self, sight):
        mask = sight["attention_mask"]
        if mask is None or len(mask.shape) < 3:
            return sight
        added = added_mask(mask, self.compute_dtype)
        return sight if added is None else {**sight, "added_mask": added}


def _once(made: dict, key: Any, make: Any) -> Any:
    """What belongs to a key, made at its first use."""
    if key not in made:
        made[key] = make()
    return made[key]
