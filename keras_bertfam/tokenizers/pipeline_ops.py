"""What pipelines need from tokenizers: graph ops, special ids, and starts of words."""

import functools
import string
import unicodedata
from typing import Any

import keras_hub
import numpy as np
import tensorflow as tf

from keras_bertfam.autograph import as_graph
from keras_bertfam.tokenizers.added_tokens import AddedToken, split_at
from keras_bertfam.tokenizers.byte_level import byte_level_rows
from keras_bertfam.tokenizers.merging import once_traced
from keras_bertfam.tokenizers.text_tokenizer import (
    TextTokenizer,
    as_plain,
    rows_between,
    tokenize_by,
)
from keras_bertfam.tokenizers.texts import without_nul
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


def as_graph_layer(tokenizer: Tokenizer) -> Tokenizer:
    """Make a tokenizer use its graph ops in eager calls as well.

    KerasHub's byte-pair tokenizers split words in two different ways, and RoBERTa's is
    neither. The returned layer splits words as published.

    Raises:
        ValueError: for anything but a tokenizer.
    """
    if not hasattr(tokenizer, "vocabulary_size"):
        raise ValueError(
            "`tokenizer` must be a tokenizer layer; `from_preset` takes the name or "
            f"the folder of a preset. Received: {tokenizer!r}."
        )
    tokenizer._allow_python_workflow = False
    tokenizer.built = True  # else Keras traces a task anew for each batch
    own = isinstance(tokenizer, TextTokenizer) or "_tokenize_tf" in vars(tokenizer)
    if is_byte_pair(tokenizer) and not own:
        rows = once_traced(tokenizer, functools.partial(byte_level_rows, tokenizer))
        tokenizer._tokenize_tf = lambda texts: tokenize_by(tokenizer, texts, rows)
    return tokenizer


def tokenize(tokenizer: Tokenizer, texts: TFTensor) -> TFRagged:
    """Tokenize texts into ids, equally in a graph and outside of one.

    A zero byte becomes a space, since KerasHub's byte-level BPE takes it for the text's
    end.

    Args:
        tokenizer: a tokenizer layer.
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        Ragged int32 tensor of shape `(batch, None)`.

    Raises:
        ValueError: for a tokenizer that pads its rows.
    """
    length = getattr(tokenizer, "sequence_length", None)
    if length is not None:
        raise ValueError(
            "`tokenizer` must have `sequence_length=None`: rows are cut and padded "
            f"later, and its padding would count as text. Received: {length}."
        )
    if isinstance(tokenizer, keras_hub.tokenizers.Tokenizer):
        as_graph_layer(tokenizer)
    if is_byte_pair(tokenizer):
        texts = without_nul(texts)
    # A layer's call goes through Keras, where AutoGraph doesn't follow. So the method
    # of a user's tokenizer is called directly.
    method: Any = getattr(tokenizer, "tokenize", tokenizer)
    rewritten = as_graph(method)
    ids = (tokenizer if rewritten == method else rewritten)(texts)
    if isinstance(ids, list | np.ndarray):  # KerasHub's, outside of graphs
        ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
    ragged = isinstance(ids, tf.RaggedTensor)
    return tf.cast(ids if ragged else tf.RaggedTensor.from_tensor(ids), tf.int32)


def special_token_ids(tokenizer: Tokenizer) -> list[int]:
    """List the ids of special tokens, special added tokens included."""
    added = (t for t in getattr(tokenizer, "added_tokens", ()) if t.special)
    own = (tokenizer.token_to_id(token.content) for token in added)
    ids = (tokenizer.start_token_id, tokenizer.end_token_id, *own)
    return [token for token in dict.fromkeys(ids) if token is not None]


def text_start_id(tokenizer: Tokenizer) -> int | None:
    """Give the id that texts begin with; `None` if it ends texts, as in GPT-2."""
    start: int | None = tokenizer.start_token_id
    return None if start == tokenizer.end_token_id else start


def decoder_start_id(tokenizer: Tokenizer) -> int:
    """Give the first id of a decoder's inputs: the end token's, as in BART.

    For tokenizers without a start token, as in T5, it is the padding id.
    """
    unmarked = text_start_id(tokenizer) is None
    start: int = tokenizer.pad_token_id if unmarked else tokenizer.end_token_id
    return start


def stand_in_id(tokenizer: Tokenizer) -> int:
    """Give the id for a word that has no tokens, such as a control character.

    It is the mask token's id. For tokenizers without a mask token, as in GPT-2 and T5,
    it is the id of the unknown token, else of the end token, else of padding.
    """
    roles = (f"{name}_token_id" for name in ("mask", "unk", "end", "pad"))
    ids = (getattr(tokenizer, role, None) for role in roles)
    return next(token for token in ids if token is not None)


def tokenize_with_masks(tokenizer: Tokenizer, texts: TFTensor) -> TFRagged:
    """Tokenize texts that contain mask tokens. Works in a graph.

    In byte-level BPE a mask token includes the space before it.

    Args:
        tokenizer: a tokenizer layer, with or without a mask token.
        texts: string tensor of shape `(batch,)`.

    Returns:
        Ragged int32 tensor of shape `(batch, None)`.
    """
    mask = getattr(tokenizer, "mask_token", None)
    if mask is None or is_byte_pair(tokenizer):  # byte-level BPE finds masks itself
        return tokenize(tokenizer, texts)
    found = [AddedToken(mask, lstrip=mask.startswith("<"))]
    parts = split_at(texts, found, nul=getattr(tokenizer, "nul", " "))
    return rows_between(
        tokenizer, parts, [mask], lambda texts: tokenize(tokenizer, texts)
    )


DOCUMENT_END = "<eod>"


def document_end_id(tokenizer: Tokenizer) -> int:
    """Give the id after a document: that of XLNet's `<eod>`, or of the end token."""
    if DOCUMENT_END in tokenizer.get_vocabulary():
        return tokenizer.token_to_id(DOCUMENT_END)
    return tokenizer.end_token_id


def word_start_table(tokenizer: Tokenizer) -> list[bool]:
    """Tell which tokens of the vocabulary start a word, as a list of bools.

    In WordPiece `##` marks tokens that continue a word. In byte-level BPE `Ġ`, and in
    SentencePiece and byte pairs that fall back to bytes `▁`, mark tokens that start
    one. There a punctuation mark is a word, too, as in the code of ALBERT, XLNet and
    DeBERTa; in RoBERTa's, of `Ġ`, it belongs to the word before it. In byte-level BPE a
    token of white space begins the word behind it. Special tokens start a word.
    Tokenizers of other kinds are told by the sign that their vocabulary has.

    Raises:
        ValueError: for a vocabulary without the sign of its kind.
    """
    tokens = [""] * tokenizer.vocabulary_size()
    for token in tokenizer.get_vocabulary():
        tokens[tokenizer.token_to_id(token)] = token
    added = (token.content for token in getattr(tokenizer, "added_tokens", ()))
    special = {*tokenizer.special_tokens, DOCUMENT_END, *added}
    signs = _word_signs(tokenizer)
    sign = next((x for x in signs if any(t.startswith(x) for t in tokens)), None)
    if sign is None:
        marks = " or ".join(f"`{each}`" for each in signs)
        raise ValueError(
            f"`tokenizer` must have a vocabulary that marks words by {marks}, for "
            f"whole words. Received: {type(tokenizer).__name__} without such marks."
        )
    if sign == "##":
        return [not t.startswith(sign) for t in tokens]
    # The word behind white space that is a token of its own has no `Ġ`.
    other = _is_mark if sign == "▁" else _is_white_space
    return [t.startswith(sign) or t in special or other(t) for t in tokens]


def _is_white_space(token):
    """Tell whether a token of byte-level BPE is spaces, tabs or line ends."""
    return bool(token) and not token.strip(" ĠĉĊč")


def _is_mark(token):
    """Tell whether a token is one character of punctuation, or of ASCII's symbols."""
    return len(token) == 1 and (
        token in string.punctuation or unicodedata.category(token)[0] == "P"
    )


def _word_signs(tokenizer):
    """List what may mark words in a vocabulary: tokens of one kind have all signs."""
    own = getattr(tokenizer, "unmarked", tokenizer)
    if getattr(own, "falls_back_to_bytes", False):
        return ("▁",)
    if is_byte_pair(own):
        return ("Ġ",)
    if isinstance(own, keras_hub.tokenizers.WordPieceTokenizer):
        return ("##",)
    if isinstance(own, keras_hub.tokenizers.SentencePieceTokenizer):
        return ("▁",)
    return ("##", "Ġ", "▁")


def is_byte_pair(tokenizer: Tokenizer) -> bool:
    """Tell whether a tokenizer, or the tokenizer it wraps, is byte-level BPE."""
    tokenizer = getattr(tokenizer, "unmarked", tokenizer)
    return isinstance(tokenizer, keras_hub.tokenizers.BytePairTokenizer)


def word_prefix(tokenizer: Tokenizer) -> str:
    """Give the prefix by which a single word is tokenised as within a text."""
    return " " if is_byte_pair(tokenizer) else ""


def token_strings(tokenizer: Tokenizer) -> list[str]:
    """List the string of each token id, in readable form also for byte-level BPE.

    Args:
        tokenizer: a tokenizer layer.

    Returns:
        List of `vocabulary_size` str.
    """
    if is_byte_pair(tokenizer):
        ids = np.arange(tokenizer.vocabulary_size())[:, None]
        tokens = tokenizer.detokenize(ids)
        # KerasHub's give strings, and those that have more tokens than its tensors.
        return as_plain(tokens) if isinstance(tokens, tf.Tensor) else [*tokens]
    return list(tokenizer.get_vocabulary())
