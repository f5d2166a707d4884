"""Added tokens, which are found in a text before the tokenizer's model splits it."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.tokenizers.texts import CLUSTER, WHITE_SPACE
from keras_bertfam.types import TFRagged, TFTensor

# Unicode's word characters. A token with `single_word` can't have one beside it.
_WORD = r"[\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}]"


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in texts as it is written, whatever the model knows.

    Args:
        content: str. The text of the token.
        lstrip: bool. Whether white space before it belongs to it.
        rstrip: bool. Whether white space after it belongs to it.
        single_word: bool. If true, it isn't found inside a word.
        normalized: bool. Whether to look for it after the tokenizer's clean-up, for
            example in lower-cased text.
        special: bool. Whether it is a special token: it isn't masked, nor drawn at
            random.

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
    """Make `AddedToken`s from strings, or from dicts of their arguments.

    Raises:
        ValueError: for a single string, other values, or a token that comes twice.
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
                "`added_tokens` must have strings, or dicts of `content` and "
                f"{', '.join(sorted(_FIELDS - {'content'}))}. Received: {token!r}."
            )
        made.append(token)
    contents = [token.content for token in made]
    twice = {content for content in contents if contents.count(content) > 1}
    if twice:
        raise ValueError(
            f"`added_tokens` must not repeat a token. Received: {min(twice)!r} twice."
        )
    return tuple(made)


_FIELDS = {field.name for field in dataclasses.fields(AddedToken)}


class TextParts(NamedTuple):
    """Texts cut into parts: tokens, and the text between them. Ragged `(batch, None)`.

    Args:
        texts: string, each part.
        numbers: int32, the number of the token; -1 for text between tokens.
        starts: int64, the byte of the text where the part begins.
        ends: int64, the byte after the part.
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
    nul: str = " ",
) -> TextParts:
    """Split texts at tokens. Works in a graph.

    For example, `"a <b> c"` and a token `<b>` with `lstrip` give

        texts     "a"  "<b>"  " c"
        numbers   -1   0      -1
        starts    0    1      5

    Tokens that aren't `normalized` are split off first, then the others. If several
    tokens fit at a place, the longest is taken.

    Args:
        texts: string tensor of shape `(batch,)`, in UTF-8.
        tokens: list of `AddedToken`.
        clean: function from strings to strings, the tokenizer's clean-up; or `None`.
        nul: str of one byte, what a zero byte is replaced by.

    Returns:
        `TextParts`.
    """
    # RE2 takes a zero byte for the text's end.
    texts = tf.strings.regex_replace(texts, r"\x00", nul)
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
    # In the second round each part is a row. Tokens of the first round stay whole.
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
    """Replace the numbers of tokens by their numbers in a longer list."""
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
    """Give the value before or after each value in its row, or a default."""
    # Example: "a", "b", "c" in the rows 0, 0, 1 and the default "-". Before them are
    # "-", "a", "-", and after them "b", "-", "-".
    first = tf.fill([tf.minimum(tf.size(rows), 1)], tf.cast(default, values.dtype))
    near = rows[1:] == rows[:-1]
    if before:
        return tf.concat([first, tf.where(near, values[:-1], first)], 0)
    return tf.concat([tf.where(near, values[1:], first), first], 0)


def _is_any(numbers, of):
    """Tell for which numbers a list of bools is true; for -1 it is false."""
    return tf.gather([False, *of], numbers + 1)


def _whole_words(rows, flat, numbers, starts, ends, single_word):
    """Turn tokens inside words back into text, and join it with the text beside it."""
    inside = tf.zeros(tf.shape(numbers), bool)
    for before, place in ((True, -1), (False, 0)):
        # An empty text has no last character; a space stands for it.
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
    """Move white space of the text after or before tokens into the tokens."""
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
    """Split cleaned texts, and put the original text together for each part."""
    clusters, starts, ends = ragged.split_at(texts, CLUSTER, CLUSTER)
    cleaned = clusters.with_flat_values(clean(clusters.flat_values))
    parts = _split(tf.strings.reduce_join(cleaned, 1), tokens)
    # Number the bytes of all clean texts. A cluster belongs to the part that holds its
    # middle byte, since a clean-up may put spaces around it.
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
