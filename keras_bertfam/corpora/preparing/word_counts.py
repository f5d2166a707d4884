"""Counting the words of text with Apache Beam, to learn vocabularies from."""

import functools
import heapq
import json
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keras_bertfam.arguments import checked
from keras_bertfam.corpora.preparing.job import (
    guarded,
    raise_failure,
    read_blocks,
    write_blocks,
    write_json,
)
from keras_bertfam.corpora.preparing.pipeline import beam_options, load_beam
from keras_bertfam.corpora.preparing.processes import process_pool
from keras_bertfam.corpora.preparing.sources import (
    check_unchanged,
    find_sources,
    make_blocks,
    read_documents,
)
from keras_bertfam.parsing import read_json
from keras_bertfam.text_files.sources import MAX_LINE_LENGTH, Reading
from keras_bertfam.types import Path

_PARTITIONS = 64
_LONGEST = 200  # characters of a word; what is longer is cut
MOST_WORDS = 5_000_000


class Counting:
    """The settings of a count of words, for all workers.

    Args:
        folder: path of the folder with the blocks and the results.
        blocks_file: name of the file with the blocks.
        reading: `Reading`.
        most: int. Number of words to keep of each partition.
    """

    def __init__(
        self, folder: str, blocks_file: str, reading: Reading, most: int
    ) -> None:
        self.folder = folder
        self.blocks_file = blocks_file
        self.reading = reading
        self.most = most

    def path(self, *names: str) -> str:
        """Join a path in the folder."""
        return os.path.join(self.folder, *names)


@checked
def count_words(
    sources: Path | Sequence[Path],
    *,
    feature: str = "text",
    split: str = "train",
    encoding: str = "utf-8",
    max_line_length: int = MAX_LINE_LENGTH,
    max_words: int = MOST_WORDS,
    workers: int = 1,
    beam_arguments: Sequence[str] = (),
    working_folder: Path | None = None,
) -> dict[str, int]:
    """Count words, which are text between white space.

    Args:
        sources: see `prepare`.
        feature: see `prepare`.
        split: see `prepare`.
        encoding: see `prepare`.
        max_line_length: see `prepare`.
        max_words: int. Number of words to return, approximately: the most frequent
            ones. Defaults to 5,000,000.
        workers: see `prepare`.
        beam_arguments: see `prepare`.
        working_folder: path of a folder in which a temporary one is made. All workers
            must see it under this path. Defaults to that of the system, which serves
            workers on this machine.

    Returns:
        A dict of words and their counts, the most frequent first, and words as
        frequent in the order of their characters. `train_word_piece`,
        `train_byte_pair` and `train_sentence_piece` take it for documents.

    Raises:
        FileNotFoundError: see `prepare`.
        ImportError: see `prepare`.
        ValueError: see `prepare`.

    Example:

    ```python
    from keras_bertfam.corpora.preparing.word_counts import count_words
    counts = count_words("corpus/*.txt", workers=8)
    tokenizer = keras_bertfam.tokenizers.train_word_piece(counts, 30_000)
    ```
    """
    options = beam_options(workers, beam_arguments)
    if max_words < 1:
        raise ValueError(f"`max_words` must be at least 1. Received: {max_words}.")
    reading = Reading(
        feature, split, encoding=encoding, max_line_length=max_line_length
    )
    blocks = make_blocks(find_sources(sources, reading), reading)
    with tempfile.TemporaryDirectory(dir=working_folder) as folder:
        # Partitions have about equal numbers of words.
        most = -(-max_words // _PARTITIONS)
        job = Counting(folder, write_blocks(folder, blocks), reading, most)
        try:
            with process_pool(workers):
                _run(job, len(blocks), options)
        except Exception:
            raise_failure(folder)
            raise
        counts: dict[str, int] = {}
        for number in range(_PARTITIONS):
            path = job.path(f"words-{number}.json")
            if os.path.exists(path):
                counts |= read_json(path)
    return dict(sorted(counts.items(), key=_rank))


def _rank(item):
    word, count = item
    return -count, word


def _run(job, blocks, options):
    beam = load_beam()

    def step(function: Callable[..., Any]) -> Any:
        return functools.partial(guarded, job, function)

    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | "Blocks" >> beam.Create(range(blocks))
            | "Spread" >> beam.Reshuffle()
            | "Words" >> beam.FlatMap(step(_count_block))
            | "Equal" >> beam.GroupByKey()
            | "Sum" >> beam.Map(step(_sum_partition))
        )


def _count_block(job: Counting, number: int) -> Iterator[tuple[int, bytes]]:
    """Count the words of a block, and write them by partitions, as JSON."""
    counts: Counter[str] = Counter()
    for part in read_blocks(job.path(job.blocks_file))[number]:
        for text in read_documents(part, job.reading):
            counts.update(text.split())
        check_unchanged(part.source)
    tables: list[dict[str, int]] = [{} for _ in range(_PARTITIONS)]
    for long in [word for word in counts if len(word) > _LONGEST]:
        count = counts.pop(long)
        for start in range(0, len(long), _LONGEST):
            counts[long[start : start + _LONGEST]] += count
    for word, count in counts.items():
        tables[zlib.crc32(word.encode()) % _PARTITIONS][word] = count
    for place, table in enumerate(tables):
        if table:
            yield place, json.dumps(table, ensure_ascii=False).encode()


def _sum_partition(job: Counting, partition: tuple[int, Iterable[bytes]]) -> int:
    """Write the most frequent words of a partition."""
    number, tables = partition
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(json.loads(table))
    kept = heapq.nsmallest(job.most, counts.items(), key=_rank)
    write_json(job.path(f"words-{number}.json"), dict(kept))
    return number
