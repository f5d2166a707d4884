"""Offsets: the place of each token in its text, for every kind of tokenizer."""

import keras_hub
import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.tokenizers.byte_level import ByteLevelTokenizer
from keras_bertfam.tokenizers.gemma import GemmaTokenizer
from keras_bertfam.tokenizers.gpt import WORD_END, WORDS, GPTTokenizer
from keras_bertfam.tokenizers.learning import SIGNS
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer, tokenize
from keras_bertfam.tokenizers.sentence_piece import NormalizedSentencePiece
from keras_bertfam.tokenizers.steps import clean_texts, split_by
from keras_bertfam.tokenizers.text_tokenizer import found_in_texts, split_at_tokens
from keras_bertfam.tokenizers.texts import CLUSTER, to_utf8, without_nul
from keras_bertfam.tokenizers.word_piece import BertTokenizer
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


def tokenize_with_offsets(
    tokenizer: Tokenizer, texts: TFTensor
) -> tuple[TFRagged, TFRagged, TFRagged]:
    """Tokenize texts, and tell for each token its bytes in the text.

    White space at the beginning of tokens, as in byte-level BPE and SentencePiece, is
    left out. If normalisation makes several tokens of one character, some may have no
    bytes. Works in a graph.

    Args:
        tokenizer: `BertTokenizer`, a byte-pair tokenizer such as `RobertaTokenizer`, or
            a SentencePiece tokenizer.
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        A tuple of ragged int32 tensors of shape `(batch, None)`: ids, and the bytes
        where tokens start and end.

    Raises:
        TypeError: for another kind of tokenizer.
        tf.errors.InvalidArgumentError: for a byte-pair vocabulary that lacks bytes
            of the texts.
    """
    kinds = [kind for kind in _KINDS if isinstance(tokenizer, kind)]
    if not kinds:
        raise TypeError(
            "`tokenizer` must be a `keras_bertfam.tokenizers.BertTokenizer`, a "
            "byte-pair or a SentencePiece tokenizer, whose tokens have known places. "
            f"Received: {type(tokenizer).__name__}."
        )
    as_graph_layer(tokenizer)
    parts = split_at_tokens(tokenizer, texts)
    if parts is None:
        return _between(_KINDS[kinds[0]], tokenizer, texts)
    inner = tf.where(parts.is_token, "", parts.texts.flat_values)
    ids, starts, ends = _between(_KINDS[kinds[0]], tokenizer, inner)
    found = [tokenizer.token_to_id(each.content) for each in found_in_texts(tokenizer)]
    numbers, first, last = (
        tf.cast(part.flat_values, tf.int32)
        for part in (parts.numbers, parts.starts, parts.ends)
    )
    place = tf.gather(first, ragged.row_ids(ids))  # where the token's part begins

    def with_tokens(rows, moved, own):
        rows = rows.with_flat_values(rows.flat_values + moved)
        own = ragged.keep(own, parts.is_token)
        rows = ragged.fill_rows(rows, parts.is_token, own)
        return ragged.merge_inner(parts.texts.with_flat_values(rows))

    own_ids = tf.gather(tf.constant(found, tf.int32), tf.maximum(numbers, 0))
    ids = with_tokens(ids, 0, own_ids)
    starts = with_tokens(starts, place, first)
    ends = with_tokens(ends, place, last)
    return ids, starts + _leading_space(texts, starts, ends), ends


def _between(places, tokenizer, texts):
    """Give ids, starts and ends in int32, without leading white space."""
    ids, starts, ends = (tf.cast(x, tf.int32) for x in places(tokenizer, texts))
    return ids, starts + _leading_space(texts, starts, ends), ends


def _leading_space(texts, starts, ends):
    """Count the bytes of white space at the beginning of tokens.

    Invisible characters before white space count as well; others belong to the word.
    """
    pieces = _pieces(texts, starts, ends)
    bare = tf.strings.regex_replace(pieces, r"^[\s\p{Z}\p{Cc}\p{Cf}]*[\s\p{Z}]", "")
    return starts.with_flat_values(tf.strings.length(pieces) - tf.strings.length(bare))


def _pieces(texts, starts, ends):
    """Cut the bytes of tokens out of texts."""
    # All bytes are split at once: to cut out each token would take time in proportion
    # to its text's length.
    split = tf.strings.bytes_split(texts)
    rows = ragged.row_ids(starts)
    first, limit = (
        tf.gather(bounds, rows) for bounds in (split.row_starts(), split.row_limits())
    )
    begin, end = (first + tf.cast(x.flat_values, tf.int64) for x in (starts, ends))
    places = tf.ragged.range(begin, tf.minimum(end, limit))
    return tf.strings.reduce_join(tf.gather(split.flat_values, places), axis=-1)


def _word_piece(tokenizer, texts):
    """Leave out control characters at tokens' ends, which the clean-up removes."""
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    if tokenizer.normalizer is not None:
        return ids, *_before_clean_up(texts, tokenizer.clean_texts, starts, ends)
    pieces = _pieces(texts, starts, ends)
    bare = tf.strings.regex_replace(pieces, r"[\p{Cc}\p{Cf}\x{FFFD}]+$", "")
    removed = tf.strings.length(pieces) - tf.strings.length(bare)
    removed = tf.cast(removed, ends.dtype)
    return ids, starts, ends.with_flat_values(ends.flat_values - removed)


def _sentence_piece(tokenizer, texts):
    return tokenizer._sentence_piece.tokenize_with_offsets(without_nul(texts))


def _normalized_sentence_piece(tokenizer, texts):
    texts = without_nul(texts)
    clean = tokenizer.clean_texts
    ids, *places = tokenizer._sentence_piece.tokenize_with_offsets(clean(texts))
    return ids, *_before_clean_up(texts, clean, *places)


def _gpt(tokenizer, texts):
    """Find the characters of its word for each token."""

    def clean(texts):
        return clean_texts(to_utf8(texts), lowercase=True)

    words, word_starts, _ = ragged.split_at(clean(texts), WORDS, SIGNS)
    tokens = tokenizer.merged(words)
    sizes = tf.strings.length(
        tf.strings.regex_replace(tokens.flat_values, WORD_END, "")
    )
    ends = tf.cumsum(sizes)
    # The word's first place in `ends`: the end of the token before the word.
    first = tf.gather(tf.pad(ends, [[1, 0]]), tokens.values.row_starts())
    moved = tf.cast(word_starts.flat_values, tf.int32) - first
    ends += tf.gather(moved, ragged.row_ids(tokens.values))
    ids = tokenizer.ids_of(tokens.flat_values)
    ids, starts, ends = (
        ragged.merge_inner(tokens.with_flat_values(x))
        for x in (ids, ends - sizes, ends)
    )
    return ids, *_before_clean_up(texts, clean, starts, ends)


def _gemma(tokenizer, texts):
    """Find the characters, or bytes, that each token is made of."""
    clean = tokenizer.clean_texts
    tokens = ragged.merge_inner(tokenizer.merged(tokenizer.words(clean(texts))))
    sizes = tokens.with_flat_values(tokenizer.sizes_of(tokens.flat_values))
    ids = tokens.with_flat_values(tokenizer.token_to_id_map.lookup(tokens.flat_values))
    ends = _cumulative(sizes)
    return ids, *_before_clean_up(texts, clean, ends - sizes, ends)


def _before_clean_up(texts, clean, starts, ends):
    """Convert places in cleaned texts to places in the texts.

    For example, the clean-up turns `"A\u0301b"` into `"ab"`. The first byte of `"ab"`
    comes from the first three bytes, the second from the fourth.

    Args:
        texts: string tensor of shape `(batch,)`.
        clean: function from strings to strings that works character by character.
        starts, ends: ragged tensors of shape `(batch, None)`, places in clean texts.

    Returns:
        A tuple of the two, as places in the texts.
    """
    # RE2 stops at zero bytes. Clean-ups treat them as other control characters.
    whole = tf.strings.regex_replace(texts, r"\x00", "\x01")
    parts, part_starts, part_ends = ragged.split_at(whole, CLUSTER, CLUSTER)
    flat = parts.flat_values
    cleaned = clean(flat)
    sizes = tf.strings.length(cleaned)
    lengths = tf.reduce_sum(parts.with_flat_values(sizes), 1)
    tf.debugging.assert_equal(
        lengths,
        tf.strings.length(clean(texts)),
        "The clean-up of a `tokenizer` must work character by character, so that "
        "places are known.",
    )
    # The part of each byte, and the byte's number within the part.
    source = tf.repeat(tf.range(tf.size(flat)), sizes)
    number = tf.range(tf.size(source)) - tf.gather(
        tf.cumsum(sizes, exclusive=True), source
    )
    number = tf.cast(number, tf.int64)
    same = tf.gather(cleaned == flat, source)
    begin = tf.gather(part_starts.flat_values, source)
    begins = begin + tf.where(same, number, 0)
    limits = tf.where(same, begins + 1, tf.gather(part_ends.flat_values, source))
    offsets = tf.cumsum(lengths, exclusive=True)
    rows = ragged.row_ids(starts)
    base, length, total = (
        tf.cast(tf.gather(x, rows), tf.int64)
        for x in (offsets, lengths, tf.strings.length(texts))
    )
    first, after = (tf.cast(x.flat_values, tf.int64) for x in (starts, ends))
    after = tf.maximum(after, first)
    # One more entry stands for the end of the text.
    begins = tf.pad(begins, [[0, 1]])
    limits = tf.pad(limits, [[1, 1]])
    begin = tf.where(first < length, tf.gather(begins, base + first), total)
    # Bytes that the clean-up removes belong to the letter before them.
    follows = tf.where(after < length, tf.gather(begins, base + after), total)
    end = tf.maximum(follows, tf.gather(limits, base + after))
    end = tf.where(after > first, end, begin)
    return starts.with_flat_values(begin), starts.with_flat_values(end)


def _byte_pair(tokenizer, texts):
    if not isinstance(tokenizer, ByteLevelTokenizer):  # KerasHub's
        texts = without_nul(texts)
        return _bytes_of_tokens(tokenizer, tokenize(tokenizer, texts), texts)
    clean = tokenizer.clean_texts
    pieces, first = split_by(clean(texts), tokenizer.pre_tokenizer)
    flat = without_nul(pieces.flat_values)
    ids, *bounds = _bytes_of_tokens(tokenizer, tokenizer.merge(flat), flat)
    first = tf.gather(tf.cast(first.flat_values, tf.int32), ragged.row_ids(ids))
    ids, starts, ends = (
        ragged.merge_inner(pieces.with_flat_values(rows))
        for rows in (ids, *(x.with_flat_values(x.flat_values + first) for x in bounds))
    )
    return ids, *_before_clean_up(texts, clean, starts, ends)


def _bytes_of_tokens(tokenizer, ids, texts):
    """Count the bytes of each token; a text's tokens hold all its bytes in order."""
    strings = [""] * len(tokenizer.vocabulary)
    for token, number in tokenizer.vocabulary.items():
        strings[number] = token
    sizes = tf.constant([len(token) for token in strings])
    # A token that isn't in the vocabulary has a negative id.
    known = tf.maximum(ids.flat_values, 0)
    lengths = ids.with_flat_values(tf.gather(sizes, known))
    ends = _cumulative(lengths)
    prefix = tf.zeros(tf.size(texts), tf.int32)
    if tokenizer.add_prefix_space:
        bare = tf.strings.regex_full_match(texts, r"[^ ](?s:.*)")
        prefix = tf.cast(bare, tf.int32)
    covered = tf.reduce_sum(lengths, 1) - prefix
    total = tf.strings.length(texts)
    complete = tf.reduce_all(ids.flat_values >= 0) & tf.reduce_all(covered == total)
    tf.debugging.assert_equal(
        complete,
        True,
        "The tokens of a byte-pair `tokenizer` must hold all bytes of the text. The "
        "vocabulary lacks bytes.",
    )
    added = tf.gather(prefix, ragged.row_ids(ends))
    ends = ends.with_flat_values(ends.flat_values - added)
    return ids, tf.maximum(ends - lengths, 0), ends


def _cumulative(lengths):
    """Compute the cumulative sums of each row."""
    # Example: [[2, 3], [4, 1]] gives [[2, 5], [4, 5]].
    totals = tf.cumsum(lengths.flat_values)
    before = tf.gather(tf.pad(totals, [[1, 0]]), lengths.row_starts())
    return lengths.with_flat_values(totals - tf.gather(before, ragged.row_ids(lengths)))


_KINDS = {
    BertTokenizer: _word_piece,
    NormalizedSentencePiece: _normalized_sentence_piece,
    keras_hub.tokenizers.SentencePieceTokenizer: _sentence_piece,
    GPTTokenizer: _gpt,
    GemmaTokenizer: _gemma,
    keras_hub.tokenizers.BytePairTokenizer: _byte_pair,
}
