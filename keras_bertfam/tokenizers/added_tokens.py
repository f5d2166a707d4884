"""Tokens that are found in a text before its tokenizer's model splits the rest."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.tokenizers.texts import CLUSTER, WHITE_SPACE
from keras_bertfam.types import TFRagged, TFTensor

# Unicode's word characters: what a token of single words can't have beside it.
_WORD = r"[\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}]"


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in texts as it is written, whatever the model knows.

    Args:
        content: str. What is looked for.
        lstrip: bool. White space before it is part of it.
        rstrip: bool. White space after it is part of it.
        single_word: bool. It isn't found inside a word.
        normalized: bool. It is looked for after the tokenizer's clean-up, as in
            lower-case letters.
        special: bool. It marks something: it isn't masked, nor drawn at random.

    Example:

    ```python
    from keras_bertfam.tokenizers.added_tokens import AddedToken
    AddedToken("<entity>", special=True)
    ```
    """

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.content, str) or not self.content:
            raise ValueError(
                "`content` of an added token must be a string that isn't empty. "
                f"Received: {self.content!r}."
            )
        for name, value in dataclasses.asdict(self).items():
            if name != "content" and not isinstance(value, bool):
                raise ValueError(
                    f"`{name}` of the added token {self.content!r} must be a bool. "
                    f"Received: {value!r}."
                )


def as_added_tokens(
    tokens: Iterable[str | dict[str, Any] | AddedToken],
) -> tuple[AddedToken, ...]:
    """Make `AddedToken`s of strings, or of dicts of their arguments.

    Raises:
        ValueError: for other things, one string, or a token twice.
    """
    if isinstance(tokens, str | bytes | dict):
        raise ValueError(f"`added_tokens` must be a list. Received: {tokens!r}.")
    made = []
    for token in tokens:
        if isinstance(token, str):
            token = AddedToken(token)
        elif isinstance(token, dict) and {*token} <= _FIELDS and "content" in token:
            token = AddedToken(**token)
        if not isinstance(token, AddedToken):
            raise ValueError(
                "`added_tokens` must be of strings, or of dicts of `content` and "
                f"{', '.join(sorted(_FIELDS - {'content'}))}. Received: {token!r}."
            )
        made.append(token)
    contents = [token.content for token in made]
    twice = {content for content in contents if contents.count(content) > 1}
    if twice:
        raise ValueError(
            f"`added_tokens` must have each token once. Received: {min(twice)!r} twice."
        )
    return tuple(made)


_FIELDS = {field.name for field in dataclasses.fields(AddedToken)}


class TextParts(NamedTuple):
    """Texts in parts, each a token or text between: ragged, `(batch, None)`.

    Args:
        texts: what each part is.
        numbers: int32, which of the tokens it is; -1 for text.
        starts: int64, the byte of the text where it begins.
        ends: int64, the byte after it.
    """

    texts: TFRagged
    numbers: TFRagged
    starts: TFRagged
    ends: TFRagged

    @property
    def is_token(self) -> TFTensor:
        """Tell which of all parts are tokens."""
        return self.numbers.flat_values >= 0


@as_written
def split_at(
    texts: TFTensor,
    tokens: Sequence[AddedToken],
    clean: Callable[[TFTensor], TFTensor] | None = None,
) -> TextParts:
    """Split texts at tokens, those that aren't `normalized` first. Works in a graph.

    Of `"a <b> c"` and a token `<b>` that takes the space before it:

        texts     "a"  "<b>"  " c"
        numbers   -1   0      -1
        starts    0    1      5

    Args:
        texts: string tensor of shape `(batch,)`, in UTF-8.
        tokens: list of `AddedToken`. Where several could be, the longest is.
        clean: callable that takes and returns strings, the tokenizer's clean-up, or
            `None`.

    Returns:
        `TextParts`.
    """
    parts: Any = None
    as_they_are = [k for k, token in enumerate(tokens) if not token.normalized]
    cleaned = [k for k, token in enumerate(tokens) if token.normalized]
    if as_they_are:
        parts = _numbered(_split(texts, [tokens[k] for k in as_they_are]), as_they_are)
    if parts and not cleaned:
        return parts
    inner = parts.texts.flat_values if parts else texts
    if parts:
        inner = tf.where(parts.is_token, "", inner)
    split = _split if clean is None else _split_cleaned
    found = _numbered(split(inner, [tokens[k] for k in cleaned], clean), cleaned)
    if not parts:
        return found
    # A token of the first round is the one part of its row; the others have theirs.
    alone = parts.is_token

    def merged(outer, inner, first):
        inner = inner.with_flat_values(inner.flat_values + first)
        own = ragged.keep(outer.flat_values, alone)
        rows = ragged.fill_rows(inner, alone, own)
        return ragged.merge_inner(parts.texts.with_flat_values(rows))

    moved = tf.gather(parts.starts.flat_values, ragged.row_ids(found.starts))
    return TextParts(
        merged(parts.texts, found.texts, ""),
        merged(parts.numbers, found.numbers, 0),
        merged(parts.starts, found.starts, moved),
        merged(parts.ends, found.ends, moved),
    )


def _numbered(parts, numbers):
    """Number parts as they are numbered in a longer list."""
    own = tf.gather([-1, *numbers], parts.numbers.flat_values + 1)
    return parts._replace(numbers=parts.numbers.with_flat_values(own))


def _split(texts, tokens, clean=None):
    """Split texts at tokens as they are written."""
    contents = [token.content for token in tokens]
    longest_first = sorted(contents, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    split, starts, ends = ragged.split_at(texts, pattern, pattern)
    flat, starts, ends = (x.flat_values for x in (split, starts, ends))
    same = flat[:, None] == tf.constant(contents)[None]
    numbers = tf.where(
        tf.reduce_any(same, 1), tf.argmax(tf.cast(same, tf.int32), 1, tf.int32), -1
    )
    rows = ragged.row_ids(split)
    if any(token.single_word for token in tokens):
        rows, flat, numbers, starts, ends = _whole_words(
            rows, flat, numbers, starts, ends, [token.single_word for token in tokens]
        )
    for before, strips in enumerate(
        ([token.rstrip for token in tokens], [token.lstrip for token in tokens])
    ):
        if any(strips):
            flat, starts, ends = _strip(
                rows, flat, numbers, starts, ends, strips, before == 0
            )
    kept = ends > starts
    rows = ragged.from_row_ids(flat, rows, tf.size(texts, tf.int64))
    rows = ragged.keep_in_rows(rows, kept)
    others = (ragged.keep(x, kept) for x in (numbers, starts, ends))
    return TextParts(rows, *map(rows.with_flat_values, others))


def _neighbour(values, rows, default, before):
    """Give the value before or after each, in the same row; else a default."""
    # "a", "b", "c" in the rows 0, 0, 1, by default "-": before are "-", "a", "-", and
    # after "b", "-", "-".
    first = tf.fill([tf.minimum(tf.size(rows), 1)], tf.cast(default, values.dtype))
    near = rows[1:] == rows[:-1]
    if before:
        return tf.concat([first, tf.where(near, values[:-1], first)], 0)
    return tf.concat([tf.where(near, values[1:], first), first], 0)


def _is_any(numbers, of):
    """Tell which numbers are of those that a list says; -1 is of none."""
    return tf.gather([False, *of], numbers + 1)


def _whole_words(rows, flat, numbers, starts, ends, single_word):
    """Make text of tokens inside words, and join it with the text beside it."""
    inside = tf.zeros(tf.shape(numbers), bool)
    for before, place in ((True, -1), (False, 0)):
        # An empty text has no last character: a space stands for it.
        near = _neighbour(flat, rows, " ", before)
        at = tf.fill(tf.shape(near), place)
        near = tf.strings.substr(near, at, tf.ones_like(at), unit="UTF8_CHAR")
        inside |= tf.strings.regex_full_match(near, _WORD)
    numbers = tf.where(inside & _is_any(numbers, single_word), -1, numbers)
    text = numbers < 0
    goes_on = text & _neighbour(text, rows, False, True)
    place = tf.cumsum(tf.cast(~goes_on, tf.int32)) - 1
    count = tf.reduce_sum(tf.cast(~goes_on, tf.int32))
    return (
        ragged.keep(rows, ~goes_on),
        tf.strings.unsorted_segment_join(flat, place, count),
        ragged.keep(numbers, ~goes_on),
        ragged.keep(starts, ~goes_on),
        tf.math.unsorted_segment_max(ends, place, count),
    )


def _strip(rows, flat, numbers, starts, ends, strips, after):
    """Give white space of the text after or before tokens to them."""
    wanting = _is_any(numbers, strips)
    text = numbers < 0
    giving = text & _neighbour(wanting, rows, False, after)
    space = rf"^[{WHITE_SPACE}]+" if after else rf"[{WHITE_SPACE}]+$"
    bare = tf.where(giving, tf.strings.regex_replace(flat, space, ""), flat)
    given = tf.cast(tf.strings.length(flat) - tf.strings.length(bare), starts.dtype)
    taken = tf.where(wanting, _neighbour(given, rows, 0, not after), 0)
    if after:
        return bare, starts + given, ends + taken
    return bare, starts - taken, ends - given


def _split_cleaned(texts, tokens, clean):
    """Split texts at tokens that are found after the clean-up."""
    with tf.init_scope():
        contents = clean(tf.constant([token.content for token in tokens])).numpy()
    sought = [
        dataclasses.replace(token, content=content.decode() or token.content)
        for token, content in zip(tokens, contents, strict=True)
    ]
    return tf.cond(
        tf.reduce_all(clean(texts) == texts),
        lambda: _split(texts, sought),
        lambda: _split_by_characters(texts, sought, clean),
    )


def _split_by_characters(texts, tokens, clean):
    """Split cleaned texts, and put what was there before together by parts."""
    clusters, starts, ends = ragged.split_at(texts, CLUSTER, CLUSTER)
    cleaned = clusters.with_flat_values(clean(clusters.flat_values))
    parts = _split(tf.strings.reduce_join(cleaned, 1), tokens)
    # Bytes of all clean texts one after the other: a cluster is of the part in which
    # its middle byte is, as there may be spaces around it.
    sizes = tf.cast(tf.strings.length(cleaned.flat_values), tf.int64)
    at = tf.cumsum(sizes, exclusive=True) + tf.maximum(sizes - 1, 0) // 2
    firsts = tf.cumsum(
        tf.reduce_sum(cleaned.with_flat_values(sizes), 1), exclusive=True
    )
    begins = parts.starts.flat_values + tf.gather(firsts, ragged.row_ids(parts.texts))
    place = tf.cast(tf.searchsorted(begins, at, side="right") - 1, tf.int64)
    count = tf.size(begins, tf.int64)
    joined = tf.strings.unsorted_segment_join(clusters.flat_values, place, count)
    first = tf.math.unsorted_segment_min(starts.flat_values, place, count)
    last = tf.maximum(tf.math.unsorted_segment_max(ends.flat_values, place, count), 0)
    return TextParts(
        parts.texts.with_flat_values(joined),
        parts.numbers,
        parts.starts.with_flat_values(tf.minimum(first, last)),
        parts.ends.with_flat_values(last),
    )
