"""Whole documents from text files, and sentences from documents."""

import itertools
import warnings
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_bertfam import ragged
from keras_bertfam.arguments import checked
from keras_bertfam.autograph import as_written
from keras_bertfam.layers.data.pipelines import PARALLEL
from keras_bertfam.layers.data.seeding import shuffle
from keras_bertfam.text_files import reading as files
from keras_bertfam.text_files.reading import CONTINUES
from keras_bertfam.text_files.sources import MAX_LINE_LENGTH, Part, Reading
from keras_bertfam.tokenizers.pipeline_ops import tokenize, word_prefix
from keras_bertfam.tokenizers.texts import (
    LINE_SPACE,
    check_documents,
    dataset_of,
    text_sources,
    to_utf8,
    without_languages,
)
from keras_bertfam.types import Path, TFDataset, TFRagged, TFTensor, Tokenizer

MAX_DOCUMENT_BYTES = 1 << 20

_SPACE = f"[{LINE_SPACE}]"
# Some full stops end no sentence: after one letter (an initial, "U.S.") or a title,
# before a small letter, and without a space after them.
_TITLE = (
    r"\b(Mr|Mrs|Ms|Messrs|Dr|Prof|St|Mt|Rev|Hon|Capt|Col|Gen|Lt|Sgt|vs|cf)\."
    rf"{_SPACE}+"
)
_AFTER_TITLE = "\x01"
_SENTENCE_END = (
    r"""((?:[\pL\pN]{2}\.|[^\pL\pN]\.|[!?…])["'”’»)\]⟫⟧]*)""" + _SPACE + "+"
    r"""(["'“‘«(\[⟪⟦]*[\p{Lu}\pN])|([。！？]["'”’」』）⟫⟧]*)"""
)

# Joins documents to one string, which takes a quarter less time than many strings. No
# text has this byte, and no class of characters contains it.
_BETWEEN = b"\xff"

_BLANK = f"{_SPACE}*"

# The end of a sentence after which there is no space.
_UNSPACED = r"""(?s).*[。！？]["'”’」』）⟫⟧]*"""


@checked
@as_written
def read_documents(
    source: Path | Sequence[Path] | TFDataset,
    split: str = "train",
    feature: str = "text",
    max_bytes: int = MAX_DOCUMENT_BYTES,
    num_shards: int = 1,
    shard_index: int = 0,
    one_per_file: bool = False,
    encoding: str = "utf-8",
    max_line_length: int = MAX_LINE_LENGTH,
) -> TFDataset:
    """Read documents from files, a TFDS dataset or a dataset of strings.

    A file's ending says what it is. `.jsonl`, `.ndjson` and `.json` are JSON with an
    object per line; `.parquet` is Parquet; all others are text. Text and JSON can be
    compressed, as `.gz` or `.zst`.

    In text files blank lines separate documents. A line is blank if it holds only white
    space, in Unicode's sense. Lines can end as on any system. If the blank lines of
    your files separate paragraphs, as in novels, use `one_per_file=True`: otherwise
    each paragraph is a document. Files are read in sorted order, a MiB at a time.

    Args:
        source: a glob pattern, or a list of paths and patterns, of files;
            `"tfds:NAME"`; or a `tf.data.Dataset` of scalar strings, one document each.
        split: string. The split of a TFDS dataset. Defaults to `"train"`.
        feature: string. The text feature of a TFDS dataset, field of JSON or column of
            Parquet. Defaults to `"text"`.
        max_bytes: int. A longer document of a file is cut into pieces, at the ends of
            lines. All pieces except the first begin with a zero byte, which tells
            sentence pairs that they belong to one document. Other rows take each piece
            for a document. Defaults to 1 MiB.
        num_shards: int. How many readers share the source. Each reads every
            `num_shards`-th file, or every `num_shards`-th document if the source isn't
            files. Give each reader's preprocessor a `seed` of its own: with the same
            seed they mask the same places. Defaults to `1`.
        shard_index: int in `[0, num_shards)`. Which share to read. Defaults to
            `0`.
        one_per_file: bool. Whether a text file is one document; its blank lines are
            left out. Defaults to `False`.
        encoding: string. Encoding of text files and JSON, as Python names it. A
            byte-order mark is removed. Defaults to `"utf-8"`.
        max_line_length: int. The most characters of a line of a file. A tokenizer holds
            a whole line in memory. Defaults to 4,194,304.

    Returns:
        A `tf.data.Dataset` of scalar strings in UTF-8.

    Raises:
        FileNotFoundError: If no file matches.
        ImportError: If a file needs the library of Zstandard or Parquet and it is
            missing.
        ValueError: If the dataset's elements aren't scalar strings; if the first 64 KiB
            of a file aren't what its name and `encoding` say; if there is no such
            encoding; or if the shard is out of range or without a file.
        tf.errors.InvalidArgumentError: While iterating, for a fault further on in a
            file, or a line that is too long. The error names the file and the byte.

    Example:

    ```python
    documents = keras_bertfam.layers.read_documents("corpus/*.txt")
    ```
    """
    if not 0 <= shard_index < num_shards:
        raise ValueError(
            f"`shard_index` must be in [0, num_shards={num_shards}). "
            f"Received: {shard_index}."
        )
    if isinstance(source, tf.data.Dataset):
        source = _checked(source)
        if num_shards == 1:
            return source
        return whole_documents(source).shard(num_shards, shard_index).unbatch()
    if isinstance(source, str) and source.startswith("tfds:"):
        import tensorflow_datasets as tfds

        dataset = tfds.load(source.removeprefix("tfds:"), split=split)
        if feature not in dataset.element_spec:
            raise ValueError(
                f"`feature` must be one of {sorted(dataset.element_spec)}. "
                f"Received: {feature!r}."
            )
        dataset = dataset.shard(num_shards, shard_index)
        return _checked(dataset.map(lambda example: example[feature]))
    reading = Reading(
        feature,
        one_per_file=one_per_file,
        encoding=encoding,
        max_line_length=max_line_length,
    )
    sources = text_sources(source, reading)
    if len(sources) <= shard_index:
        raise ValueError(
            f"`num_shards` must be at most the number of files, {len(sources)}. "
            f"Received: num_shards={num_shards}, shard_index={shard_index}."
        )
    parts = [Part(each) for each in sources[shard_index::num_shards]]
    return dataset_of(
        lambda: itertools.chain.from_iterable(
            files.read_documents(part, reading, max_bytes) for part in parts
        )
    )


def _checked(dataset):
    return check_documents(dataset, "source").map(to_utf8, **PARALLEL)


@as_written
def share_of_documents(documents: TFDataset, share: float) -> TFDataset:
    """Keep a share of documents, spread evenly, beginning with the first.

    Example: of ten documents a share of 0.3 keeps the numbers 0, 4 and 7.

    Args:
        documents: `tf.data.Dataset` of scalar strings, as `read_documents` gives.
        share: float in (0, 1].
    """
    documents = check_documents(documents)

    def number(count, piece):
        count += tf.cast(~continues(piece), tf.int64)
        before, now = (
            tf.math.ceil(tf.cast(n, tf.float64) * share) for n in (count - 1, count)
        )
        return count, (piece, now > before)

    numbered = documents.scan(tf.constant(0, tf.int64), number)
    return numbered.filter(lambda piece, kept: kept).map(lambda piece, kept: piece)


def split_sentences(documents: TFTensor, break_lines: bool = True) -> TFRagged:
    """Split documents into sentences, in the graph.

    Args:
        documents: string tensor of shape `(batch,)`.
        break_lines: bool. Whether to break lines into sentences. A sentence ends after
            `.`, `!`, `?` or `…` if a space and then a capital letter or digit follow,
            but not after initials and titles; and after `。`, `！` and `？`. With
            `False` only a line's end ends a sentence. Defaults to `True`.

    Returns:
        A string `tf.RaggedTensor` of shape `(batch, None)`, in UTF-8, without blank
        sentences.
    """
    documents = to_utf8(documents)
    if break_lines:
        # `tensorflow_text.StateBasedSentenceBreaker` takes 20 times as long, and
        # also breaks "3.5", "U.S." and "Mr. X".
        count = tf.size(documents)
        text = tf.strings.reduce_join(documents, separator=_BETWEEN)
        text = tf.strings.regex_replace(text, _TITLE, rf"\1.{_AFTER_TITLE}")
        text = tf.strings.regex_replace(text, _SENTENCE_END, "\\1\\3\n\\2")
        text = tf.strings.regex_replace(text, _AFTER_TITLE, " ")
        documents = tf.strings.split(text, _BETWEEN)[:count]
    lines = tf.strings.split(documents, "\n")
    blank = tf.strings.regex_full_match(lines.flat_values, _BLANK)
    return tf.cond(
        tf.reduce_any(blank),
        lambda: ragged.keep_in_rows(lines, ~blank),
        lambda: lines,
    )


def tokenize_sentences(
    tokenizer: Tokenizer, documents: TFTensor, break_lines: bool = True
) -> tuple[TFRagged, TFTensor]:
    """Tokenise the sentences of documents, in the graph.

    Tokens of byte-level BPE, for example, include the space before a word. With such a
    tokenizer each sentence gets a space before it, for the space or line's end between
    two sentences. Two kinds get none: the first of a document, and sentences after
    `。`, `！` and `？`.

    Args:
        tokenizer: a tokenizer layer.
        documents: string tensor of shape `(batch,)`.
        break_lines: bool. See `split_sentences`.

    Returns:
        The ids of each sentence that has any, an int32 `tf.RaggedTensor` of shape
        `(sentences, None)`; and the document of each sentence, int32. Documents with a
        sentence are numbered from 0.
    """
    tokens, document = sentences_of(tokenizer, documents, break_lines)
    return tokens, tf.unique(document).idx


def sentences_of(
    tokenizer: Tokenizer, documents: TFTensor, break_lines: bool = True
) -> tuple[TFRagged, TFTensor]:
    """Tokenise as `tokenize_sentences`, but give int64 indices of `documents`."""
    documents = without_languages(documents)
    # A later piece of a document follows a line's end, so it gets a space.
    documents = tf.strings.regex_replace(documents, r"^\x00", " ")
    sentences = split_sentences(documents, break_lines)
    if prefix := word_prefix(tokenizer):
        before = tf.where(_follows_space(sentences), prefix, "")
        sentences = sentences.with_flat_values(before + sentences.flat_values)
    tokens = tokenize(tokenizer, sentences.flat_values)
    lengths = tokens.row_lengths()
    full = lengths > 0
    document = ragged.keep(ragged.row_ids(sentences), full)
    # Only empty rows are removed; `tf.ragged.boolean_mask` would copy all tokens.
    lengths = ragged.keep(lengths, full)
    return ragged.from_lengths(tokens.values, lengths), document


def continues(documents: TFTensor) -> TFTensor:
    """Tell which documents are pieces that continue the piece before.

    Args:
        documents: string tensor.

    Returns:
        Bool tensor of that shape.
    """
    return tf.strings.substr(documents, 0, 1) == CONTINUES


@as_written
def shuffle_documents(
    documents: TFDataset, buffer_size: int, seed: TFTensor
) -> TFDataset:
    """Shuffle documents; the pieces of one stay together.

    Args:
        documents: `tf.data.Dataset` of scalar strings.
        buffer_size: int. How many documents are held in memory.
        seed: int64 tensor of shape `(2,)`.

    Returns:
        A `tf.data.Dataset` of scalar strings.
    """
    return shuffle(whole_documents(documents), buffer_size, seed).unbatch()


@as_written
def whole_documents(documents: TFDataset) -> TFDataset:
    """Gather the pieces of each document.

    Args:
        documents: `tf.data.Dataset` of scalar strings.

    Returns:
        A `tf.data.Dataset` of string tensors of shape `(pieces,)`.
    """
    nothing = tf.constant([], tf.string)
    end = tf.data.Dataset.from_tensors("")

    def gather(pieces, text):
        goes_on = continues(text)
        done = pieces[: tf.where(goes_on, 0, tf.size(pieces))]
        return tf.concat([pieces[tf.size(done) :], [text]], 0), done

    whole = documents.concatenate(end).scan(nothing, gather)
    return whole.filter(lambda pieces: tf.size(pieces) > 0)


def warn_if_short(sequence_length: int) -> Callable[[TFTensor, TFTensor], None]:
    """Make a function that warns once if most documents are shorter than rows.

    Args:
        sequence_length: int. Tokens of a row that holds a single document.

    Returns:
        A function of two int32 tensors of shape `(sentences,)`: the lengths of
        sentences, and the document of each, ascending. It works in a graph, and warns
        when the graph runs.
    """
    warned: list[bool] = []

    def warn(median, count):
        if not warned:
            warned.append(True)
            warnings.warn(
                f"The median of {count} documents has {median} tokens, less than a "
                f"row of {sequence_length}, which holds text of a single document. "
                "If blank lines separate paragraphs of your files, and not "
                "documents, read them by `read_documents(..., "
                "one_per_file=True)`.",
                stacklevel=2,
            )
        return True

    def check(lengths, document):
        sizes = tf.sort(tf.math.segment_sum(lengths, document))
        count = tf.size(sizes)
        median = tf.reduce_sum(sizes[count // 2 : count // 2 + 1])
        tf.cond(
            (count > 0) & (median < sequence_length),
            lambda: tf.numpy_function(warn, [median, count], tf.bool),
            lambda: False,
        )

    return check


def _follows_space(sentences):
    """Tell which sentences had a space before them, `(sentences,)`."""
    document = ragged.row_ids(sentences)
    inner = tf.equal(document[1:], document[:-1])
    spaced = ~tf.strings.regex_full_match(sentences.flat_values[:-1], _UNSPACED)
    return tf.pad(inner & spaced, [[1, 0]])[: tf.size(document)]
