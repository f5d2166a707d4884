"""Where each token is in the text, for every kind of tokenizer."""

import keras_hub
import tensorflow as tf
import tensorflow_text as tf_text

from keras_bertfam.tokenizers.graph import tokenize
from keras_bertfam.tokenizers.modernbert import ModernBertTokenizer
from keras_bertfam.tokenizers.sentence_piece import NormalizedSentencePiece
from keras_bertfam.tokenizers.texts import without_nul
from keras_bertfam.tokenizers.word_piece import BertTokenizer
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


def tokenize_with_offsets(
    tokenizer: Tokenizer, texts: TFTensor
) -> tuple[TFRagged, TFRagged, TFRagged]:
    """Tokenises texts, and says which bytes of them each token is made of.

    White space that tokens of byte-level BPE and SentencePiece begin with is no
    part of them here. A token that normalisation splits off a character may be
    made of no bytes. Works in a graph.

    Args:
        tokenizer: `BertTokenizer`, a `keras_hub` byte-pair tokenizer such as
            `RobertaTokenizer`, or a SentencePiece one.
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
    ids, starts, ends = _KINDS[kinds[0]](tokenizer, texts)
    starts, ends = (tf.cast(x, tf.int32) for x in (starts, ends))
    starts = starts + _leading_space(texts, starts, ends)
    return tf.cast(ids, tf.int32), starts, ends


def _leading_space(texts, starts, ends):
    """How many bytes of white space tokens begin with."""
    pieces = _pieces(texts, starts, ends)
    bare = tf.strings.regex_replace(pieces, r"^[\s\p{Z}]+", "")
    return starts.with_flat_values(tf.strings.length(pieces) - tf.strings.length(bare))


def _pieces(texts, starts, ends):
    """The bytes that tokens are made of."""
    # Cut out of the text itself, each token would take as long as the text is.
    split = tf.strings.bytes_split(texts)
    rows = starts.value_rowids()
    first, limit = (
        tf.gather(bounds, rows) for bounds in (split.row_starts(), split.row_limits())
    )
    begin, end = (first + tf.cast(x.flat_values, tf.int64) for x in (starts, ends))
    places = tf.ragged.range(begin, tf.minimum(end, limit))
    return tf.strings.reduce_join(tf.gather(split.flat_values, places), axis=-1)


def _word_piece(tokenizer, texts):
    """Control characters that the clean-up removes are no part of a token's end."""
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts)
    pieces = _pieces(texts, starts, ends)
    bare = tf.strings.regex_replace(pieces, r"[\p{Cc}\p{Cf}\x{FFFD}]+$", "")
    removed = tf.strings.length(pieces) - tf.strings.length(bare)
    removed = tf.cast(removed, ends.dtype)
    return ids, starts, ends.with_flat_values(ends.flat_values - removed)


def _sentence_piece(tokenizer, texts):
    return tokenizer._sentence_piece.tokenize_with_offsets(without_nul(texts))


def _normalized_sentence_piece(tokenizer, texts):
    """Through the clean-up, which goes by characters and pairs of quotes."""
    texts = without_nul(texts)
    parts, part_starts, part_ends = tf_text.regex_split_with_offsets(
        texts, r"``|''|(?s:.)", r"``|''|(?s:.)"
    )
    clean = tokenizer.clean_texts(parts.flat_values)
    sizes = parts.with_flat_values(tf.strings.length(clean))
    ids, starts, ends = tokenizer._sentence_piece.tokenize_with_offsets(
        tokenizer.clean_texts(texts)
    )
    # The part that each byte of the clean text comes from, and the end of the text.
    source = tf.repeat(tf.range(tf.size(sizes.flat_values)), sizes.flat_values)
    source = tf.RaggedTensor.from_row_lengths(source, tf.reduce_sum(sizes, 1))
    rows = starts.value_rowids()
    base = tf.cast(tf.gather(source.row_starts(), rows), tf.int64)
    limit = tf.cast(tf.gather(source.row_limits(), rows), tf.int64)
    source = tf.pad(source.flat_values, [[0, 1]])
    first = tf.cast(starts.flat_values, tf.int64) + base
    after = tf.maximum(tf.cast(ends.flat_values, tf.int64) + base, first)
    begins = tf.gather(tf.pad(part_starts.flat_values, [[0, 1]]), source)
    part_ends = tf.gather(tf.pad(part_ends.flat_values, [[0, 1]]), source)
    sizes = tf.strings.length(texts)
    total = tf.cast(tf.gather(sizes, rows), begins.dtype)
    begin = tf.where(first < limit, tf.gather(begins, first), total)
    # Accents that the clean-up removes belong to the letter before.
    follows = tf.where(after < limit, tf.gather(begins, after), total)
    end = tf.maximum(follows, tf.gather(part_ends, tf.maximum(after - 1, 0)))
    end = tf.where(after > first, end, begin)
    return ids, starts.with_flat_values(begin), starts.with_flat_values(end)


def _byte_pair(tokenizer, texts):
    """Tokens are made of all bytes of the text in its normal form, in their order."""
    texts, places = without_nul(texts), None
    if isinstance(tokenizer, ModernBertTokenizer):
        texts, places = tf_text.normalize_utf8_with_offsets_map(texts, "NFC")
    ids = tokenize(tokenizer, texts)
    strings = [""] * tokenizer.vocabulary_size()
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
        "The tokens of a byte-pair `tokenizer` must be made of the bytes of the text. "
        "The vocabulary lacks bytes.",
    )
    added = tf.gather(prefix, ends.value_rowids())
    ends = ends.with_flat_values(ends.flat_values - added)
    starts = tf.maximum(ends - lengths, 0)
    if places is not None:
        starts, ends = (tf.cast(part, tf.int64) for part in (starts, ends))
        starts, ends = (
            tf_text.find_source_offsets(places, part) for part in (starts, ends)
        )
    return ids, starts, ends


def _cumulative(lengths):
    """The running sum of each row."""
    totals = tf.cumsum(lengths.flat_values)
    before = tf.gather(tf.pad(totals, [[1, 0]]), lengths.row_starts())
    return lengths.with_flat_values(totals - tf.gather(before, lengths.value_rowids()))


_KINDS = {
    BertTokenizer: _word_piece,
    NormalizedSentencePiece: _normalized_sentence_piece,
    keras_hub.tokenizers.SentencePieceTokenizer: _sentence_piece,
    keras_hub.tokenizers.BytePairTokenizer: _byte_pair,
}
