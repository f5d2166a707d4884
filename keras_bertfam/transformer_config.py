"""The settings of a Transformer as a value: each is named, checked and bounded once."""

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
    """Declare a field that is a number, or `None` if its default is.

    Args:
        range_: what it may be.
        default: its default; none for a required field.
        of_weights: whether it is a size of weights. In a file that nobody vouches for,
            it can't be more than the longest axis of the weights beside it.
        most_in_files: what another number in such a file must be less than; `None`
            for the end of its range.
    """
    most = range_[1] if most_in_files is None else most_in_files
    metadata = {"range": range_, "of_weights": of_weights, "most_in_files": most}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """What the layers of a Transformer are made of, checked and complete.

    Backbones take these fields as keyword arguments, and keep them as attributes. A
    new argument of all backbones is a new field here, whose default changes nothing,
    and the code that reads it.

    Attributes:
        vocabulary_size: int. Rows of the token table.
        num_layers: int.
        num_heads: int. Must divide `hidden_dim` unless `head_dim` is given.
        hidden_dim: int. Width of the hidden states.
        intermediate_dim: int. Inner width of the feed-forward sub-layers.
        embedding_dim: int or `None`. Width of the embedding tables; other than
            `hidden_dim` they are factorised (ALBERT, section 3.1). `None` means
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
        share: `"none"`, `"attention"`, `"ffn"` or `"all"`: the sub-layers, each with
            its norm, that the layers of a group share (ALBERT, section 3.1, table 4).
        num_groups: int. Groups of consecutive layers that share. Layer `l` belongs to
            group `l * num_groups // num_layers`.
        norm_first: bool. Pre-norm blocks with a final norm.
        activation: `"gelu"` (erf), `"gelu_tanh"`, or a Keras activation name.
        dropout: float. Dropout rate of embeddings and sub-layer outputs.
        attention_dropout: float or `None`. Dropout rate of attention probabilities;
            `None` means `dropout`.
        layer_norm_epsilon: float.
        initializer_range: float or `None`. Standard deviation of the initial kernels
            and tables. `None` is T5's: 1 for tables, and for kernels the inverse root
            of their inputs.
        truncated_initializer: bool. Truncate that normal distribution at two standard
            deviations.
        uniform_initializer: bool. Draw initial kernels and tables uniformly instead,
            between `-initializer_range` and `initializer_range`.
        pooler: bool. Whether there is a dense tanh layer on the first state.
        causal: bool. Whether tokens attend to those before them and themselves only.
        cross_attention: bool. Whether blocks attend to a context as well; for
            `DecoderBackbone`.
        embedding_norm: bool. Whether the sum of the embeddings is normalised.
        norm: `"layer"`, or for blocks normalised by the root mean square `"rms"`, as in
            T5, whose states are float32 where others are float16, or `"plain_rms"`.
        use_bias: bool. Whether projections and feed-forward have biases.
        gated: bool. Gated feed-forward, see `FeedForward` (Shazeer, 2020).
        attention_scale: float or `None`. What scores of attention are multiplied by;
            `None` means `head_dim ** -0.5`.
        activation_dropout: float or `None`. Dropout rate inside the feed-forward
            sub-layers; `None` means `dropout`.
        output_dropout: float or `None`. Dropout rate on the last states; `None` means
            `dropout`.
        relative_buckets: int. Rows of a table by relative position that all blocks
            share: a bias, see `RelativePositionBias` (T5, section 2.1), or, with
            `disentangled`, vectors; 0 for none.
        relative_distance: int. Its greatest distance.
        tie_embeddings: bool. Whether logits are computed by the token table, or by an
            output table of its own beside it.
        pruned_heads: for each layer a list of the heads that it lacks, or `None`; see
            `keras_bertfam.analysis.prune_heads`. Heads keep the numbers they had.
        head_gates: dict of arguments of `HeadGates`, such as
            `penalty`, or `None` for no gates.
        norm_bias: bool. Whether norms have biases.
        first_norm: bool. Whether pre-norm begins with the first block's attention.
        rotary_base: float, or two, or `None`. Positions are rotations of queries and
            keys, of this base, and have no table (Su et al., 2021). Of two, the
            second is for layers with a window.
        attention_window: int, or one for each layer. Even number of neighbours that
            each token attends to, half of them on each side; 0 for all tokens
            (Longformer, section 3.1). They are a pattern, as `(0, 128, 128)`, that is
            repeated for as many layers as there are.
        attention_dilation: int, or one for each layer, or for each layer one for each
            head, `None` for 1. A head with dilation `d` attends to every `d`-th
            neighbour, as far as `attention_window // 2 * d`.
        max_global_tokens: int. Most tokens of a row that attend to all, by projections
            of their own, and that all attend to (Longformer, section 3.1). 0 for none.
        disentangled: `"shared"` or `"separate"`: attention has terms of relative
            positions, see `DisentangledSelfAttention`, whose vectors are projected as
            tokens are and normalised, or have projections of their own (DeBERTa,
            section 3.1, and its second version). `None` for no such terms.
        convolution: int. Odd number of neighbouring tokens whose embeddings are summed
            up beside the first block (DeBERTa's second version); 0 for none.
        num_key_value_heads: int or `None`. Heads of keys and values, each of which as
            many heads of queries share as stand beside each other (Ainslie et al.,
            2023). Must divide `num_heads`; `None` for one for each head, which is
            also what as many as `num_heads` become.

    Raises:
        ValueError: for a value that is none of these, and for some that exclude each
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
                "`first_norm` must be `True` unless norm_first=True and layers share "
                f"no attention. Received: norm_first={self.norm_first}, "
                f"share={self.share!r}."
            )

    def _check_attention(self):
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
                    f"`{name}` must be {type(getattr(self, name))()} where layers have "
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
                "`convolution` must be 0 with `causal`: it looks ahead. "
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
        """Make the config of a layer that was saved alone, by what it knew.

        Sizes that it has no use for are 1.
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
        """List the heads that a layer has left, by their numbers before pruning."""
        return heads_left(self.pruned_heads, layer, self.num_heads)


FIELDS = {field.name: field for field in dataclasses.fields(TransformerConfig)}
# The range of each field that is a number.
NUMBERS: dict[str, Range] = {
    name: field.metadata["range"] for name, field in FIELDS.items() if field.metadata
}


def take_settings(arguments: Config) -> tuple[Config, Config]:
    """Part keyword arguments into the fields of a config and the others.

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
    if count < 1 or num_heads % count:
        raise ValueError(
            "`num_key_value_heads` must divide `num_heads`. Received: "
            f"num_key_value_heads={count}, num_heads={num_heads}."
        )
    return count


def heads_left(pruned: PrunedHeads | None, layer: int, count: int) -> tuple[int, ...]:
    """List the heads of a layer that aren't pruned, of `count` before.

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
    """Give pruned heads as tuples, each in order.

    Args:
        pruned_heads: for each layer a list of ints, or `None`.
        num_layers: int.
        num_heads: int.
        num_groups: int. Groups of layers that share their attention; `None` means
            `num_layers`.

    Returns:
        A tuple of a tuple for each layer, or `None` if no head is pruned.

    Raises:
        ValueError: for another number of layers, heads that there aren't, and layers
            that share their attention and not the heads.
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
            f"`pruned_heads` must have for each of {num_layers} layers a list of heads "
            f"from 0 to {num_heads - 1}. Received: {pruned_heads!r}."
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
    """Give the window.

    Raises:
        ValueError: for one that is odd, negative or too long.
    """
    whole = isinstance(window, int) and not isinstance(window, bool)
    if not whole or window < 0 or window % 2 or window > MOST_WINDOW:
        raise ValueError(
            "`attention_window` must be even, as both sides see equally far, and from "
            f"2 to {MOST_WINDOW}; 0 is for all tokens. Received: {window!r}."
        )
    return window


def as_dilations(dilation: Any, num_heads: int) -> tuple[int, ...]:
    """Give a dilation for each head.

    Raises:
        ValueError: for one that isn't a positive integer, or another number of them.
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
    """Repeat a pattern of values for as many layers as there are."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ValueError(
            f"`{name}` must be one value, or a list of them by layer. "
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
    """Give the bases of layers that see all tokens and of those with a window."""
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
