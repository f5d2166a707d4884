"""What the heads of a model attend to in sentences of words."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bertfam.analysis.word_states import WordRows, reads_rows
from keras_bertfam.layers.data.pipelines import checked_batch_size
from keras_bertfam.types import Model, Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class HeadRow:
    """A sentence, as a model has read it.

    Attributes:
        token_ids: int array `(tokens,)`, without padding.
        words: int array `(tokens,)`, the number of each token's word, -1 for special
            tokens.
        attention: float32 array `(num_layers, num_heads, tokens, tokens)`, zeros for
            pruned heads.
    """

    token_ids: np.ndarray
    words: np.ndarray
    attention: np.ndarray


class HeadRows:
    """Sentences as rows of tokens, and what heads attend to in them.

    Args:
        model: a backbone, or a task with one.
        sentences: list of str, split at white space and punctuation, or of lists of
            words.
        tokenizer: for a model without a preprocessor, or `None`.
        batch_size: int. Sentences at a time.
        whole: bool. Whether each sentence must fit into a row; else long ones are read
            in parts.

    Attributes:
        tokenizer: the one that is used.
        words: list of lists of words.
        left: bool array `(num_layers, num_heads)`: which heads aren't pruned.

    Raises:
        ValueError: for a model that reads something else than rows of tokens, or
            whose heads are all pruned; without sentences; for one without a word, or
            that doesn't fit a row.
    """

    def __init__(
        self,
        model: Model,
        sentences: Sequence[str | Sequence[str]],
        tokenizer: Tokenizer | None,
        batch_size: int,
        whole: bool,
    ) -> None:
        self._backbone: Any = getattr(model, "backbone", model)
        if not has_heads(self._backbone):
            raise ValueError(
                "`model` must be an encoder or decoder that has a head left. Received: "
                f"{type(self._backbone).__name__}."
            )
        self.left = heads_left(self._backbone)
        rows = WordRows(model, sentences, tokenizer)
        self.tokenizer: Any = rows.tokenizer
        self.words = [list(words) for words in rows.words]
        counts = np.bincount(np.array(rows.owners, int), minlength=len(self.words))
        wrong = next(
            (k for k, parts in enumerate(counts) if not parts or (whole and parts > 1)),
            None,
        )
        if wrong is not None or not self.words:
            kind = "none" if wrong is None else f"{len(self.words[wrong])} words"
            raise ValueError(
                "`sentences` must have a word at least and fit into rows of "
                f"{rows.sequence_length} tokens. Received: {kind}"
                f"{'' if wrong is None else f' in sentence {wrong}'}."
            )
        size = checked_batch_size(batch_size)
        self._batches = [_numbered(batch, rows) for batch in rows.batches(size)]

    def token_counts(self) -> np.ndarray:
        """Count each token id in the sentences, special tokens left out."""
        ids = [
            batch["token_ids"][row, : len(words)][words >= 0]
            for batch, numbers in self._batches
            for row, words in enumerate(numbers)
        ]
        size = self.tokenizer.vocabulary_size()
        return np.bincount(np.concatenate(ids), minlength=size)

    def __iter__(self) -> Iterator[HeadRow]:
        for batch, numbers in self._batches:
            outputs: dict[str, Any] = self._backbone(
                batch, return_attention=True, training=False
            )
            layers = [ops.convert_to_numpy(x) for x in outputs["attentions"]]
            for row, words in enumerate(numbers):
                count = len(words)
                heads = [x[row, :, :count, :count] for x in layers]
                attention = np.zeros((*self.left.shape, count, count), "float32")
                attention[self.left] = np.concatenate(heads)
                yield HeadRow(batch["token_ids"][row, :count], words, attention)


def has_heads(model: Model) -> bool:
    """Tell whether a model's backbone reads rows of tokens and has a head left."""
    backbone = getattr(model, "backbone", model)
    return reads_rows(backbone) and bool(heads_left(backbone).any())


def heads_left(backbone: Any) -> np.ndarray:
    """Tell which heads aren't pruned, bool `(num_layers, num_heads)`."""
    left = np.ones((backbone.num_layers, backbone.num_heads), bool)
    for layer, heads in enumerate(getattr(backbone, "pruned_heads", None) or ()):
        left[layer, list(heads)] = False
    return left


def _numbered(batch, rows):
    """Give a batch for a backbone, and for each token of a row its word's number."""
    starts, mask = batch.pop("word_positions"), batch.pop("word_mask")
    numbers = []
    for row, count in enumerate(batch["padding_mask"].sum(axis=1)):
        places = np.arange(count)
        word = np.searchsorted(starts[row][mask[row]], places, "right") - 1
        last = rows.first + count - rows.special
        numbers.append(np.where((places >= rows.first) & (places < last), word, -1))
    return batch, numbers
