import numpy as np
import pytest

from keras_bertfam.corpora import shards
from keras_bertfam.corpora.shards import ShardReader, check_shard, read_lengths
from tests.corpora.tiny_shards import documents


@pytest.fixture(params=["array_record", "tfrecord"])
def kind(request, monkeypatch):
    if request.param == "tfrecord":
        monkeypatch.setattr(shards, "has_array_record", lambda: False)
    else:
        pytest.importorskip("array_record")
    return request.param


@pytest.fixture
def shard(kind, tmp_path):
    return shards.write_shard(tmp_path, 3, 16, documents())


def damage(path, at=None, cut=None):
    data = bytearray(path.read_bytes())
    if at is not None:
        data[at] ^= 1
    path.write_bytes(data[:cut])


def test_what_is_written_is_read(kind, shard, tmp_path):
    assert shard.file == f"tokens-00003-of-00016.{kind}"
    assert shard.lengths_file == "lengths-00003-of-00016.npz"
    reader = ShardReader(tmp_path / shard.file, "uint16")
    assert len(reader) == shard.records
    ids, lengths = zip(*reader.records(range(shard.records)), strict=True)
    expected_ids, expected_lengths = zip(*documents(), strict=True)
    np.testing.assert_array_equal(np.concatenate(ids), np.concatenate(expected_ids))
    sentences = np.concatenate(expected_lengths)
    np.testing.assert_array_equal(np.concatenate(lengths), sentences)
    assert reader.records([]) == []
    np.testing.assert_array_equal(reader.record(4)[0], ids[4])
    table = read_lengths(tmp_path, shard)
    np.testing.assert_array_equal(table["sentences"], sentences)
    np.testing.assert_array_equal(table["documents"], [1, 5, 200])
    # Sentences of one document share a record, of 1,024 tokens at most.
    np.testing.assert_array_equal(table["records"][:4], [1, 2, 1, 2])
    assert all(len(x) <= 1024 or len(n) == 1 for x, n in zip(ids, lengths, strict=True))
    check_shard(tmp_path, shard)
    assert shards.write_shard(tmp_path, 3, 16, documents()) == shard


def test_records_are_read_where_they_begin_or_by_the_library(shard, kind, tmp_path):
    """Also those with the header of a block of 64 KiB within, or of two."""
    rng = np.random.default_rng(0)
    sizes = [*rng.choice([1, 3, 60, 600], 300), 90_000, 7]
    texts = [(rng.integers(0, 30000, n).astype("uint16"), np.array([n])) for n in sizes]
    path = tmp_path / shards.write_shard(tmp_path, 0, 1, texts).file
    reader = ShardReader(path, "uint16")
    for (ids, _), (found, _) in zip(texts, reader.records(range(302)), strict=True):
        np.testing.assert_array_equal(found, ids)
    if kind == "tfrecord":
        return
    assert reader._records._reader is None
    module = pytest.importorskip("array_record.python.array_record_module")
    records = reader.data(range(302))
    writer = module.ArrayRecordWriter(str(path), "group_size:4,zstd")
    for data in records:
        writer.write(data)
    writer.close()
    other = ShardReader(path, "uint16")
    assert other._records._reader is not None
    for number in (301, 5, 300):
        np.testing.assert_array_equal(other.record(number)[0], texts[number][0])


def test_a_shard_without_documents(kind, tmp_path):
    shard = shards.write_shard(tmp_path, 0, 1, [])
    assert shard[1:5] == (0, 0, 0, 0)
    reader = ShardReader(tmp_path / shard.file, "uint32")
    assert len(reader) == 0
    assert len(read_lengths(tmp_path, shard)["sentences"]) == 0
    with pytest.raises(IndexError, match=r"must be in \[0, 0\)"):
        reader.record(0)


def test_damage_is_found_and_placed(shard, tmp_path):
    path = tmp_path / shard.file
    reader = ShardReader(path, "uint16")
    data, (ids, _) = path.read_bytes(), reader.record(5)
    at = data.index(ids.tobytes())
    damage(path, at)
    reader = ShardReader(path, "uint16")
    reader.records([0, 4, 6])
    with pytest.raises(ValueError, match=f"{path} is damaged, record 5 of 10: "):
        reader.records([4, 5, 6])
    with pytest.raises(ValueError, match="its SHA-256 is not"):
        check_shard(tmp_path, shard)
    with pytest.raises(IndexError, match=r"must be in \[0, 10\). Received: 10"):
        reader.records([10])
    for cut in (10, len(data) // 2, len(data) - 3):
        damage(path, cut=cut)
        with pytest.raises(ValueError, match=f"{path} is damaged"):
            ShardReader(path, "uint16")
    path.unlink()
    with pytest.raises(FileNotFoundError, match="is not there"):
        ShardReader(path, "uint16")


def test_damaged_lengths(shard, tmp_path):
    path = tmp_path / shard.lengths_file
    damage(path, cut=200)
    with pytest.raises(ValueError, match=f"{path} is damaged"):
        read_lengths(tmp_path, shard)
    shards.write_shard(tmp_path, 3, 16, documents())
    with pytest.raises(ValueError, match="expected .* and 7 tokens"):
        read_lengths(tmp_path, shard._replace(tokens=7))
