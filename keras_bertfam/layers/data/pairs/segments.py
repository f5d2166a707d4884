"""Rows of two segments: their lengths, their text, and the layout of each family."""

from typing import Any

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.documents.reading import (
    continues,
    sentences_of,
    warn_if_short,
)
from keras_bertfam.layers.data.limited_parts import parts_by_size
from keras_bertfam.layers.data.pipeline_warnings import count_cut
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.seeding import fold, random_uniform, split_seed
from keras_bertfam.presets.families import FAMILIES, family_of_tokenizer
from keras_bertfam.presets.families.parts.record import Layout
from keras_bertfam.tokenizers.texts import check_documents
from keras_bertfam.types import TFDataset, TFRagged, TFTensor, Tokenizer


class SegmentBuilder:
    """Base of classes that make rows of two segments from documents.

    A subclass defines `build`. Documents are tokenised in windows of several documents,
    in parallel. `build` gets the windows in order.

    Args:
        tokenizer: a tokenizer layer. Called on a batch of strings in a graph,
            it gives a ragged tensor of ids.
        sequence_length: int. The length of a row, special tokens included.
        start_token_id: int. The id that begins each row.
        end_token_id: int. The id that ends each segment.
        pad_token_id: int. Defaults to `0`.
        separators: int. How many end tokens are between the segments: 1 for BERT, 2 for
            RoBERTa. Defaults to `1`.
        break_lines: bool. See `split_sentences`. Defaults to `True`.
        documents_at_once: int. Documents in a window. Defaults to `256`.
        seed: int or int64 tensor of shape `(2,)`. Defaults to `0`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int,
        start_token_id: int,
        end_token_id: int,
        pad_token_id: int = 0,
        separators: int = 1,
        break_lines: bool = True,
        documents_at_once: int = 256,
        seed: int | TFTensor = 0,
    ) -> None:
        for name, value, least in (
            ("separators", separators, 1),
            ("sequence_length", sequence_length, 4 + separators),
            ("documents_at_once", documents_at_once, 1),
        ):
            if value < least:
                raise ValueError(
                    f"`{name}` must be at least {least}. Received: {value}."
                )
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.start_token_id = start_token_id
        self.end_token_id = end_token_id
        self.pad_token_id = pad_token_id
        self.separators = separators
        self.break_lines = break_lines
        self.documents_at_once = documents_at_once
        self.seed = seed
        self._warn_if_short = warn_if_short(sequence_length)

    @as_written
    def __call__(self, documents: TFDataset) -> TFDataset:
        return self.build(self.tokenize(documents), self.seed)

    @as_written
    def tokenize(self, documents: TFDataset) -> TFDataset:
        """Tokenise documents. Nothing is drawn, so the result serves all passes.

        Args:
            documents: `tf.data.Dataset` of scalar strings.

        Returns:
            A `tf.data.Dataset` of windows for `build`.
        """
        windows = check_documents(documents).batch(self.documents_at_once)
        return windows.map(self._window, **PARALLEL)

    def _sentences(self, documents):
        """Tokenise a window part by part: all at once takes a hundredfold memory."""
        parts = parts_by_size(documents)
        tokens, index = tf.map_fn(
            lambda texts: sentences_of(self.tokenizer, texts, self.break_lines),
            parts,
            fn_output_signature=(
                tf.RaggedTensorSpec([None, None], tf.int32),
                tf.RaggedTensorSpec([None], tf.int64),
            ),
            parallel_iterations=1,
        )
        index += tf.cast(parts.row_starts(), tf.int64)[:, tf.newaxis]
        return tokens.values, index.values

    def _window(self, documents):
        tokens, index = self._sentences(documents)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        document = tf.unique(index).idx
        self._warn_if_short(lengths, document)
        # A document that began in the window before has the number 0.
        whole = tf.cumsum(tf.cast(~continues(documents), tf.int32))
        return {
            "tokens": tokens.flat_values,
            "lengths": lengths,
            "document": document,
            "whole_document": tf.gather(whole, index),
        }

    def build(self, windows: TFDataset, seed: int | TFTensor) -> TFDataset:
        """Make rows of tokenised windows.

        Args:
            windows: what `tokenize` returns.
            seed: int or int64 tensor of shape `(2,)`.

        Returns:
            A `tf.data.Dataset` of dicts, as a call returns.
        """
        raise TypeError(f"{type(self).__name__} must define `build`.")

    def lay_out(
        self,
        tokens: TFTensor,
        first: tuple[TFTensor, TFTensor],
        second: tuple[TFTensor, TFTensor],
    ) -> dict[str, TFTensor]:
        """Lay pairs of ranges of tokens out in rows.

        Args:
            tokens: int32 tensor of rank 1.
            first: pair of int32 tensors of shape `(rows,)`: the place in `tokens`
                where the first segment of each row begins, and its length.
            second: the same for the second segment. A length of 0 means that the row
                has only one segment.

        Returns:
            A dict of `token_ids` and `segment_ids`, int32 `(rows,
            sequence_length)`, and `padding_mask`, bool of that shape.
        """
        # Example: tokens 11 12 13 14 15, first at 0 of size 2, second at 2 of size 3,
        # rows of 8, start 1 and end 2:
        # place         0  1  2  3  4  5  6  7
        # index            0  1     2  3  4       into tokens
        # token_ids     1 11 12  2 13 14 15  2
        # segment_ids   0  0  0  0  1  1  1  1
        (first_at, first_size), (second_at, second_size) = (
            (at[:, None], size[:, None]) for at, size in (first, second)
        )
        has_second = second_size > 0
        begins = 1 + first_size + tf.where(has_second, self.separators, 1)
        ends = tf.where(has_second, begins + second_size, begins - 1)
        place = tf.range(self.sequence_length)[None]
        in_first = (place >= 1) & (place <= first_size)
        in_second = has_second & (place >= begins) & (place < ends)
        index = tf.where(in_first, first_at + place - 1, 0)
        index = tf.where(in_second, second_at + place - begins, index)
        ids = tf.gather(tf.pad(tokens, [[0, 1]]), index)
        ids = tf.where(in_first | in_second, ids, self.end_token_id)
        ids = tf.where(place == 0, self.start_token_id, ids)
        inside = place <= ends
        out = {
            "token_ids": tf.where(inside, ids, self.pad_token_id),
            "padding_mask": inside,
            "segment_ids": tf.cast(inside & (place >= begins), tf.int32),
        }
        static = [None, self.sequence_length]
        return {name: tf.ensure_shape(x, static) for name, x in out.items()}


class Sentences:
    """The sentences of some documents, one after the other.

    Args:
        lengths: int32 tensor of shape `(sentences,)`, each at least 1.
        document: int32 tensor of that shape, ascending from 0 without gaps.
    """

    def __init__(self, lengths: TFTensor, document: TFTensor) -> None:
        self.document = document
        self.count = tf.size(lengths)
        self.bounds = tf.cumsum(tf.pad(lengths, [[1, 0]]))
        # For each sentence, the sentence after its document's last.
        self.document_end = tf.searchsorted(document, document, side="right")

    def reach(self, sentence: TFTensor, size: TFTensor) -> TFTensor:
        """Find how many sentences from `sentence` on are needed for `size` tokens.

        The result is the sentence after the last needed one, at most the end of the
        document.
        """
        # Example: lengths 3, 2, 4 | 1, 2 of two documents, and a size of 4. From
        # sentence 0 on, 3 + 2 tokens reach it: the result is 2. For the sentences 0 to
        # 4 it is 2, 3, 3, 5, 5.
        goal = tf.gather(self.bounds, sentence) + tf.maximum(size, 1)
        following = tf.searchsorted(self.bounds, goal)
        return tf.minimum(following, tf.gather(self.document_end, sentence))

    def range(self, begin: TFTensor, end: TFTensor) -> tuple[TFTensor, TFTensor]:
        """Find where the tokens of sentences `begin` to `end` begin, and their number.

        `end` is excluded.
        """
        at = tf.gather(self.bounds, begin)
        return at, tf.gather(self.bounds, end) - at


def uniform_below(limits: TFTensor, seed: TFTensor) -> TFTensor:
    """Draw ints, uniform in `[0, limits)`; 0 where the limit is 0."""
    draw = random_uniform(tf.shape(limits), seed, dtype=tf.float64)
    return tf.cast(draw * tf.cast(limits, tf.float64), tf.int32)


def coin(rate: float, count: TFTensor, seed: TFTensor) -> TFTensor:
    """Draw bools of shape `(count,)`, true with probability `rate`."""
    return random_uniform([count], seed) < rate


def window_seeds(seed: int | TFTensor, number: TFTensor, count: int) -> list[TFTensor]:
    """Return `count` seeds for the window `number` of a pass."""
    seed = tf.cast(seed, tf.int64)
    if seed.shape.rank == 0:
        seed = fold(tf.zeros(2, tf.int64), seed)
    return split_seed(fold(seed, number), count)


def truncated_lengths(
    first: TFTensor, second: TFTensor, budget: int | TFTensor
) -> tuple[TFTensor, TFTensor]:
    """Compute the lengths of two segments after they are cut to a budget.

    The longer segment loses tokens, one by one. If both are equally long, the second
    loses one.

    Args:
        first: int32 tensor of shape `(rows,)`.
        second: int32 tensor of that shape.
        budget: int, or int32 tensor of that shape. The most tokens in both.

    Returns:
        Two int32 tensors of that shape.
    """
    # Example: a budget of 5. Lengths 5 and 3 become 3 and 2, and so do 3 and 3. Lengths
    # 2 and 6 become 2 and 3.
    half = -(-budget // 2)
    kept = tf.minimum(first, tf.maximum(budget - second, half))
    return kept, tf.minimum(second, budget - kept)


def truncate(
    segment: tuple[TFTensor, TFTensor], size: TFTensor, seed: TFTensor
) -> tuple[TFTensor, TFTensor]:
    """Take tokens off either end of a segment, each end with probability 1/2.

    Args:
        segment: pair of int32 tensors of shape `(rows,)`: start and length.
        size: int32 tensor of that shape, the length that is left.
        seed: integer tensor of shape `(2,)`.

    Returns:
        A pair like `segment`.
    """
    # Example: a segment that begins at 10 and has 8 tokens loses 3; two of three coins
    # say "from the front": it begins at 12 and has 5.
    at, length = segment
    # A fair coin for each lost token; count those that say "from the front".
    coins = tf.cast(length - size, tf.float32)
    front = tf.random.stateless_binomial(tf.shape(length), seed, coins, 0.5)
    return at + front, size


# The text alone, for backbones without special tokens.
BARE = Layout("bare", start_token="", separators=0, ends=False)


def layouts() -> dict[str, Layout]:
    """List the layouts of the families, and `BARE`, by name."""
    return {**{r.layout.name: r.layout for r in FAMILIES.values()}, BARE.name: BARE}


def get_layout(name: str | None, tokenizer: Tokenizer, summary: bool = False) -> Layout:
    """Find a layout by name, or the layout for a tokenizer if the name is `None`.

    A tokenizer's layout is found by its start token, or in the record of the family
    whose tokenizers have its class. Neither needs a vocabulary.

    Args:
        name: str or `None`.
        tokenizer: a tokenizer layer.
        summary: bool. Whether one token's state stands for the whole row. GPT's rows
            get new tokens for this.

    Raises:
        ValueError: for an unknown name, or a tokenizer whose start token and class
            belong to no family.
    """
    known = layouts()
    starts = {x.start_token: n for n, x in reversed(known.items()) if x.start_token}
    family = family_of_tokenizer(tokenizer)
    if name is None and summary and family is not None:
        heads = known.get(family.head_style.name)
        name = heads.name if heads and heads.new_tokens else None
    if name is None:
        name = starts.get(getattr(tokenizer, "start_token", None) or "")
    if name is None and family is not None:
        name = family.layout.name
    if name not in known:
        raise ValueError(
            f"`layout` must be one of {sorted(known)}, or `None` with a tokenizer "
            f"whose start token is one of {sorted(starts)}. Received: "
            f"layout={name!r}, tokenizer={type(tokenizer).__name__}."
        )
    return known[name]


TRUNCATIONS = ("end", "start", "middle")


def truncate_pair(
    segments: list[TFRagged], budget: int, where: str = "end"
) -> list[TFRagged]:
    """Cut one or two segments until they fit in a budget.

    Of two segments the longer one loses tokens, or the second if they are equally long,
    as in the released code of BERT's fine-tuning.

    Args:
        segments: list of one or two ragged int32 tensors `(rows, None)`.
        budget: int.
        where: one of `TRUNCATIONS`: where a segment loses tokens.

    Returns:
        A list of ragged tensors.
    """
    lengths = [tf.cast(x.row_lengths(), tf.int32) for x in segments]
    count_cut(tf.add_n(lengths) > budget)
    sizes: Any = [tf.minimum(lengths[0], budget)]
    if len(segments) == 2:
        sizes = truncated_lengths(lengths[0], lengths[1], budget)
    return [_part_of(x, size, where) for x, size in zip(segments, sizes, strict=True)]


def _part_of(segment, size, where):
    if where == "end":
        return ragged.head(segment, size)
    if where == "start":
        return ragged.tail(segment, size)
    after = size // 2  # 1 2 3 4 5 and a size of 3 give 1 2 5
    return ragged.concat(
        [ragged.head(segment, size - after), ragged.tail(segment, after)]
    )


def lay_out(
    segments: list[TFRagged], tokenizer: Tokenizer, layout: Layout
) -> dict[str, TFRagged]:
    """Join segments and special tokens to rows.

    Args:
        segments: list of one or two ragged int32 tensors `(rows, None)`.
        tokenizer: see `special_ids`.
        layout: a `Layout`.

    Returns:
        A dict of `token_ids` and `segment_ids`, ragged int32 tensors of the same
        shape. In XLNet's rows the last token has its own segment.
    """
    rows = segments[0].nrows()
    start, between, end = (
        tf.tile([tf.constant(ids, tf.int32)], [rows, 1])
        for ids in special_ids(tokenizer, layout)
    )
    parts = []
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        parts += [(segment, number), (end if last else between, number)]
    parts.insert(*((len(parts), (start, 2)) if layout.start_last else (0, (start, 0))))
    row = ragged.concat([_numbered(part, number) for part, number in parts])
    ids, numbers = tf.unstack(row.values, axis=1)
    return {
        "token_ids": row.with_values(ids),
        "segment_ids": row.with_values(numbers),
    }


def special_ids(
    tokenizer: Tokenizer, layout: Layout
) -> tuple[list[int], list[int], list[int]]:
    """Look up the ids of a row's start, separators and end, each a list.

    They are the tokenizer's `start_token_id` and `end_token_id`. Layouts with new
    tokens have the ids that follow the tokenizer's vocabulary.
    """
    if layout.new_tokens:
        size = tokenizer.vocabulary_size()
        start, separator, end = size, size + 1, size + 2
    else:
        start, end = tokenizer.start_token_id, tokenizer.end_token_id
        separator = end
    return (
        [start] if layout.start_token else [],
        [separator] * layout.separators,
        [end] if layout.ends else [],
    )


def _numbered(part, number):
    """Give each id the number of its segment."""
    if isinstance(part, tf.RaggedTensor):
        return part.with_values(_numbered(part.values, number))
    return tf.stack([part, tf.fill(tf.shape(part), number)], -1)
