import gzip
import itertools
import json
import os
import random
import re

import pytest
import tensorflow as tf

from keras_bertfam.corpora.preparing import sources
from keras_bertfam.corpora.preparing.sources import find_sources
from keras_bertfam.layers import read_documents
from keras_bertfam.layers.data.value_ranges import plain_error
from keras_bertfam.text_files import reading as module
from keras_bertfam.text_files.reading import WHITE_SPACE
from keras_bertfam.text_files.sources import Part, Reading, find_files
from keras_bertfam.tokenizers.training_texts import read_texts
from tests.written_files import write

DOCUMENTS = ["Ein Satz.\nNoch einer, naïve.", "größer", "© a\nç"]
TEXT = "\n\n".join(DOCUMENTS) + "\n"


def of_dataset(path, **settings):
    found = read_documents(str(path), **settings).as_numpy_iterator()
    return [text.decode() for text in found]


def of_preparation(path, **settings):
    reading = Reading(**settings)
    return [
        text
        for source in find_sources(path, reading)
        for text in sources.read_documents(Part(source), reading)
    ]


def parquet(texts):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"text": texts}), sink)
    return sink.getvalue().to_pybytes()


def zst(data):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


def json_lines(encoding="utf-8"):
    lines = (json.dumps({"text": x}, ensure_ascii=False) for x in DOCUMENTS)
    return "\r\n".join(lines).encode(encoding)


FORMATS = {
    "a.txt": lambda: TEXT.encode(),
    "mark.txt": lambda: TEXT.encode("utf-8-sig"),
    "windows.txt": lambda: TEXT.replace("\n", "\r\n").encode(),
    "old.txt": lambda: TEXT.replace("\n", "\r").encode(),
    "latin.txt": lambda: TEXT.encode("latin-1"),
    "wide.txt": lambda: TEXT.replace("\n", "\r\n").encode("utf-16"),
    "a.txt.gz": lambda: gzip.compress(TEXT.encode()),
    "latin.gz": lambda: gzip.compress(TEXT.encode("latin-1")),
    "a.zst": lambda: zst(TEXT.encode()),
    "a.jsonl": json_lines,
    "wide.json": lambda: json_lines("utf-16"),
    "a.JSONL": json_lines,
    "a.Txt.GZ": lambda: gzip.compress(TEXT.encode()),
    "A.PARQUET": lambda: parquet(DOCUMENTS),
    "a.ndjson.gz": lambda: gzip.compress(json_lines()),
    "latin.jsonl.zst": lambda: zst(json_lines("latin-1")),
    "a.parquet": lambda: parquet(DOCUMENTS),
}
ENCODINGS = {"latin": "latin-1", "wide": "utf-16"}


@pytest.mark.parametrize("name", FORMATS)
def test_each_reader_reads_each_format(name, tmp_path):
    write(tmp_path, {name: FORMATS[name]()})
    encoding = ENCODINGS.get(name.partition(".")[0])
    settings = {"encoding": encoding} if encoding else {}
    for read in (of_dataset, of_preparation):
        assert read(tmp_path / name, **settings) == DOCUMENTS
    if not encoding:
        lines = [x.decode() for x in read_texts([tmp_path / name]).as_numpy_iterator()]
        assert lines == "\n".join(DOCUMENTS).split("\n")


def test_a_file_of_several_names_is_read_once(tmp_path):
    write(tmp_path, {"a.txt": b"one", "b.txt": b"two"})
    (tmp_path / "c.txt").symlink_to("a.txt")
    found = find_files([tmp_path / "*", f"{tmp_path}/./a.txt"], "files")
    # By the first of its names.
    assert [os.path.relpath(each.name, tmp_path) for each in found] == [
        "a.txt",
        "b.txt",
    ]


@pytest.mark.parametrize("blank", ["", *WHITE_SPACE, "\u3000 \xa0"])
def test_lines_of_white_space_stand_between_documents(tmp_path, blank):
    text = f"\u3000 one\xa0\ntwo\n{blank}\nthree\n"
    write(tmp_path, {"a.txt": text})
    for read in (of_dataset, of_preparation):
        assert read(tmp_path / "a.txt") == ["one\ntwo", "three"]


def test_white_space_is_that_of_unicode():
    python = {chr(code) for code in range(0x110000) if chr(code).isspace()}
    assert python - {*WHITE_SPACE} == {*"\x1c\x1d\x1e\x1f"}
    assert {*WHITE_SPACE} <= python


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_where_what_is_read_at_once_ends_changes_nothing(tmp_path, monkeypatch, size):
    monkeypatch.setattr(module, "_CHUNK", size)
    generator = random.Random(size)
    alphabet = ["a", "é", "\u3000", "😀", "\n", "\r", "\r\n", "\r\n\r\n", "\n\n", " "]
    text = "".join(generator.choices(alphabet, k=500))
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    groups = itertools.groupby((x.strip() for x in lines), bool)
    expected = ["\n".join(group) for full, group in groups if full]
    for encoding in ("utf-8", "utf-16", "gb18030"):
        (tmp_path / "a.txt").write_bytes(text.encode(encoding))
        [source] = find_files(tmp_path / "a.txt", "files")
        reading = Reading(encoding=encoding)
        assert [*module.read_documents(Part(source), reading)] == expected


FAR = "a line\r\n" * 20_000
# Names, contents, settings, what is wrong, and where.
BROKEN = {
    "far.txt": (FAR.encode() + b"na\xefve", {}, "text in UTF-8", 160_002),
    "far.gz": (gzip.compress(FAR.encode() + b"\xff"), {}, "text in UTF-8", 160_000),
    "cut.txt": (FAR.encode() + "é".encode()[:1], {}, "text in UTF-8", 160_000),
    "ascii.txt": (FAR.encode() + "é".encode(), {"encoding": "ascii"}, "ASCII", 160_000),
    "wide.txt": (FAR.encode("utf-16") + b"a", {"encoding": "utf-16"}, "16", 320_002),
    "far.jsonl": (
        b'{"text": "a"}\r\n' * 9 + b"{",
        {},
        "a JSON object in each line",
        135,
    ),
    "wide.jsonl": (
        '{"text": "a"}\n{'.encode("utf-16"),
        {"encoding": "utf-16"},
        "JSON",
        30,
    ),
    "long.txt": (
        FAR.encode() + b"x" * 99 + b"\nab",
        {"max_line_length": 98},
        "at most 98 characters, `max_line_length`",
        160_000,
    ),
    "open.txt": (b"a\n" + b"x" * 99, {"max_line_length": 98}, "`max_line_length`", 2),
    "long.jsonl": (
        b'{"text": "a"}\n{"text": "abcdef"}\n',
        {"max_line_length": 14},
        "`max_line_length`",
        14,
    ),
    "bomb.gz": (gzip.compress(b" " * 10**7), {}, "lines of at most 4194304", 0),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_told_by_file_and_byte(name, tmp_path):
    content, settings, problem, place = BROKEN[name]
    write(tmp_path, {name: content})
    for read in (of_dataset, of_preparation):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as raised:
            read(tmp_path / name, **settings)
        # What `fit()` raises of it.
        message = str(plain_error(raised.value) or raised.value)
        start = re.escape(f"{tmp_path / name} must")
        assert re.fullmatch(rf"{start} .*{problem}.*byte {place}\b.*\.", message)


def test_a_long_line_of_a_value(tmp_path):
    write(tmp_path, {"a.parquet": parquet(["ab\ncd", "abc"])})
    for read in (of_dataset, of_preparation):
        assert read(tmp_path / "a.parquet", max_line_length=3) == ["ab\ncd", "abc"]
        with pytest.raises(Exception, match="`max_line_length`.*in the text of row 1"):
            read(tmp_path / "a.parquet", max_line_length=2)


HEADS = {
    "a.txt": (gzip.compress(b"text"), "begins as gzip without"),
    "b.txt": (b"\x28\xb5\x2f\xfdxx", "begins as Zstandard without"),
    "c.txt": ("text".encode("utf-16"), "text in UTF-8, `encoding`.*byte 0"),
    "d.txt": (b"na\xefve", "text in UTF-8, `encoding`.*byte 2: b'.xefve'"),
    "e.gz": (b"text", "a whole compressed file.*Not a gzipped file"),
    "f.parquet": (b"text" * 9, "a Parquet file"),
}


@pytest.mark.parametrize("name", HEADS)
def test_what_begins_as_something_else_is_refused_at_once(name, tmp_path):
    content, problem = HEADS[name]
    write(tmp_path, {name: content})
    path = str(tmp_path / name)
    for make in (read_documents, lambda x: read_texts([x]), of_preparation):
        with pytest.raises(ValueError, match=f"{name} must .*{problem}"):
            make(path)


def test_settings_that_there_are_not(tmp_path):
    write(tmp_path, {"a.txt": "a"})
    for read in (of_dataset, of_preparation):
        for encoding in ("latin-99", "rot13"):
            with pytest.raises(ValueError, match="`encoding` must be a text"):
                read(tmp_path / "a.txt", encoding=encoding)
        with pytest.raises(ValueError, match="`max_line_length` must be at least 1"):
            read(tmp_path / "a.txt", max_line_length=0)


def test_a_dataset_outlives_its_name_and_is_read_again(tmp_path):
    write(tmp_path, {"a.txt": "one\n\ntwo", "b.txt": "three"})
    documents = read_documents(str(tmp_path / "*.txt")).repeat(2)
    assert [*documents.as_numpy_iterator()] == [b"one", b"two", b"three"] * 2
    patterns = [str(tmp_path / "*.txt"), str(tmp_path / "a*")]
    assert len([*read_documents(patterns)]) == 3


@pytest.mark.parametrize(
    ("content", "feature", "message"),
    [
        ('{"text": "a"}\n', "body", "objects with the field 'body'"),
        ('[{"text": "a"}]\n', "text", "objects with the field 'text'"),
        ('{"text": 3}\n', "text", "texts in 'text'.*3"),
    ],
)
def test_a_wrong_json_file_is_refused_at_once(content, feature, message, tmp_path):
    (tmp_path / "d.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_documents(str(tmp_path / "d.jsonl"), feature=feature)
