"""What pipelines need of any tokenizer: ops of the graph, and where words start."""

import functools
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
    """Make a tokenizer run the graph ops of a dataset in eager calls too.

    KerasHub's tokenizers of byte pairs split words in two ways of their own, neither of
    which is RoBERTa's. The layer splits them as published.
    """
    tokenizer._allow_python_workflow = False
    tokenizer.built = True  # else Keras traces a task anew for each batch given
    own = isinstance(tokenizer, TextTokenizer) or "_tokenize_tf" in vars(tokenizer)
    if is_byte_pair(tokenizer) and not own:
        rows = once_traced(tokenizer, functools.partial(byte_level_rows, tokenizer))
        tokenizer._tokenize_tf = lambda texts: tokenize_by(tokenizer, texts, rows)
    return tokenizer


def tokenize(tokenizer: Tokenizer, texts: TFTensor) -> TFRagged:
    """Tokenize texts into ids, the same in a graph and out of it.

    A zero byte becomes a space, since KerasHub's byte-level BPE takes it for a text's
    end.

    Args:
        tokenizer: a tokenizer layer.
        texts: string tensor of shape `(batch,)`, in UTF-8.

    Returns:
        Ragged int32 tensor of shape `(batch, None)`.
    """
    if isinstance(tokenizer, keras_hub.tokenizers.Tokenizer):
        as_graph_layer(tokenizer)
    if is_byte_pair(tokenizer):
        texts = without_nul(texts)
    # Keras calls a layer's methods where AutoGraph doesn't follow: a user's is called
    # by its name.
    method: Any = getattr(tokenizer, "tokenize", tokenizer)
    rewritten = as_graph(method)
    ids = (tokenizer if rewritten == method else rewritten)(texts)
    if isinstance(ids, list | np.ndarray):  # as KerasHub's give them out of graphs
        ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
    ragged = isinstance(ids, tf.RaggedTensor)
    return tf.cast(ids if ragged else tf.RaggedTensor.from_tensor(ids), tf.int32)


def special_token_ids(tokenizer: Tokenizer) -> list[int]:
    """List the ids that mark something: a row's ends, and special added tokens."""
    added = (t for t in getattr(tokenizer, "added_tokens", ()) if t.special)
    own = (tokenizer.token_to_id(token.content) for token in added)
    ids = (tokenizer.start_token_id, tokenizer.end_token_id, *own)
    return [token for token in dict.fromkeys(ids) if token is not None]


def text_start_id(tokenizer: Tokenizer) -> int | None:
    """Give the id that texts begin with; `None` if it ends them, as GPT-2's."""
    start: int | None = tokenizer.start_token_id
    return None if start == tokenizer.end_token_id else start


def decoder_start_id(tokenizer: Tokenizer) -> int:
    """Give the id that a decoder's inputs begin with: the end token, as BART's do.

    Tokenizers without a start token, as T5's, have that of padding.
    """
    unmarked = text_start_id(tokenizer) is None
    start: int = tokenizer.pad_token_id if unmarked else tokenizer.end_token_id
    return start


def stand_in_id(tokenizer: Tokenizer) -> int:
    """Give the id of a word that has no tokens, as control characters have none.

    It is the mask token's id. Tokenizers without one, as GPT-2's and T5's, have that of
    unknown tokens, or of the end, or of padding.
    """
    roles = (f"{name}_token_id" for name in ("mask", "unk", "end", "pad"))
    ids = (getattr(tokenizer, role, None) for role in roles)
    return next(token for token in ids if token is not None)


def tokenize_with_masks(tokenizer: Tokenizer, texts: TFTensor) -> TFRagged:
    """Tokenize texts with mask tokens in them into ids. Works in a graph.

    The space before a mask token of byte-level BPE is part of it.

    Args:
        tokenizer: a tokenizer layer, with or without a mask token.
        texts: string tensor of shape `(batch,)`.

    Returns:
        Ragged int32 tensor of shape `(batch, None)`.
    """
    mask = getattr(tokenizer, "mask_token", None)
    if mask is None or is_byte_pair(tokenizer):  # which finds its masks itself
        return tokenize(tokenizer, texts)
    parts = split_at(texts, [AddedToken(mask, lstrip=mask.startswith("<"))])
    return rows_between(
        tokenizer, parts, [mask], lambda texts: tokenize(tokenizer, texts)
    )


DOCUMENT_END = "<eod>"


def document_end_id(tokenizer: Tokenizer) -> int:
    """Give the id that goes after a document: XLNet's `<eod>`, or the end token's."""
    if DOCUMENT_END in tokenizer.get_vocabulary():
        return tokenizer.token_to_id(DOCUMENT_END)
    return tokenizer.end_token_id


def word_start_table(tokenizer: Tokenizer) -> list[bool]:
    """Tell which tokens of the vocabulary start a word, as a bool list.

    `##` marks the continuations of WordPiece. `Ġ` (byte-level BPE) and `▁`
    (SentencePiece, and byte pairs that fall back to bytes) mark the starts. Special
    tokens start a word. Of a tokenizer of no such kind, the vocabulary's own sign
    tells.

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
            f"Whole words need a vocabulary that marks them by {marks}. "
            f"Received: {type(tokenizer).__name__} without any."
        )
    if sign == "##":
        return [not t.startswith(sign) for t in tokens]
    return [t.startswith(sign) or t in special for t in tokens]


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
    """Tell whether a tokenizer, or the one in it, is of byte-level BPE."""
    tokenizer = getattr(tokenizer, "unmarked", tokenizer)
    return isinstance(tokenizer, keras_hub.tokenizers.BytePairTokenizer)


def word_prefix(tokenizer: Tokenizer) -> str:
    """Give what goes before a word that is tokenised alone as if it were in a text."""
    return " " if is_byte_pair(tokenizer) else ""


def token_strings(tokenizer: Tokenizer) -> list[str]:
    """List the string of each token id, readable also for byte-level tokenizers.

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
