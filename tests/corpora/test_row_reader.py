import dataclasses
import itertools
import json
import os
import re

import numpy as np
import pytest

from keras_bertfam.corpora.batch_source import BatchSource
from keras_bertfam.corpora.manifest import Manifest, ids_dtype
from keras_bertfam.corpora.row_kinds import RowKind, Sharing
from keras_bertfam.corpora.row_reader import RowReader
from keras_bertfam.corpora.shards import write_shard

SEPARATOR, PAD = 1, 0


def make(folder, documents, shards=2, vocabulary_size=70_000):
    """Documents are lists of lists of ids."""
    dtype = ids_dtype(vocabulary_size)
    os.makedirs(folder, exist_ok=True)

    def encoded(part):
        for document in part:
            lengths = np.array([len(sentence) for sentence in document])
            yield np.concatenate(document).astype(dtype), lengths

    written = [
        write_shard(folder, number, shards, encoded(documents[number::shards]))
        for number in range(shards)
    ]
    tokenizer = {"digest": "", "class_name": "A", "vocabulary_size": vocabulary_size}
    Manifest(tokenizer, str(dtype), written).write(folder)
    return str(folder)


def random_documents(count=30, longest=3000, vocabulary_size=70_000, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [
            rng.integers(2, vocabulary_size, rng.choice([1, 3, 20, 50, longest]))
            for _ in range(rng.integers(1, 60))
        ]
        for _ in range(count)
    ]


def expected_rows(kind, documents):
    """The rows of a shard, token by token: ids and numbers of documents."""
    units = []
    for number, document in enumerate(documents):
        whole = [[(int(x), number) for x in sentence] for sentence in document]
        for x in whole:
            cuts = range(0, len(x), kind.length)
            units += [x[i : i + kind.length] for i in cuts]
        last = number == len(documents) - 1 and kind.kind == "full"
        if kind.separator is not None and not last:
            units.append([(SEPARATOR, number)])
    if kind.kind in ("stream", "windows"):
        flat = [*itertools.chain(*units)]
        step = kind.advance or kind.length
        rows = [flat[i : i + kind.length] for i in range(0, len(flat), step)]
        if kind.kind == "windows":
            rows = [row for row in rows if len(row) == kind.length]
        return rows
    rows = []
    for unit in units:
        other = rows and kind.kind == "doc" and rows[-1][0][1] != unit[0][1]
        if not rows or other or len(rows[-1]) + len(unit) > kind.length:
            rows.append([])
        rows[-1] = rows[-1] + unit
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary_size", [300, 70_000])
@pytest.mark.parametrize(
    "kind",
    [
        RowKind("full", 126, SEPARATOR),
        RowKind("full", 126),
        RowKind("doc", 200),
        RowKind("stream", 129, SEPARATOR),
        RowKind("stream", 64),
        RowKind("windows", 125, SEPARATOR, advance=64),
    ],
    ids=lambda kind: kind.name if isinstance(kind, RowKind) else None,
)
def test_rows_are_those_of_packing_one_after_the_other(kind, vocabulary_size, tmp_path):
    documents = random_documents(vocabulary_size=vocabulary_size)
    folder = make(tmp_path, documents, vocabulary_size=vocabulary_size)
    reader = RowReader(folder, kind, PAD)
    expected = sum((expected_rows(kind, documents[n::2]) for n in range(2)), [])
    assert reader.index.count == len(expected) > 100
    order = np.random.default_rng(1).permutation(len(expected))
    found = reader.read(order)
    assert found["lengths"].tolist() == [len(expected[n]) for n in order]
    for row, number in enumerate(order):
        ids, owners = zip(*expected[number], strict=True)
        size = len(ids)
        assert found["token_ids"][row, :size].tolist() == [*ids]
        assert (found["token_ids"][row, size:] == PAD).all()
        numbers = [owner - owners[0] + 1 for owner in owners]
        assert found["sequence_ids"][row, :size].tolist() == numbers
        assert (found["sequence_ids"][row, size:] == 0).all()


def segments(kind, tmp_path, **settings):
    documents = random_documents(longest=100, **settings)
    reader = RowReader(make(tmp_path, documents), kind, PAD)
    return documents, reader, reader.read(np.arange(reader.index.count))


def sentences_of(found, row):
    size = found["lengths"][row]
    ids, marks = found["token_ids"][row, :size], found["marks"][row, :size]
    starts = np.flatnonzero(marks % 2)
    assert starts[0] == 0
    ends = np.flatnonzero(marks // 2) + 1
    assert [*starts[1:], size] == ends.tolist()
    return [tuple(part) for part in np.split(ids, starts[1:])]


@pytest.mark.parametrize(
    "kind",
    [
        RowKind("segments", 120, short_rate=0.3),
        RowKind("segments", 120, short_rate=0.3, shortest=5, short_rows=True),
        RowKind("sentences", 100),
    ],
    ids=lambda kind: kind.name,
)
def test_segments_are_the_sentences_of_documents_in_order(kind, tmp_path):
    documents, reader, found = segments(kind, tmp_path)
    given = [tuple(s) for n in range(2) for doc in documents[n::2] for s in doc]
    rows = [sentences_of(found, row) for row in range(reader.index.count)]
    assert sum(rows, []) == given
    targets = found["targets"]
    assert targets.max() == kind.length
    if kind.kind == "segments":
        assert targets.min() < kind.length
        reached = [sum(map(len, row)) for row in rows]
        without_last = [sum(map(len, row[:-1])) for row in rows]
        assert all(np.array(without_last) < targets)
        assert np.mean(np.array(reached) < targets) < 0.5
    else:
        assert max(map(len, rows)) == 2


def test_partners_are_of_other_documents_uniformly(tmp_path):
    kind = RowKind("segments", 120)
    documents, reader, found = segments(kind, tmp_path, count=6)
    owner = {int(doc[0][0]): n for n, doc in enumerate(documents)}
    owners, current = [], -1
    for row in range(reader.index.count):
        current = owner.get(int(found["token_ids"][row, 0]), current)
        owners.append(current)
    owners = np.array(owners)
    numbers = np.arange(reader.index.count)
    drawn = [reader.others(numbers, 0, epoch) for epoch in range(300)]
    assert all((owners[others] != owners).all() for others in drawn)
    of_first = np.concatenate([others[owners == owners[0]] for others in drawn])
    counts = np.bincount(of_first, minlength=len(numbers))[owners != owners[0]]
    expected = len(of_first) / len(counts)
    freedom = len(counts) - 1
    statistic = np.sum((counts - expected) ** 2) / expected
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom)


def test_one_document_has_no_partners(tmp_path):
    reader = RowReader(make(tmp_path, random_documents(1)), RowKind("segments", 60))
    with pytest.raises(ValueError, match="two documents at least"):
        reader.others(np.arange(2), 0)


def test_the_index_is_made_once_and_anew_for_another_corpus(tmp_path):
    kind = RowKind("full", 126, SEPARATOR)
    folder = make(tmp_path / "a", random_documents())
    count = RowReader(folder, kind).index.count
    path = f"{folder}/rows/{kind.name}.json"
    before = os.stat(path).st_mtime_ns
    assert RowReader(folder, kind).index.count == count
    assert os.stat(path).st_mtime_ns == before
    assert RowReader(folder, kind, cache=tmp_path / "b").index.count == count
    assert any((tmp_path / "b").glob(f"{kind.name}-*.rows"))
    other = make(tmp_path / "c", random_documents(40))
    reader = RowReader(other, kind, cache=tmp_path / "b")
    assert reader.index.count > count
    os.truncate(path.replace("json", "rows"), 160)
    assert RowReader(folder, kind).index.count == count


@pytest.mark.parametrize(
    "kind",
    [
        RowKind("full", 64, separator=SEPARATOR),
        RowKind("pieces", 64, sharing=Sharing(64, (1, *range(1, 65)), most=8)),
    ],
)
def test_a_damaged_index_is_made_anew(kind, tmp_path):
    folder = make(tmp_path / "corpus", random_documents(8, 100))
    source = BatchSource(folder, kind, 16)
    batches = [source.read(0, k) for k in range(source.batches)]
    paths = sorted((tmp_path / "corpus" / "rows").iterdir())
    assert len(paths) == (3 if kind.sharing is None else 5)
    draw = np.random.default_rng(0)
    for path in paths:
        content = path.read_bytes()
        bits = draw.integers(8 * len(content), size=4).tolist()
        damaged = [
            bytes(
                byte ^ (1 << bit % 8) if k == bit // 8 else byte
                for k, byte in enumerate(content)
            )
            for bit in bits
        ]
        for other in (bytes(len(content)), content[: len(content) // 2], *damaged):
            path.write_bytes(other)
            again = BatchSource(folder, kind, 16)
            for number, batch in enumerate(batches):
                for name, array in again.read(0, number).items():
                    np.testing.assert_array_equal(array, batch[name])
            assert path.read_bytes() == content


def test_a_damaged_shard_is_named_with_its_record(tmp_path):
    folder = make(tmp_path, random_documents())
    kind = RowKind("stream", 100)
    reader = RowReader(folder, kind)
    [name, *_] = sorted(n for n in os.listdir(folder) if n.startswith("tokens"))
    with open(tmp_path / name, "r+b") as file:
        content = bytearray(file.read())
        middle = len(content) // 2
        content[middle] ^= 255
        file.seek(0)
        file.write(content)
    with pytest.raises(ValueError, match=rf"{re.escape(name)} is damaged, record \d+"):
        reader.read(np.arange(reader.index.count))
    os.remove(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="not there"):
        RowReader(folder, kind).read(np.arange(5))


def test_an_index_that_can_not_be_written_says_what_to_do(tmp_path, monkeypatch):
    folder = make(tmp_path, random_documents(2))

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(os, "makedirs", refuse)
    with pytest.raises(PermissionError, match="`cache` of `read_tokens`"):
        RowReader(folder, RowKind("full", 126))


def test_a_source_goes_to_another_process_and_back(tmp_path):
    kind = RowKind("full", 126, SEPARATOR)
    source = BatchSource(make(tmp_path, random_documents()), kind, 8, seed=3)
    again = BatchSource.from_json(source.to_json())
    assert again == source and json.loads(source.to_json())["seed"] == 3
    for name, x in source.read(2, 5).items():
        np.testing.assert_array_equal(again.read(2, 5)[name], x)


def runs_of(rng, total, most=8):
    """How many steps each run does until it is killed, and by how many workers."""
    while total > 0:
        steps = min(int(rng.integers(1, most)), total)
        yield steps, int(rng.choice([1, 2, 4]))
        total -= steps


@pytest.mark.slow
def test_a_thousand_kills_lose_nothing_and_repeat_nothing(tmp_path):
    source = BatchSource(
        make(tmp_path, random_documents(120, 50)),
        RowKind("doc", 40),
        batch_size=12,
        seed=5,
        slices=4,
    )
    alone = dataclasses.replace(source, slices=1)
    rng = np.random.default_rng(0)
    batches, count = source.batches, source.reader.index.count
    done, kills = 0, 0
    seen = {}
    while kills < 1000:
        for steps, workers in runs_of(rng, batches - done % batches):
            kills += 1
            for step in range(done, done + steps):
                epoch, batch = divmod(step, batches)
                share = source.slices // workers
                parts = [
                    source.rows(epoch, batch, part)
                    for worker in range(workers)
                    for part in range(worker * share, (worker + 1) * share)
                ]
                seen.setdefault(epoch, []).append(np.concatenate(parts))
            done += steps
    assert len(seen) > 10
    orders = []
    for epoch, rows in seen.items():
        rows = np.concatenate(rows)
        assert len(np.unique(rows)) == len(rows) == batches * 12 > count - 12
        straight = [alone.rows(epoch, k) for k in range(batches)]
        np.testing.assert_array_equal(rows, np.concatenate(straight))
        orders.append(rows)
    assert np.mean(orders[0] == orders[1]) < 0.05
    whole = alone.read(3, 4)["token_ids"]
    parts = [source.read(3, 4, part)["token_ids"] for part in range(4)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("both", [False, True])
def test_windows_go_on_where_the_batch_before_was(both, tmp_path):
    documents = random_documents(20, 200)
    kind = RowKind("windows", 20, SEPARATOR, advance=10)
    folder = make(tmp_path, documents)
    source = BatchSource(folder, kind, 8, both_directions=both)
    batches = [source.read(0, k) for k in range(source.batches)]
    seen = np.concatenate([source.rows(0, k) for k in range(source.batches)])
    forward = seen.reshape(source.batches, -1)[:, : 4 if both else 8].ravel()
    count = source.reader.index.count
    assert len(np.unique(forward)) == len(forward) > 0.9 * count
    going_on = 0
    for before, after in zip(batches, batches[1:], strict=False):
        for row in np.flatnonzero(after["continues"]):
            going_on += 1
            np.testing.assert_array_equal(
                before["token_ids"][row, 10:], after["token_ids"][row, :10]
            )
    assert going_on > 0.8 * len(batches) * 8
    assert not batches[0]["continues"].any()
    halves = dataclasses.replace(source, slices=2)
    parts = [halves.rows(0, 3, part) for part in range(2)]
    assert sorted(np.concatenate(parts)) == sorted(source.rows(0, 3))
    if not both:
        return
    rows = source.rows(0, 0)
    plain = BatchSource(folder, kind, 8).reader.read(rows)
    first = batches[0]
    assert first["reversed_rows"].tolist() == [False] * 4 + [True] * 4
    np.testing.assert_array_equal(first["token_ids"][:4], plain["token_ids"][:4])
    np.testing.assert_array_equal(first["token_ids"][4:], plain["token_ids"][4:, ::-1])
    ends = plain["marks"][4:, ::-1] // 2 > 0
    np.testing.assert_array_equal(first["starts_sentence"][4:], ends)


def test_corpora_share_a_folder_of_indexes(tmp_path):
    kind, cache = RowKind("full", 30, SEPARATOR), tmp_path / "cache"
    folders = [make(tmp_path / str(k), random_documents(9 + k, 60)) for k in (0, 1)]
    expected = [RowReader(folder, kind).index.count for folder in folders]
    for _ in range(2):
        found = [RowReader(each, kind, cache=cache).index.count for each in folders]
        assert found == expected
        files = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(files) == 6
    for folder in folders:
        RowReader(folder, kind, cache=cache)
    assert files == {path: path.stat().st_mtime_ns for path in cache.iterdir()}
