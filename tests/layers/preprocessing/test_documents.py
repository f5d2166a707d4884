import pytest
import tensorflow as tf

from keras_bertfam.layers.preprocessing import documents as module
from keras_bertfam.layers.preprocessing.documents import read_documents, split_sentences


def read(*args, **kwargs):
    return [d.numpy().decode() for d in read_documents(*args, **kwargs)]


@pytest.mark.parametrize("at_once", [1, 2, 2048])
def test_files(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(module, "LINES_AT_ONCE", at_once)
    (tmp_path / "b.txt").write_bytes(b"last\n")
    (tmp_path / "a.txt").write_bytes(
        b"\n\none\r\ntwo\r\n\r\n \n\nbad \xff\nx\n\nno end of line"
    )
    (tmp_path / "c.txt").write_bytes(b"")
    expected = ["one\ntwo", "bad \ufffd\nx", "no end of line", "last"]
    assert read(str(tmp_path / "*.txt")) == expected


def test_long_documents_are_cut_at_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LINES_AT_ONCE", 4)
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"line {i:04}" for i in range(100)))
    pieces = read([path], max_bytes=200)
    assert len(pieces) > 3 and max(map(len, pieces)) < 300
    assert "\n".join(pieces) == path.read_text()


def test_dataset_and_errors(tmp_path):
    strings = tf.data.Dataset.from_tensor_slices([b"a", b"\xff"])
    assert read(strings) == ["a", "\ufffd"]
    with pytest.raises(ValueError, match="scalar strings.*int64"):
        read_documents(tf.data.Dataset.range(3))
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_documents(str(tmp_path / "nothing*.txt"))


def test_sentences():
    text = ["One here. Two here!\nThree", "", "  "]
    out = split_sentences(tf.constant(text)).to_list()
    assert [[s.strip() for s in d] for d in out] == [
        [b"One here.", b"Two here!", b"Three"], [], [],
    ]  # fmt: skip
    lines = split_sentences(tf.constant(text), break_lines=False).to_list()
    assert lines == [[b"One here. Two here!", b"Three"], [], []]
