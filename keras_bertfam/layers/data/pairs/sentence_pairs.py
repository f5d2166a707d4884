"""Pairs of segments with a sentence label: NSP and SOP."""

from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.limited_parts import follow_pointers
from keras_bertfam.layers.data.pairs.segments import (
    SegmentBuilder,
    Sentences,
    coin,
    truncate,
    truncated_lengths,
    uniform_below,
    window_seeds,
)
from keras_bertfam.layers.data.prepared.token_rows import sentences_in
from keras_bertfam.types import TFDataset, TFTensor, Tokenizer

# Objectives, and how many classes of pairs each has.
SENTENCE_CLASSES = {"nsp": 2, "sop": 2, "structural": 3}


@checked
class PairSegments(SegmentBuilder):
    """Makes labelled pairs of segments for a sentence objective, for `Dataset.apply`.

    A row is `[start] A [end] B [end]`, padded. Its label is 0 if the text is in its
    original order, as in BERT and ALBERT:

    - `"nsp"`: B follows A (0), or comes from another document (1);
    - `"sop"`: B follows A (0), or A and B, consecutive, are swapped (1);
    - `"structural"`: B follows A (0), comes before it (1), or is from another document
      (2), each in a third of the chunks (StructBERT).

    **Chunks.** With `pairing="segments"` (RoBERTa's SEGMENT-PAIR) a chunk takes
    sentences of a document until they reach a target length. That is a full row or, for
    a share `short_sequence_rate` of the documents, uniform in `[2, full]`. A is a
    uniform number of these sentences, B the rest. With `pairing="sentences"`
    (SENTENCE-PAIR) A is one sentence and B the next.

    **Random B.** Half of the chunks get a random B for NSP, and a third for the
    structural objective. So do all chunks of a single sentence, which makes positives
    somewhat rarer than half, or than a third. The sentences that a random B replaces
    begin the next chunk.

    A random B begins at a uniform sentence of a uniform document other than A's. The
    choice is among the documents of this window and the last, since the corpus isn't
    held in memory; if these are a single document, one more is added. So shuffle text
    first if its order matters. Pieces of a document that `read_documents` has cut count
    as one document. The released code may take B from A's own document after ten failed
    draws; here that never happens.

    A pair that is too long loses tokens of the longer segment, at either end.

    Args:
        tokenizer: a tokenizer layer. Called on a batch of strings in a graph,
            it gives a ragged tensor of ids.
        sequence_length: int. The length of a row, special tokens included.
        start_token_id: int. The id that begins each row.
        end_token_id: int. The id that ends each segment.
        objective: `"nsp"`, `"sop"` or `"structural"`. Defaults to `"nsp"`.
        pairing: `"segments"` or `"sentences"`. Defaults to `"segments"`.
        short_sequence_rate: float in [0, 1]. Defaults to `0.1`.
        single_sentence: for SOP, what becomes of a chunk of one sentence.
            `"unlabelled"`: a row `[start] A [end]` whose label has weight 0.
            `"random"`: a random B and label 1, as in ALBERT's released code; such a
            row is a negative of NSP. Defaults to `"unlabelled"`.
        **kwargs: `pad_token_id` (int, 0), `separators` (int, 1; RoBERTa has 2
            `end_token_id` between the segments), `break_lines` (bool, `True`;
            see `split_sentences`), `documents_at_once` (int, 256: documents in a
            window) and `seed` (int, or int64 tensor of shape `(2,)`; 0).

    Returns:
        Called on a `tf.data.Dataset` of scalar strings, a dataset of dicts of
        `token_ids` and `segment_ids`, int32 `(sequence_length,)`,
        `padding_mask`, bool of that shape, and the scalars `sentence_label`,
        int32, and `sentence_weight`, float32. The same for the same seed, at
        any parallelism.

    Raises:
        ValueError: If an argument is out of its range.
        tf.errors.InvalidArgumentError: While iterating, if a random B is needed
            and the data has only one document.

    Example:

    ```python
    tokenizer = keras_bertfam.tokenizers.BertTokenizer("vocab.txt", lowercase=True)
    pair = keras_bertfam.layers.PairSegments(
        tokenizer, 128, start_token_id=101, end_token_id=102, objective="sop")
    rows = keras_bertfam.layers.read_documents("corpus/*.txt").apply(pair)
    ```

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.1;
        [Lan et al., 2019](https://arxiv.org/abs/1909.11942), section 3.1;
        [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.2;
        [Wang et al., 2019](https://arxiv.org/abs/1908.04577), section 2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int,
        end_token_id: int,
        objective: str = "nsp",
        pairing: str = "segments",
        short_sequence_rate: float = 0.1,
        single_sentence: str = "unlabelled",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tokenizer, sequence_length, start_token_id, end_token_id, **kwargs
        )
        for name, value, allowed in (
            ("objective", objective, tuple(SENTENCE_CLASSES)),
            ("pairing", pairing, ("segments", "sentences")),
            ("single_sentence", single_sentence, ("unlabelled", "random")),
        ):
            if value not in allowed:
                raise ValueError(
                    f"`{name}` must be one of {allowed}. Received: {value!r}."
                )
        if not 0 <= short_sequence_rate <= 1:
            raise ValueError(
                "`short_sequence_rate` must be in [0, 1]. "
                f"Received: {short_sequence_rate}."
            )
        self.objective = objective
        self.pairing = pairing
        self.short_sequence_rate = short_sequence_rate
        self.single_sentence = single_sentence
        if pairing == "sentences":  # two sentences don't fill a row
            self._warn_if_short = lambda lengths, document: None
        # How often a chunk of several sentences gets a random B.
        self._random_rate = {"nsp": 1 / 2, "structural": 1 / 3}.get(objective, 0.0)
        self.draws_partners = objective != "sop" or single_sentence == "random"

    def build(self, windows: TFDataset, seed: int | TFTensor) -> TFDataset:
        return self.build_batches(windows, seed).unbatch()

    @as_written
    def build_batches(self, windows: TFDataset, seed: int | TFTensor) -> TFDataset:
        """Build the rows of `build`, in batches of varying size."""
        nothing = tf.zeros([0], tf.int32)
        names = ("tokens", "lengths", "document", "whole_document")
        empty = dict.fromkeys(names, nothing)
        end = tf.data.Dataset.from_tensors((empty, True))
        marked = windows.map(lambda window: (window, False)).concatenate(end)
        # The last window, and how many of its sentences are used already.
        state = (empty, tf.constant(0))

        def step(state, item):
            number, (window, last) = item
            return self._step(state, window, last, window_seeds(seed, number, 9))

        return marked.enumerate().scan(state, step)

    def _step(self, state, window, last, seeds):
        pool, done = state
        shifts = {
            "document": tf.reduce_max(tf.pad(pool["document"] + 1, [[1, 0]])),
            "whole_document": tf.reduce_max(tf.pad(pool["whole_document"], [[1, 0]])),
        }
        both = {
            name: tf.concat([pool[name], window[name] + shifts.get(name, 0)], 0)
            for name in pool
        }
        both["whole_document"] = tf.unique(both["whole_document"]).idx
        total = tf.size(both["lengths"])
        enough = tf.constant(True)
        if self.draws_partners:
            enough = tf.reduce_max(tf.pad(both["whole_document"], [[1, 0]])) > 0
            tf.debugging.Assert(
                enough | ~last | (done == total),
                [
                    "`documents` must have at least two documents, because a random "
                    "segment comes from another one. Received: one."
                ],
            )
        rows = self._rows(both, tf.where(enough, done, total), seeds)
        # Sentences wait in the state until there is a second document.
        kept = ~enough | (tf.size(window["lengths"]) == 0)
        following = _choose_sentences(both, kept | self._in_pool(pool, both))
        done = tf.where(enough, tf.size(following["lengths"]), done)
        return (following, done), rows

    def _in_pool(self, pool, both):
        """Tell which sentences of `both` the next window keeps: those after `pool`.

        The document before them is kept too, if all of them belong to one document that
        may go on.
        """
        whole, begin = both["whole_document"], tf.size(pool["lengths"])
        kept = tf.range(tf.size(whole)) >= begin
        if not self.draws_partners:
            return kept
        last = tf.reduce_max(tf.pad(whole, [[1, 0]]))
        return kept | (tf.reduce_all(whole[begin:] == last) & (whole == last - 1))

    def _rows(self, window, first, seeds):
        """Make rows from the sentences of a window, beginning with `first`."""
        sentences = Sentences(window["lengths"], window["document"])
        budget = self.budget
        begin = tf.range(sentences.count)
        target = self._targets(window["document"], budget, seeds[:2])
        if self.pairing == "sentences":
            end = tf.minimum(begin + 2, sentences.document_end)
        else:
            end = sentences.reach(begin, target)
        split = begin + 1 + uniform_below(end - begin - 1, seeds[2])
        single = end - begin == 1
        is_random = single & self.draws_partners
        if self._random_rate:
            is_random |= coin(self._random_rate, sentences.count, seeds[3])
        begin = follow_pointers(tf.where(is_random, split, end), first)
        end, split, single, is_random, target = (
            tf.gather(x, begin) for x in (end, split, single, is_random, target)
        )
        a = sentences.range(begin, split)
        b = sentences.range(split, end)
        if self.draws_partners:
            other = self._partners(
                sentences, window["whole_document"], begin, target - a[1], seeds[4:6]
            )
            b = _choose(is_random, other, b)
        seeds = seeds[6:]
        return self._pairs(window["tokens"], a, b, single, is_random, seeds, budget)

    @property
    def budget(self) -> int:
        """int: the most tokens of both segments of a row together."""
        return self.sequence_length - 2 - self.separators

    def rows_of_tokens(
        self, found: dict[str, TFTensor], seed: TFTensor
    ) -> dict[str, TFTensor]:
        """Make rows of a prepared corpus, or pairs that share rows. Works in a graph.

        A random B is the beginning of a row of another document. If pairs share rows,
        its length is that of the sentences that it replaces; or A's, if A is alone.

        Args:
            found: what `BatchSource.read` gives, with partners if there can be a random
                B.
            seed: int64 tensor of shape `(2,)`.
        """
        count = tf.size(found["targets"])
        if self.draws_partners:
            names = ("token_ids", "lengths", "marks")
            found = {
                **found,
                **{n: tf.concat([found[n], found[f"other_{n}"]], 0) for n in names},
            }
        tokens, _, sentences = sentences_in(found)
        seeds = window_seeds(seed, 0, 6)
        rows = tf.range(count)
        begin = tf.searchsorted(sentences.document, rows)
        end = tf.gather(sentences.document_end, begin)
        split = begin + 1 + uniform_below(end - begin - 1, seeds[0])
        single = end - begin == 1
        is_random = single & self.draws_partners
        if self._random_rate:
            is_random |= coin(self._random_rate, count, seeds[1])
        a = sentences.range(begin, split)
        b = sentences.range(split, end)
        if self.draws_partners:
            start = tf.searchsorted(sentences.document, rows + count)
            other = self._from(sentences, start, found["targets"] - a[1])
            b = _choose(is_random, other, b)
        budget = self.budget
        if "row" in found:
            _, size = sentences.range(begin, end)
            doubled = tf.cast(single & self.draws_partners, tf.int32)
            budget = tf.minimum(size + doubled * size, budget)
        return self._pairs(tokens, a, b, single, is_random, seeds[2:], budget)

    def _pairs(self, tokens, a, b, single, is_random, seeds, budget):
        """Lay out pairs: swap some of them, and cut them to fit."""
        # The last class is for a random B.
        last = SENTENCE_CLASSES[self.objective] - 1
        label = last * tf.cast(is_random, tf.int32)
        if self.objective != "nsp":
            swapped = ~single & ~is_random & coin(0.5, tf.size(single), seeds[0])
            a, b = _choose(swapped, b, a), _choose(swapped, a, b)
            label += tf.cast(swapped, tf.int32)
        sizes = truncated_lengths(a[1], b[1], budget)
        a = truncate(a, sizes[0], seeds[1])
        b = truncate(b, sizes[1], seeds[2])
        return {
            **self.lay_out(tokens, a, b),
            "sentence_label": label,
            "sentence_weight": tf.cast(is_random | ~single, tf.float32),
        }

    def _targets(self, document, budget, seeds):
        """Draw a target length for each document; give it for each sentence."""
        documents = tf.reduce_max(tf.pad(document + 1, [[1, 0]]))
        short = coin(self.short_sequence_rate, documents, seeds[0])
        # From 2 to the budget, both included.
        drawn = 2 + uniform_below(tf.fill([documents], budget - 1), seeds[1])
        return tf.gather(tf.where(short, drawn, budget), document)

    def _partners(self, sentences, document, begin, size, seeds):
        """Draw token ranges of about `size` tokens from other documents."""
        own = tf.gather(document, begin)
        documents = tf.reduce_max(tf.pad(document + 1, [[1, 0]]))
        drawn = uniform_below(tf.fill(tf.shape(own), documents - 1), seeds[0])
        drawn += tf.cast(drawn >= own, tf.int32)
        lowest = tf.searchsorted(document, drawn)
        highest = tf.searchsorted(document, drawn, side="right")
        start = lowest + uniform_below(highest - lowest, seeds[1])
        return self._from(sentences, start, size)

    def _from(self, sentences, start, size):
        """Find token ranges of about `size` tokens that begin with given sentences."""
        if self.pairing == "sentences":
            return sentences.range(start, start + 1)
        return sentences.range(start, sentences.reach(start, size))


def _choose_sentences(window, kept):
    """Select from a window the sentences for which `kept` is true."""
    tokens = ragged.keep(window["tokens"], tf.repeat(kept, window["lengths"]))
    rest = {
        name: ragged.keep(window[name], kept) for name in window.keys() - {"tokens"}
    }
    return {**rest, "tokens": tokens, "document": tf.unique(rest["document"]).idx}


def _choose(condition, first, second):
    """Apply `tf.where` to both elements of pairs."""
    return tuple(tf.where(condition, x, y) for x, y in zip(first, second, strict=True))
