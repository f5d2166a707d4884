"""How one or two segments are laid out in a row, by family."""

import tensorflow as tf

from keras_bertfam.layers.data.cut_texts import count_cut
from keras_bertfam.layers.data.segments import truncated_lengths
from keras_bertfam.presets.families import FAMILIES, family_of_tokenizer
from keras_bertfam.presets.families.record import Layout
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer

# A text alone, for backbones that have no token to mark it with.
BARE = Layout("bare", start_token="", separators=0, ends=False)


def layouts() -> dict[str, Layout]:
    """List the layouts of the families, and `BARE`, by name."""
    return {**{r.layout.name: r.layout for r in FAMILIES.values()}, BARE.name: BARE}


def get_layout(name: str | None, tokenizer: Tokenizer, summary: bool = False) -> Layout:
    """Find a layout by name, or that of a tokenizer where the name is `None`.

    That of a tokenizer is found by its start token, or else in the record of the family
    that has tokenizers of its class. Neither asks for a vocabulary.

    Args:
        name: str or `None`.
        tokenizer: a tokenizer layer.
        summary: bool. Whether one token's state is to stand for a row: GPT's rows have
            new tokens for that.

    Raises:
        ValueError: for an unknown name, or a tokenizer whose start token and class
            are none of the families'.
    """
    known = layouts()
    starts = {x.start_token: n for n, x in reversed(known.items()) if x.start_token}
    family = family_of_tokenizer(tokenizer)
    if name is None and summary and family is not None:
        heads = known.get(family.head_style.name)
        name = heads.name if heads and heads.new_tokens else None
    if name is None:
        name = starts.get(getattr(tokenizer, "start_token", None) or "")
    if name is None and family is not None:
        name = family.layout.name
    if name not in known:
        raise ValueError(
            f"`layout` must be one of {sorted(known)}, or `None` with a tokenizer "
            f"whose start token is one of {sorted(starts)}. Received: "
            f"layout={name!r}, tokenizer={type(tokenizer).__name__}."
        )
    return known[name]


def truncate_pair(segments: list[TFRagged], budget: int) -> list[TFRagged]:
    """Cut the ends of one or two segments off until they fit in a budget.

    Of two, the longer one loses tokens, the second if they are equally long
    (the released BERT's fine-tuning).

    Args:
        segments: list of one or two ragged int32 tensors `(rows, None)`.
        budget: int.

    Returns:
        A list of ragged tensors.
    """
    lengths = [tf.cast(x.row_lengths(), tf.int32) for x in segments]
    count_cut(tf.add_n(lengths) > budget)
    if len(segments) == 1:
        return [segments[0][:, :budget]]
    first, second = lengths
    sizes = truncated_lengths(first, second, budget)
    return [head(x, size) for x, size in zip(segments, sizes, strict=True)]


def head(ragged: TFRagged, sizes: TFTensor) -> TFRagged:
    """Take the first `sizes[i]` elements of each row `i`."""
    inside = tf.ragged.range(ragged.row_lengths()) < tf.cast(sizes, tf.int64)[:, None]
    return tf.ragged.boolean_mask(ragged, inside)


def lay_out(
    segments: list[TFRagged], tokenizer: Tokenizer, layout: Layout
) -> dict[str, TFRagged]:
    """Join segments and special tokens to rows.

    Args:
        segments: list of one or two ragged int32 tensors `(rows, None)`.
        tokenizer: see `special_ids`.
        layout: a `Layout`.

    Returns:
        A dict of `token_ids` and `segment_ids`, ragged int32 tensors of the same
        shape. XLNet's last token is a segment of its own.
    """
    rows = segments[0].nrows()
    start, between, end = (
        tf.tile([tf.constant(ids, tf.int32)], [rows, 1])
        for ids in special_ids(tokenizer, layout)
    )
    parts = []
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        parts += [(segment, number), (end if last else between, number)]
    parts.insert(*((len(parts), (start, 2)) if layout.start_last else (0, (start, 0))))
    ids = tf.concat([part for part, _ in parts], 1)
    numbers = [_filled_like(part, number) for part, number in parts]
    return {"token_ids": ids, "segment_ids": tf.concat(numbers, 1)}


def special_ids(
    tokenizer: Tokenizer, layout: Layout
) -> tuple[list[int], list[int], list[int]]:
    """Look up the ids of the start token, if any, of the separators and of the end.

    They are the tokenizer's `start_token_id` and `end_token_id`, or those that follow
    its own where a layout has new tokens.
    """
    if layout.new_tokens:
        size = tokenizer.vocabulary_size()
        start, separator, end = size, size + 1, size + 2
    else:
        start, end = tokenizer.start_token_id, tokenizer.end_token_id
        separator = end
    return (
        [start] if layout.start_token else [],
        [separator] * layout.separators,
        [end] if layout.ends else [],
    )


def _filled_like(x, value):
    if isinstance(x, tf.RaggedTensor):
        return x.with_flat_values(tf.fill(tf.shape(x.flat_values), value))
    return tf.fill(tf.shape(x), value)
