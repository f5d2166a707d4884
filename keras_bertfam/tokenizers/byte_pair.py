"""What only byte-level BPE has: tokens that are made of bytes.

A token's string in the vocabulary has a sign for each byte, a space included (`Ġ`), and
a word has other tokens at the start of a text than after a space.
"""

import keras_hub
import numpy as np

from keras_bertfam.types import Tokenizer


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
        return [str(token) for token in tokenizer.detokenize(ids)]
    return list(tokenizer.get_vocabulary())
