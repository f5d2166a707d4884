"""What a dataset needs of a tokenizer: ops of the graph, and where words start."""

import functools
import re
import types
from typing import Any

import keras_hub
import numpy as np
import tensorflow as tf

from keras_bertfam.autograph import as_graph
from keras_bertfam.tokenizers.byte_level import tokenize_byte_level
from keras_bertfam.tokenizers.byte_pair import is_byte_pair
from keras_bertfam.tokenizers.texts import without_nul
from keras_bertfam.types import TFRagged, TFTensor, Tokenizer


def as_graph_layer(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, made to run the graph ops of a dataset in eager calls too."""
    tokenizer._allow_python_workflow = False
    tokenizer.built = True  # else Keras traces a task anew for each batch given
    if is_byte_pair(tokenizer) and "_tokenize_tf" not in vars(tokenizer):
        tokenizer._tokenize_tf = _traced_once(tokenizer)
    return tokenizer


def _traced_once(tokenizer):
    """What a tokenizer of byte-level BPE does, in one graph for all eager calls.

    KerasHub's own takes a second: it traces the loop of the merges in each call. It
    splits words in two ways of its own, of which neither is RoBERTa's.
    """
    in_graph = tokenizer._tokenize_tf
    theirs = keras_hub.tokenizers.BytePairTokenizer._tokenize_tf
    if type(tokenizer)._tokenize_tf is theirs:
        in_graph = functools.partial(tokenize_byte_level, tokenizer)
    traced = {"cache": None}

    def in_eager_mode(texts):
        if traced["cache"] is not tokenizer.cache:  # it has another vocabulary
            traced["cache"] = tokenizer.cache
            traced["call"] = tf.function(
                lambda texts: in_graph(without_nul(texts)),
                input_signature=[tf.TensorSpec([None], tf.string)],
                autograph=False,
            )
        out = traced["call"](tf.reshape(texts, [-1]))
        return out if texts.shape.rank else out[0]

    def tokenize_texts(inputs):
        if tf.executing_eagerly():
            with tf.device("CPU:0"):
                inputs = tf.convert_to_tensor(inputs)
            if inputs.dtype == tf.string and inputs.shape.rank < 2:
                # KerasHub's method makes a list of a ragged tensor.
                layer = types.SimpleNamespace(tokenize=in_eager_mode)
                return keras_hub.tokenizers.Tokenizer.call(layer, inputs)
        return in_graph(inputs)

    return tokenize_texts


def tokenize(tokenizer: Tokenizer, texts: TFTensor) -> TFRagged:
    """Ids of texts, the same in a graph and out of it.

    A zero byte, at which KerasHub's byte-level BPE takes a text to end, is a space.

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
    """Ids that begin and end a tokenizer's rows; GPT-like ones have one of them."""
    ids = (tokenizer.start_token_id, tokenizer.end_token_id)
    return [token for token in ids if token is not None]


def text_start_id(tokenizer: Tokenizer) -> int | None:
    """The id that texts begin with: not one that ends them as well, as GPT-2's does."""
    start: int | None = tokenizer.start_token_id
    return None if start == tokenizer.end_token_id else start


def decoder_start_id(tokenizer: Tokenizer) -> int:
    """The id that a decoder's inputs begin with: the end token, as BART's do.

    Where texts have no start token, as T5's, it is that of padding.
    """
    unmarked = text_start_id(tokenizer) is None
    start: int = tokenizer.pad_token_id if unmarked else tokenizer.end_token_id
    return start


def stand_in_id(tokenizer: Tokenizer) -> int:
    """Give the id of a word that has no tokens, as control characters have none.

    It is the mask token's; of tokenizers without one, as GPT-2's and T5's, that of
    unknown tokens, or of the end or padding.
    """
    roles = (f"{name}_token_id" for name in ("mask", "unk", "end", "pad"))
    ids = (getattr(tokenizer, role, None) for role in roles)
    return next(token for token in ids if token is not None)


def has_vocabulary(tokenizer: Tokenizer) -> bool:
    """Whether a vocabulary is there; a preset's comes after the constructor."""
    try:
        return tokenizer.vocabulary_size() > 0
    except ValueError:
        return False


def tokenize_with_masks(tokenizer: Tokenizer, texts: TFTensor) -> TFRagged:
    """Ids of texts, mask tokens in them included. Works in a graph.

    The space before a mask token of byte-level BPE is part of it.

    Args:
        tokenizer: a tokenizer layer, with or without a mask token.
        texts: string tensor of shape `(batch,)`.

    Returns:
        Ragged int32 tensor of shape `(batch, None)`.
    """
    mask = getattr(tokenizer, "mask_token", None)
    if mask is None:
        return tokenize(tokenizer, texts)
    if mask.startswith("<") or is_byte_pair(tokenizer):
        texts = tf.strings.regex_replace(texts, " *" + re.escape(mask), mask)
    parts = tf.strings.split(texts, mask)
    ids = tokenize(tokenizer, parts.flat_values)
    masks = tf.fill([ids.nrows(), 1], tokenizer.mask_token_id)
    # A mask before each part, less the one before the first of each text.
    return parts.with_values(tf.concat([masks, ids], 1)).merge_dims(1, 2)[:, 1:]


DOCUMENT_END = "<eod>"


def document_end_id(tokenizer: Tokenizer) -> int:
    """The id that goes after a document: XLNet's `<eod>`, or else the end token's."""
    if DOCUMENT_END in tokenizer.get_vocabulary():
        return tokenizer.token_to_id(DOCUMENT_END)
    return tokenizer.end_token_id


def word_start_table(tokenizer: Tokenizer) -> list[bool]:
    """Returns a bool list over the vocabulary: which tokens start a word.

    The vocabulary's own sign tells: `##` marks the continuations of WordPiece;
    `Ġ` (byte-level BPE) and `▁` (SentencePiece) mark the starts. Special tokens
    start a word.
    """
    tokens = [""] * tokenizer.vocabulary_size()
    for token in tokenizer.get_vocabulary():
        tokens[tokenizer.token_to_id(token)] = token
    special = {*tokenizer.special_tokens, DOCUMENT_END}
    if any(t.startswith("##") for t in tokens):
        return [not t.startswith("##") for t in tokens]
    for sign in ("Ġ", "▁"):
        if any(t.startswith(sign) for t in tokens):
            return [t.startswith(sign) or t in special for t in tokens]
    raise ValueError(
        "Whole words need a vocabulary that marks them by `##`, `Ġ` or `▁`. "
        f"Received: {type(tokenizer).__name__} without any."
    )
