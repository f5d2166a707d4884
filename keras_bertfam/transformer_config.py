"""The settings of a Transformer as a value, with their checks and ranges."""

import dataclasses
import math
from typing import Any

from keras_bertfam.number_ranges import (
    ANY,
    COUNT,
    POSITIVE,
    RATE,
    SIZE,
    Range,
    check_number,
)
from keras_bertfam.types import Config

SHARE_MODES = ("none", "attention", "ffn", "all")
DISENTANGLED_MODES = ("shared", "separate")
MOST_WINDOW = 2**16

PrunedHeads = tuple[tuple[int, ...], ...]


def _number(
    range_: Range,
    default: Any = dataclasses.MISSING,
    *,
    of_weights: bool = False,
    most_in_files: float | None = None,
) -> Any:
    """Declare a field that is a number, or also `None` if that is its default.

    Args:
        range_: the range of the number.
        default: the default; a field without one is required.
        of_weights: whether it is a size of weights. In an untrusted file such a number
            can't exceed the longest axis of the file's weights.
        most_in_files: bound for other numbers in untrusted files, which must be below
            it; `None` for the end of the range.
    """
    most = range_[1] if most_in_files is None else most_in_files
    metadata = {"range": range_, "of_weights": of_weights, "most_in_files": most}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """All settings of a Transformer, checked.

    Backbones take these fields as keyword arguments, and have them as attributes. To
    give all backbones a new argument, add a field here with a default that changes
    nothing, and the code that reads it.

    Attributes:
        vocabulary_size: int. Rows of the token table.
        num_layers: int.
        num_heads: int. Must divide `hidden_dim` unless `head_dim` is given.
        hidden_dim: int. Width of the hidden states.
        intermediate_dim: int. Inner width of the feed-forward sub-layers.
        embedding_dim: int or `None`. Width of the embedding tables. A width other than
            `hidden_dim` factorises them (ALBERT, section 3.1). `None` means
            `hidden_dim`.
        head_dim: int or `None`. Width of a head; `None` means
            `hidden_dim // num_heads`.
        max_sequence_length: int or `None`. Longest sequence; `None` for no position
            table.
        position_offset: int. Rows of the position table before the first token's (2
            for RoBERTa).
        num_segments: int. Rows of the segment table; 0 for none.
        num_languages: int. Rows of a table of languages, of which each token has one
            (XLM, section 3); 0 for none.
        share: `"none"`, `"attention"`, `"ffn"` or `"all"`: the sub-layers, with their
            norms, that the layers of a group share (ALBERT, section 3.1, table 4).
        num_groups: int. Number of groups of consecutive layers that share sub-layers.
            Layer `l` belongs to group `l * num_groups // num_layers`.
        norm_first: bool. Pre-norm blocks with a final norm.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float. Dropout rate of embeddings and sub-layer outputs.
        attention_dropout: float or `None`. Dropout rate of attention probabilities;
            `None` means `dropout`.
        layer_norm_epsilon: float.
        initializer_range: float or `None`. Standard deviation of the initial kernels
            and tables. `None` means T5's: 1 for tables, and for kernels the inverse
            root of their number of inputs.
        truncated_initializer: bool. Whether the normal distribution is truncated at two
            standard deviations.
        uniform_initializer: bool. Whether initial kernels and tables are instead
            uniform between `-initializer_range` and `initializer_range`.
        pooler: bool. Whether there is a dense layer with tanh on the first state.
        causal: bool. Whether tokens attend only to themselves and tokens before them.
        cross_attention: bool. Whether blocks attend to a context as well; for
            `DecoderBackbone`.
        embedding_norm: bool. Whether the sum of the embeddings is normalised.
        norm: `"layer"`, or a root-mean-square norm: `"rms"`, as in T5, which keeps
            states in float32 if layers compute in float16; or `"plain_rms"`.
        use_bias: bool. Whether projections and feed-forward have biases.
        gated: bool. Whether the feed-forward is gated, see `FeedForward` (Shazeer,
            2020).
        attention_scale: float or `None`. The factor of attention scores; `None` means
            `head_dim ** -0.5`.
        activation_dropout: float or `None`. Dropout rate inside the feed-forward
            sub-layers; `None` means `dropout`.
        output_dropout: float or `None`. Dropout rate on the last states; `None` means
            `dropout`.
        relative_buckets: int. Rows of a table by relative position, which all blocks
            share: a bias, see `RelativePositionBias` (T5, section 2.1), or with
            `disentangled` a vector for each row. 0 for no table.
        relative_distance: int. The greatest distance of this table.
        tie_embeddings: bool. Whether logits are computed with the token table. If not,
            there is a separate output table.
        pruned_heads: list with a list of pruned heads for each layer, or `None`; see
            `keras_bertfam.analysis.prune_heads`. The other heads keep their numbers.
        head_gates: dict of arguments of `HeadGates`, such as
            `penalty`, or `None` for no gates.
        norm_bias: bool. Whether norms have biases.
        first_norm: bool. Whether the first block's attention has a norm before it; for
            pre-norm blocks.
        rotary_base: float, two floats, or `None`. With a base, queries and keys are
            rotated by their positions, and there is no position table (Su et al.,
            2021). The second of two is for layers with a window.
        attention_window: int, or a sequence of ints by layer. Even number of neighbours
            that each token attends to, half of them on each side; 0 for all tokens
            (Longformer, section 3.1). A sequence such as `(0, 128, 128)` is a pattern
            that repeats over the layers.
        attention_dilation: int; or a sequence with an int for each layer, or with an
            int for each head of each layer; `None` for 1. A head with dilation `d`
            attends to every `d`-th neighbour, up to `attention_window // 2 * d` away.
        max_global_tokens: int. The most global tokens of a row, 0 for none. They attend
            to all tokens, by their own projections, and all tokens attend to them
            (Longformer, section 3.1).
        disentangled: `"shared"`, `"separate"` or `None`. Adds terms of relative
            positions to attention, see `DisentangledSelfAttention`. With `"separate"`
            the vectors of positions have their own projections (DeBERTa, section 3.1).
            With `"shared"` they are normalised and projected like tokens (its second
            version). `None` for no such terms.
        convolution: int. Odd number of neighbouring tokens that a convolution beside
            the first block covers (DeBERTa's second version); 0 for none.
        num_key_value_heads: int or `None`. Heads of keys and values. It must divide
            `num_heads`: neighbouring heads of queries share a head of keys (Ainslie et
            al., 2023). `None`, or as many as `num_heads`, for one for each head.

    Raises:
        ValueError: for a value out of its range, and for values that exclude each
            other.

    Example:

    ```python
    config = keras_bertfam.models.TransformerConfig(
        vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16,
        intermediate_dim=32, share="all")
    config.head_dim  # 8
    ```
    """

    vocabulary_size: int = _number(SIZE, of_weights=True)
    num_layers: int = _number(COUNT)
    num_heads: int = _number(SIZE, of_weights=True)
    hidden_dim: int = _number(SIZE, of_weights=True)
    intermediate_dim: int = _number(SIZE, of_weights=True)
    embedding_dim: int | None = _number(SIZE, None, of_weights=True)
    head_dim: int | None = _number(SIZE, None, of_weights=True)
    max_sequence_length: int | None = _number(SIZE, 512, of_weights=True)
    position_offset: int = _number(COUNT, 0, of_weights=True)
    num_segments: int = _number(COUNT, 0, of_weights=True)
    share: str = "none"
    num_groups: int = _number(SIZE, 1)
    norm_first: bool = False
    activation: str = "gelu"
    dropout: float = _number(RATE, 0.1)
    attention_dropout: float | None = _number(RATE, None)
    layer_norm_epsilon: float = _number(RATE, 1e-12)
    initializer_range: float | None = _number(POSITIVE, 0.02)
    truncated_initializer: bool = True
    pooler: bool = False
    causal: bool = False
    cross_attention: bool = False
    embedding_norm: bool = True
    norm: str = "layer"
    use_bias: bool = True
    gated: bool = False
    attention_scale: float | None = _number(ANY, None, most_in_files=2**31)
    activation_dropout: float | None = _number(RATE, 0.0)
    output_dropout: float | None = _number(RATE, 0.0)
    relative_buckets: int = _number(COUNT, 0, of_weights=True)
    relative_distance: int = _number(SIZE, 128)
    tie_embeddings: bool = True
    pruned_heads: Any = None
    head_gates: Config | None = None
    norm_bias: bool = True
    first_norm: bool = True
    rotary_base: Any = None
    attention_window: Any = None
    attention_dilation: Any = None
    max_global_tokens: int = _number((0, 65536), 0, most_in_files=65537)
    disentangled: str | None = None
    convolution: int = _number(COUNT, 0, of_weights=True)
    uniform_initializer: bool = False
    num_languages: int = _number(COUNT, 0, of_weights=True)
    num_key_value_heads: int | None = _number(SIZE, None, of_weights=True)

    def __post_init__(self) -> None:
        for name, range_ in NUMBERS.items():
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, *range_)
        self._set(
            head_dim=head_dim_of(self.hidden_dim, self.num_heads, self.head_dim),
            embedding_dim=self.embedding_dim or self.hidden_dim,
            rotary_base=_checked_bases(self.rotary_base),
            attention_window=_checked_windows(self.attention_window, self.num_layers),
            attention_dilation=_checked_dilations(
                self.attention_dilation, self.num_layers, self.num_heads
            ),
        )
        for name in ("attention_dropout", "activation_dropout", "output_dropout"):
            if getattr(self, name) is None:
                self._set(**{name: self.dropout})
        if self.uniform_initializer and self.initializer_range is None:
            raise ValueError(
                "`initializer_range` must be a number with `uniform_initializer`. "
                "Received: None."
            )
        self._check_sharing()
        shares_heads = self.share in ("attention", "all")
        groups = self.num_groups if shares_heads else self.num_layers
        self._set(
            pruned_heads=checked_pruned_heads(
                self.pruned_heads, self.num_layers, self.num_heads, groups
            )
        )
        self._check_attention()
        self._check_groups()

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_sharing(self):
        if self.share not in SHARE_MODES:
            raise ValueError(
                f"`share` must be one of {SHARE_MODES}. Received: share={self.share!r}."
            )
        if not 1 <= self.num_groups <= max(1, self.num_layers):
            raise ValueError(
                "`num_groups` must be between 1 and "
                f"num_layers={self.num_layers}. Received: num_groups={self.num_groups}."
            )
        shares = self.share in ("attention", "all")
        if not self.first_norm and (not self.norm_first or shares):
            raise ValueError(
                "`first_norm` must be `True` unless norm_first=True and layers don't "
                f"share attention. Received: norm_first={self.norm_first}, "
                f"share={self.share!r}."
            )

    def _check_attention(self):
        if self.attention_scale == 0:
            raise ValueError("`attention_scale` must not be 0. Received: 0.")
        if self.attention_dilation and not self.attention_window:
            raise ValueError(
                "`attention_dilation` must be 1 without `attention_window`. "
                f"Received: {self.attention_dilation!r}."
            )
        for name, excluded in (
            ("causal", self.max_global_tokens),
            ("relative_buckets", self.is_local),
        ):
            if excluded and getattr(self, name):
                windows = "" if name == "causal" else "an `attention_window` or "
                raise ValueError(
                    f"`{name}` must be {type(getattr(self, name))()} if layers have "
                    f"{windows}global tokens. Received: {getattr(self, name)!r}."
                )
        if self.disentangled is not None:
            self._check_disentangled()
        if self.convolution and not self.convolution % 2:
            raise ValueError(
                "`convolution` must be odd, or 0 for none. "
                f"Received: convolution={self.convolution}."
            )
        if self.convolution and self.causal:
            raise ValueError(
                "`convolution` must be 0 with `causal`, because it looks ahead. "
                f"Received: convolution={self.convolution}."
            )
        if self.rotary_base and self.head_dim % 2:
            raise ValueError(
                "`head_dim` must be even with a `rotary_base`. "
                f"Received: head_dim={self.head_dim}."
            )

    def _check_disentangled(self):
        if self.disentangled not in DISENTANGLED_MODES:
            raise ValueError(
                f"`disentangled` must be one of {DISENTANGLED_MODES}, or `None`. "
                f"Received: disentangled={self.disentangled!r}."
            )
        rows, most = self.relative_buckets, self.relative_distance
        if rows < 4 or rows % 2 or not 2 <= most <= MOST_WINDOW:
            raise ValueError(
                "`relative_buckets` must be even and at least 4, and "
                f"`relative_distance` from 2 to {MOST_WINDOW}, with `disentangled`. "
                f"Received: relative_buckets={rows}, relative_distance={most}."
            )
        for name in ("causal", "cross_attention", "rotary_base", "norm_first"):
            if getattr(self, name):
                raise ValueError(
                    f"`{name}` must be left out with `disentangled`. "
                    f"Received: {name}={getattr(self, name)!r}."
                )

    def _check_groups(self):
        count = check_key_value_heads(self.num_heads, self.num_key_value_heads)
        self._set(num_key_value_heads=None if count == self.num_heads else count)
        if self.num_key_value_heads is None:
            return
        for name in ("pruned_heads", "disentangled", "cross_attention"):
            if getattr(self, name):
                raise ValueError(
                    f"`{name}` must be left out where queries share keys and values. "
                    f"Received: {name}={getattr(self, name)!r}, "
                    f"num_heads={self.num_heads}, num_key_value_heads={count}."
                )

    @classmethod
    def of_part(cls, **settings: Any) -> "TransformerConfig":
        """Make the config of a layer that was saved alone, from its own settings.

        Sizes that the layer doesn't use are 1.
        """
        width = settings.get("num_heads", 1) * (settings.get("head_dim") or 1)
        sizes = {"hidden_dim": width}
        sizes |= dict.fromkeys(
            ("vocabulary_size", "num_layers", "num_heads", "intermediate_dim"), 1
        )
        return cls(**{**sizes, **settings})

    @property
    def is_local(self) -> bool:
        """Whether layers have windows or global tokens."""
        return bool(self.attention_window or self.max_global_tokens)

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """List the heads that a layer has left, by their original numbers."""
        return heads_left(self.pruned_heads, layer, self.num_heads)


FIELDS = {field.name: field for field in dataclasses.fields(TransformerConfig)}
# The range of each field that is a number.
NUMBERS: dict[str, Range] = {
    name: field.metadata["range"] for name, field in FIELDS.items() if field.metadata
}


def take_settings(arguments: Config) -> tuple[Config, Config]:
    """Split keyword arguments into fields of a config and other arguments.

    Args:
        arguments: dict from names to values.

    Returns:
        Two dicts.
    """
    settings = {name: x for name, x in arguments.items() if name in FIELDS}
    return settings, {name: x for name, x in arguments.items() if name not in FIELDS}


def head_dim_of(hidden_dim: int, num_heads: int, head_dim: int | None) -> int:
    """Give the width of a head.

    Raises:
        ValueError: if it isn't given and `num_heads` doesn't divide `hidden_dim`.
    """
    if head_dim is None and hidden_dim % num_heads:
        raise ValueError(
            "`hidden_dim` must be divisible by `num_heads`, or `head_dim` "
            f"given. Received: hidden_dim={hidden_dim}, num_heads={num_heads}."
        )
    return head_dim or hidden_dim // num_heads


def check_key_value_heads(num_heads: int, num_key_value_heads: int | None) -> int:
    """Give the number of heads of keys and values.

    Raises:
        ValueError: if it doesn't divide `num_heads`.
    """
    count = num_heads if num_key_value_heads is None else num_key_value_heads
    check_number("num_key_value_heads", count, 1)
    if num_heads % count:
        raise ValueError(
            "`num_key_value_heads` must divide `num_heads`. Received: "
            f"num_key_value_heads={count}, num_heads={num_heads}."
        )
    return count


def heads_left(pruned: PrunedHeads | None, layer: int, count: int) -> tuple[int, ...]:
    """List the heads of a layer that aren't pruned, out of `count`.

    Example: `heads_left(((1,), ()), layer=0, count=3)` is `(0, 2)`.
    """
    gone = pruned[layer] if pruned else ()
    return tuple(head for head in range(count) if head not in gone)


def checked_pruned_heads(
    pruned_heads: Any,
    num_layers: int,
    num_heads: int,
    num_groups: int | None = None,
) -> PrunedHeads | None:
    """Check pruned heads, and give them as sorted tuples.

    Args:
        pruned_heads: list with a list of ints for each layer, or `None`.
        num_layers: int.
        num_heads: int.
        num_groups: int. Groups of layers that share their attention; `None` means
            `num_layers`.

    Returns:
        A tuple with a tuple for each layer, or `None` if no head is pruned.

    Raises:
        ValueError: for a wrong number of layers, for heads that don't exist, and for
            layers that share their attention but differ in heads.
    """
    if pruned_heads is None:
        return None
    lists = isinstance(pruned_heads, (list, tuple))
    if (
        not lists
        or len(pruned_heads) != num_layers
        or not all(_are_heads(heads, num_heads) for heads in pruned_heads)
    ):
        raise ValueError(
            f"`pruned_heads` must have a list for each of {num_layers} layers, with "
            f"heads from 0 to {num_heads - 1}. Received: {pruned_heads!r}."
        )
    found = tuple(tuple(sorted({*heads})) for heads in pruned_heads)
    groups = num_groups or num_layers
    for layer in range(1, num_layers):
        shared = layer * groups // num_layers == (layer - 1) * groups // num_layers
        if shared and found[layer] != found[layer - 1]:
            raise ValueError(
                "`pruned_heads` must be the same for layers that share their "
                f"attention, as {layer - 1} and {layer}. Received: "
                f"{list(found[layer - 1])} and {list(found[layer])}."
            )
    return found if any(found) else None


def _are_heads(heads, num_heads):
    return isinstance(heads, (list, tuple)) and all(
        type(head) is int and 0 <= head < num_heads for head in heads
    )


def check_window(window: int) -> int:
    """Check a window, and return it.

    Raises:
        ValueError: for a window that is odd, negative or too long.
    """
    whole = isinstance(window, int) and not isinstance(window, bool)
    if not whole or window < 0 or window % 2 or window > MOST_WINDOW:
        raise ValueError(
            "`attention_window` must be even, half for each side, and from 2 to "
            f"{MOST_WINDOW}; 0 means all tokens. Received: {window!r}."
        )
    return window


def as_dilations(dilation: Any, num_heads: int) -> tuple[int, ...]:
    """Give a dilation for each head.

    Raises:
        ValueError: for a dilation that isn't a positive integer, or a wrong number of
            them.
    """
    given = [dilation] * num_heads if isinstance(dilation, int) else dilation
    lists = isinstance(given, (list, tuple)) and len(given) == num_heads
    if not lists or any(type(each) is not int or each < 1 for each in given):
        raise ValueError(
            "`attention_dilation` must be a positive integer, or one for each of "
            f"{num_heads} heads. Received: {dilation!r}."
        )
    return tuple(given)


def _by_layer(name, value, num_layers):
    """Repeat a pattern of values over the layers."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ValueError(
            f"`{name}` must be one value, or a list of values by layer. "
            f"Received: {value!r}."
        )
    return [values[layer % len(values)] for layer in range(num_layers)]


def _checked_windows(attention_window, num_layers):
    """Give a window for each layer; `None` if no layer has one."""
    windows = _by_layer("attention_window", attention_window, num_layers)
    found = tuple(check_window(window or 0) for window in windows)
    return found if any(found) else None


def _checked_dilations(attention_dilation, num_layers, num_heads):
    """Give a dilation for each head of each layer; `None` if all are 1."""
    given = 1 if attention_dilation is None else attention_dilation
    layers = _by_layer("attention_dilation", given, num_layers)
    found = tuple(as_dilations(each, num_heads) for each in layers)
    return found if any({*each} != {1} for each in found) else None


def _checked_bases(rotary_base):
    """Give two bases: for layers that see all tokens, and for layers with a window."""
    if rotary_base is None:
        return None
    pair = rotary_base if isinstance(rotary_base, (list, tuple)) else [rotary_base] * 2
    numbers = (isinstance(x, int | float) and not isinstance(x, bool) for x in pair)
    if len(pair) != 2 or not all(numbers) or not all(0 < x < math.inf for x in pair):
        raise ValueError(
            "`rotary_base` must be a positive number, or two: for layers that see all "
            f"tokens, and for layers with a window. Received: {rotary_base!r}."
        )
    return float(pair[0]), float(pair[1])
