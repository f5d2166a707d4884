import gzip
import json
import random

import pytest

from keras_bertfam.corpora.preparing import sources
from keras_bertfam.corpora.preparing.sources import (
    find_sources,
    make_blocks,
    read_documents,
)
from keras_bertfam.text_files.sources import Part, Reading
from tests.written_files import write

READING = Reading()


def documents(count=300):
    generator = random.Random(0)

    def line():
        words = generator.choices(["ab", "c", "é", "。x"], k=generator.randint(1, 9))
        return " ".join(words)

    return [
        "\n".join(line() for _ in range(generator.randint(1, 4))) for _ in range(count)
    ]


TEXT = ("\r\n\u3000\r\n\t\r").join(documents()).encode()
LINES = "\n".join(json.dumps({"text": x, "n": 1}) for x in documents()).encode()


def read(name, size=None, reading=READING):
    """All documents of a source, and of how many parts they come."""
    [source] = find_sources(name, reading)
    parts = [Part(source)] if size is None else [*sources._parts(source, size, reading)]
    return [x for part in parts for x in read_documents(part, reading)], len(parts)


@pytest.mark.parametrize("size", [1, 7, 50, 1000, 10**6])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_parts_hold_each_document_once(name, size, tmp_path):
    write(tmp_path, {name: TEXT if name == "a.txt" else LINES})
    found, parts = read(tmp_path / name, size)
    assert found == documents()
    assert (parts > 1) == (size < 10**6)


def test_compressed_files(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    zipped = zstandard.ZstdCompressor().compress
    files = {
        "a.txt.gz": gzip.compress(TEXT),
        "b.jsonl.gz": gzip.compress(LINES[:900]) + gzip.compress(LINES[900:]),
        "c.txt.zst": zipped(TEXT[:999]) + zipped(TEXT[999:]),
        "d.jsonl.zst": zipped(LINES),
    }
    write(tmp_path, files)
    for name, data in files.items():
        assert read(tmp_path / name, 1) == (documents(), 1)
        write(tmp_path, {name: data[:-9]})
        with pytest.raises(ValueError, match=f"{name} must be a whole compressed"):
            read(tmp_path / name)
        write(tmp_path, {name: b"abc" + data})
        with pytest.raises(ValueError, match=f"{name} must be a whole compressed"):
            read(tmp_path / name)


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    table = pa.table({"body": [*documents(), None, ""], "n": range(302)})
    parquet.write_table(table, path, row_group_size=50)
    reading = Reading(feature="body")
    assert read(path, 1, reading) == (documents(), 7)
    assert read(path, 10**9, reading)[1] == 1
    with pytest.raises(ValueError, match=r"`feature` must be one of \['body', 'n'\]"):
        read(path, 1)
    with pytest.raises(ValueError, match="must have texts in 'n', the `feature`"):
        read(path, 1, Reading(feature="n"))
    data = bytearray(path.read_bytes())
    data[100] ^= 255
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a.parquet|row group 0"):
        read(path, 1, reading)
    path.write_bytes(data[:500])
    with pytest.raises(ValueError, match="a.parquet must be a Parquet file"):
        read(path, 1, reading)


def test_lines_are_cleaned(tmp_path):
    text = "\ufeff a \r\nb\x0b\r\n \r\n\nc\u2028d"
    write(tmp_path, {"a.txt": text, "a.jsonl": json.dumps({"text": text})})
    assert read(tmp_path / "a.txt")[0] == ["a\nb", "c\u2028d"]
    reading = Reading(one_per_file=True)
    assert read(tmp_path / "a.txt", 1, reading) == (["a\nb\nc\u2028d"], 1)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        (
            "a.txt",
            b"\xef\xbb\xbfabc\n  d\xe9f\n",
            r"UTF-8, `encoding`. Received, at byte 10: b'\\xe9",
        ),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text": "\xe9"}',
            "UTF-8, `encoding`. Received, at byte 24",
        ),
        ("a.jsonl", b'{"text": "\\ud800"}', "UTF-8. Received, in the text of the line"),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text": "',
            "a JSON object in each line.* byte 14",
        ),
        ("a.jsonl", b'{"text": "a"}\n{"body": 1}', "with the field 'text'.* byte 14"),
        ("a.jsonl", b'{"text": "a"}\n{"text": 1}', "texts in 'text'.* byte 14: 1"),
        ("a.jsonl", b"[1]", "with the field 'text'"),
    ],
)
def test_broken_files(name, content, match, tmp_path):
    write(tmp_path, {name: content})
    with pytest.raises(ValueError, match=f"{tmp_path / name} must .*{match}"):
        read(tmp_path / name)


def test_blocks_are_of_about_equal_size(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_LEAST", 1000)
    write(tmp_path, {"big.txt": TEXT} | {f"{k}.txt": TEXT[:300] for k in range(9)})
    found = find_sources(
        [tmp_path / "?.txt", str(tmp_path / "b*"), str(tmp_path) + "/1.txt"], READING
    )
    assert len(found) == 10
    blocks = make_blocks(found, READING)
    sizes = [
        sum(p.source.bytes if p.end < 0 else p.end - p.start for p in block)
        for block in blocks
    ]
    assert sum(sizes) == len(TEXT) + 9 * 300
    assert max(sizes) < 1200
    assert len(blocks) < len(TEXT) / 1000 + 4


def test_sources_that_there_are_not(tmp_path):
    for names in (str(tmp_path / "*"), [tmp_path / "a"], []):
        with pytest.raises(
            FileNotFoundError, match="`sources` must name existing files"
        ):
            find_sources(names, READING)


def test_a_dataset_of_hugging_face(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write(tmp_path, {"data/train.jsonl": LINES})
    name = f"hf:{tmp_path / 'data'}"
    found, parts = read(name, 2000)
    assert found == documents()
    assert parts > 1
    with pytest.raises(ValueError, match=r"`feature` must be one of \['n', 'text'\]"):
        read(name, 2000, Reading(feature="body"))
