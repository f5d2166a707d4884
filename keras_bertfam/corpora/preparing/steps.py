"""The steps of preparing a corpus: each writes its results to the working folder."""

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bertfam.corpora.manifest import Shard, ids_dtype
from keras_bertfam.corpora.preparing.duplicates import (
    find_copies,
    hash_words,
    is_contaminated,
)
from keras_bertfam.corpora.preparing.job import (
    Job,
    digest,
    read_json,
    save_array,
    whole_folder,
    write_json,
)
from keras_bertfam.corpora.preparing.sources import check_unchanged, read_documents
from keras_bertfam.corpora.shards import write_shard
from keras_bertfam.layers.data.documents.reading import sentences_of
from keras_bertfam.text_files.reading import CONTINUES
from keras_bertfam.types import Tokenizer

DOCUMENTS, TOKENS, PLAN = "documents", "tokens", "plan.json"
EXACT, NEAR = 0, 1
_DIGEST_BYTES = 16
# Rows are compared in so many parts, divided by their groups.
_PARTITIONS = 16
_ROW = np.dtype([("group", "u8"), ("order", "u8"), ("number", "u8")])
_BLOCK_BITS = np.uint64(32)
_LARGEST = (1 << 32) - 1


def documents_folder(job: Job, number: int) -> str:
    """Name the folder of the documents of a block."""
    settings = (job.reading, job.rules, job.near_duplicates, job.test_hashes_file)
    key = digest(job.block(number), settings, job.test_ngram)
    return job.path(DOCUMENTS, key)


def write_documents(job: Job, number: int) -> int:
    """Read a block's documents, and write the ones that pass the rules."""
    folder = documents_folder(job, number)
    if os.path.isdir(folder):
        return number
    ends, digests, words, signatures = [0], [], [], []
    dropped: Counter[str] = Counter()
    near, known = job.near_duplicates, None
    if job.test_hashes_file is not None:
        known = np.load(job.path(job.test_hashes_file), mmap_mode="r")
    with whole_folder(folder) as part:
        with open(os.path.join(part, "texts"), "wb") as file:
            for text in _read(job, number):
                document, rule = job.rules.apply(text)
                hashes = None
                if rule is None and (known is not None or near is not None):
                    hashes = hash_words(document.text)
                    if known is not None and is_contaminated(
                        hashes, known, job.test_ngram
                    ):
                        rule = "contamination"
                if rule is not None:
                    dropped[rule] += 1
                    continue
                data = document.text.encode()
                file.write(data)
                ends.append(ends[-1] + len(data))
                digests.append(_digest(data))
                if near is not None and hashes is not None:
                    words.append(len(hashes))
                    signatures.append(near.signature(hashes))
        save_array(os.path.join(part, "ends.npy"), np.array(ends, np.uint64))
        shape = (len(digests), 2)
        save_array(
            os.path.join(part, "digests.npy"), np.array(digests, "u8").reshape(shape)
        )
        if near is not None:
            shape = (len(digests), near.bands * near.band_size)
            rows = np.array(signatures, np.uint32).reshape(shape)
            save_array(os.path.join(part, "signatures.npy"), rows)
            save_array(os.path.join(part, "words.npy"), np.array(words, np.uint64))
        write_json(os.path.join(part, "report.json"), {"dropped": dropped})
    return number


def _read(job: Job, number: int) -> Iterator[str]:
    for part in job.block(number):
        yield from read_documents(part, job.reading)
        check_unchanged(part.source)


def _digest(data):
    value = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
    return np.frombuffer(value, "<u8")


def index_rows(job: Job, number: int) -> Iterator[tuple[int, bytes]]:
    """Make the rows by which a block's documents are compared with others."""
    folder = documents_folder(job, number)
    digests = np.load(os.path.join(folder, "digests.npy"))
    numbers = np.uint64(number << 32) + np.arange(len(digests), dtype=np.uint64)
    if job.exact_duplicates:
        yield from _partitioned(EXACT, digests[:, 0], np.zeros_like(numbers), numbers)
    near = job.near_duplicates
    if near is not None and len(digests):
        signatures = np.load(os.path.join(folder, "signatures.npy"))
        words = np.load(os.path.join(folder, "words.npy"))
        groups = near.band_hashes(signatures)[words > 0]
        # Of similar documents the longest has the least order, so it stays.
        shortness = _LARGEST - np.minimum(words, _LARGEST)
        order = (shortness << _BLOCK_BITS) + (digests[:, 1] >> _BLOCK_BITS)
        order, numbers = (np.repeat(x[words > 0], near.bands) for x in (order, numbers))
        yield from _partitioned(NEAR, groups.reshape(-1), order, numbers)


def _partitioned(kind, groups, order, numbers):
    rows = np.empty(len(groups), _ROW)
    rows["group"], rows["order"], rows["number"] = groups, order, numbers
    places = (groups % np.uint64(_PARTITIONS)).astype(np.int64)
    for place in np.unique(places):
        yield kind * _PARTITIONS + int(place), rows[places == place].tobytes()


def find_dropped(
    job: Job, partition: tuple[int, Iterable[bytes]]
) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Find the documents of a partition to drop, with their blocks and the reason."""
    key, blobs = partition
    kind = key // _PARTITIONS
    rows = np.frombuffer(b"".join(blobs), _ROW)
    compare = None
    if kind == NEAR:
        compare = functools.partial(_signatures_compared, job)
    copies = find_copies(rows["group"], rows["order"], rows["number"], compare)
    blocks = (copies >> _BLOCK_BITS).astype(np.int64)
    for block in np.unique(blocks):
        documents = (copies[blocks == block] & np.uint64(_LARGEST)).astype("<u4")
        yield int(block), (kind, documents.tobytes())


def _signatures_compared(job, numbers):
    """Load the signatures of documents, to compare them.

    Args:
        job: `Job`.
        numbers: sorted uint64 array of the documents' numbers.

    Returns:
        A function for `find_copies`.
    """
    blocks = (numbers >> _BLOCK_BITS).astype(np.int64)
    held = []
    for block in np.unique(blocks):
        path = os.path.join(documents_folder(job, int(block)), "signatures.npy")
        rows = (numbers[blocks == block] & np.uint64(_LARGEST)).astype(np.int64)
        held.append(np.load(path, mmap_mode="r")[rows])
    signatures = np.concatenate(held)

    def similar(best, others):
        own = signatures[np.searchsorted(numbers, best)]
        equal = signatures[np.searchsorted(numbers, others)] == own
        return equal.mean(1) >= job.near_duplicates.threshold

    return similar


def write_tokens(job: Job, joined: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    """Tokenize the documents of a block that stay, and sort them by shards."""
    number, of_block = joined
    documents = documents_folder(job, number)
    gone = {
        kind: np.unique(
            np.frombuffer(
                b"".join(data for k, data in of_block["dropped"] if k == kind), "<u4"
            )
        )
        for kind in (EXACT, NEAR)
    }
    gone[NEAR] = np.setdiff1d(gone[NEAR], gone[EXACT])
    key = digest(
        os.path.basename(documents),
        job.tokenizer_digest,
        job.shards,
        [gone[kind].tolist() for kind in (EXACT, NEAR)],
    )
    folder = job.path(TOKENS, key)
    if not os.path.isdir(folder):
        with whole_folder(folder) as part:
            _write_tokens(job, documents, gone, part)
    return number, key


def _write_tokens(job, documents, gone, part):
    digests = np.load(os.path.join(documents, "digests.npy"))
    ends = np.load(os.path.join(documents, "ends.npy"))
    stay = np.ones(len(digests), bool)
    for copies in gone.values():
        stay[copies] = False
    stay = np.flatnonzero(stay)
    texts = np.memmap(os.path.join(documents, "texts"), mode="r") if ends[-1] else b""
    ids, sentences, rows = tokenize_documents(
        job.tokenizer(),
        (bytes(texts[ends[k] : ends[k + 1]]) for k in stay),
        ids_dtype(job.vocabulary_size),
    )
    table = np.empty(len(stay), DOCUMENT)
    table["sentences"], table["tokens"] = rows.T
    table["high"], table["low"] = digests[stay].T
    table["shard"] = table["high"] % np.uint64(job.shards)
    order = np.lexsort((table["low"], table["high"], table["shard"]))
    save_array(os.path.join(part, "ids.npy"), _reordered(ids, table["tokens"], order))
    save_array(
        os.path.join(part, "sentences.npy"),
        _reordered(sentences, table["sentences"], order),
    )
    full = table["tokens"][order] > 0
    save_array(os.path.join(part, "table.npy"), table[order][full])
    counts = {
        "exact_duplicates": len(gone[EXACT]),
        "near_duplicates": len(gone[NEAR]),
        "empty": int((~full).sum()),
    }
    write_json(os.path.join(part, "report.json"), {"dropped": counts})


def _reordered(values, sizes, order):
    """Put runs of values in another order.

    For example, values `[1, 2, 3]`, sizes `[2, 1]` and order `[1, 0]` give `[3, 1, 2]`.
    """
    ends = np.cumsum(sizes)
    starts = ends - sizes
    runs = [values[starts[k] : ends[k]] for k in order]
    return np.concatenate([values[:0], *runs])


def write_plan(job: Job, joined: tuple[int, Iterable[tuple[int, str]]]) -> list[int]:
    """Write the list of files that shards are made of; give the shards' numbers."""
    _, keys = joined
    ordered = [key for _, key in sorted(keys)]
    plan = {"key": digest(ordered, job.shards), "tokens": ordered}
    write_json(job.path(PLAN), plan)
    os.makedirs(job.path(f"shards-{plan['key']}"), exist_ok=True)
    os.makedirs(job.path(f"reports-{plan['key']}"), exist_ok=True)
    return [*range(job.shards)]


def write_shard_of(job: Job, number: int) -> int:
    """Gather the documents of a shard, in the order of their digests."""
    plan = read_json(job.path(PLAN))
    report = job.path(f"reports-{plan['key']}", f"{number:05}.json")
    folder = job.path(f"shards-{plan['key']}")
    if os.path.exists(report):
        shard = Shard(**read_json(report))
        if all(
            os.path.exists(os.path.join(folder, x))
            for x in (shard.file, shard.lengths_file)
        ):
            return number
    empty = (DOCUMENT, ids_dtype(job.vocabulary_size), np.uint32)
    found = [tuple(np.zeros(0, dtype) for dtype in empty)]
    found += [_of_shard(job.path(TOKENS, key), number) for key in plan["tokens"]]
    table, ids, sentences = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort((table["low"], table["high"]))
    ends = np.cumsum(table["tokens"])
    last = np.cumsum(table["sentences"])
    starts, first = ends - table["tokens"], last - table["sentences"]
    shard = write_shard(
        folder,
        number,
        job.shards,
        ((ids[starts[k] : ends[k]], sentences[first[k] : last[k]]) for k in order),
    )
    write_json(report, shard._asdict())
    return number


def _of_shard(folder, shard):
    """Select the documents of a shard from a block, with ids and sentences."""
    table = np.load(os.path.join(folder, "table.npy"))
    first, last = np.searchsorted(table["shard"], [shard, shard + 1])
    arrays = [table[first:last]]
    for name, column in (("ids", "tokens"), ("sentences", "sentences")):
        array = np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r")
        ends = np.r_[0, np.cumsum(table[column])]
        arrays.append(np.array(array[ends[first] : ends[last]]))
    return tuple(arrays)


# Facts of a document: its shard, its numbers of sentences and tokens, its digest.
DOCUMENT = np.dtype(
    [
        ("shard", "u4"),
        ("sentences", "i8"),
        ("tokens", "i8"),
        ("high", "u8"),
        ("low", "u8"),
    ]
)
_BATCH_BYTES = 1 << 20


def tokenize_documents(
    tokenizer: Tokenizer, texts: Iterable[bytes], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenize documents; see `tokenize_sentences`.

    Args:
        tokenizer: a tokenizer layer.
        texts: texts of documents, in UTF-8.
        dtype: dtype of ids.

    Returns:
        A tuple of the ids of all, the length of each sentence, uint32, and an int64
        array of shape `(documents, 2)`: how many sentences and tokens each has.
    """
    run = _graph(tokenizer, dtype.name)
    ids, lengths, documents = [], [], []
    count = 0
    for batch, numbers in _batches(texts):
        batch_ids, batch_lengths, piece = (x.numpy() for x in run(tf.constant(batch)))
        ids.append(batch_ids)
        lengths.append(batch_lengths)
        documents.append(np.array(numbers)[piece])
        count = numbers[-1] + 1
    all_lengths = np.concatenate([np.zeros(0, np.uint32), *lengths])
    document = np.concatenate([np.zeros(0, np.int64), *documents])
    sentences = np.bincount(document, minlength=count)
    tokens = np.bincount(document, weights=all_lengths, minlength=count)
    return (
        np.concatenate([np.zeros(0, dtype), *ids]),
        all_lengths,
        np.stack([sentences, tokens.astype(np.int64)], 1),
    )


@functools.lru_cache(maxsize=1)
def _graph(tokenizer: Any, dtype: str) -> Any:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def run(texts):
        tokens, document = sentences_of(tokenizer, texts)
        lengths = tf.cast(tokens.row_lengths(), tf.uint32)
        return tf.cast(tokens.flat_values, dtype), lengths, document

    return run


def _batches(texts):
    """Batch pieces of documents, with the number of each piece's document."""
    batch: list[bytes] = []
    numbers: list[int] = []
    size = 0
    for number, text in enumerate(texts):
        for piece in _pieces(text):
            if batch and size + len(piece) > _BATCH_BYTES:
                yield batch, numbers
                batch, numbers, size = [], [], 0
            batch.append(piece)
            numbers.append(number)
            size += len(piece)
    if batch:
        yield batch, numbers


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut a long document into pieces that end at the ends of lines."""
    start = 0
    while len(text) - start > _BATCH_BYTES:
        end = text.find(b"\n", start + _BATCH_BYTES // 2)
        if end < 0:
            break
        yield _mark(start) + text[start:end]
        start = end + 1
    yield _mark(start) + text[start:]


def _mark(start):
    return CONTINUES.encode() if start else b""
