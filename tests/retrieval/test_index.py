import importlib.util
import json
import pathlib
import sys
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.presets import CheckpointError
from keras_bertfam.retrieval import Index, engines, scann_engine
from keras_bertfam.retrieval.engines import KINDS

pytestmark = pytest.mark.any_backend
DIM = 8
SETTINGS = {
    "exact": {},
    "ivf": {"nlist": 8, "nprobe": 3},
    "hnsw": {"m": 8},
    "scann": {"nlist": 8, "nprobe": 3},
    "inverted": {},
}
# ScaNN is no part of what tests install, as it has wheels for some systems only.
needs_scann = pytest.mark.skipif(
    importlib.util.find_spec("scann") is None, reason="scann isn't installed"
)
EACH_KIND = [
    pytest.param(kind, marks=needs_scann if kind == "scann" else ()) for kind in KINDS
]


class Encoder:
    """Texts of numbers to vectors that these seed."""

    def __init__(self, digest="a"):
        self.digest = digest

    def encode(self, texts, kind="query", batch_size=32):
        assert kind in ("query", "passage")
        texts = [text if isinstance(text, str) else text[1] for text in texts]
        if kind == "query" and any(len(text) > 20 for text in texts):
            raise ValueError("`texts` must fit into rows of 20 tokens.")
        vectors = [random(1, int(text.split()[-1]))[0] for text in texts]
        return np.stack([x / np.linalg.norm(x) for x in vectors])

    def passage_digest(self):
        return self.digest


def random(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, DIM)).astype("float32")


def texts(count, first=0):
    return [f"number {k}" for k in range(first, first + count)]


def make(kind="exact", count=500, **kwargs):
    index = Index(DIM, kind, **{**SETTINGS[kind], **kwargs})
    index.add(random(count), texts(count))
    return index


def nearest(queries, vectors, k):
    scores = queries @ vectors.T
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, ids, 1), ids


def test_exact_search_is_a_matrix_product():
    index, queries = make(), random(1500, 1)
    scores, ids = index.search(queries, 7)
    expected, numbers = nearest(queries, random(500), 7)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert (ids == numbers).mean() > 0.999  # ties by rounding aside
    assert ids.dtype == "int64" and scores.dtype == "float32"
    assert index.passages[ids[0, 0]] == f"number {ids[0, 0]}"


@pytest.mark.parametrize("kind", EACH_KIND)
def test_kinds_find_most(kind):
    index, queries = make(kind), random(200, 1)
    more = index.add(random(100, 2), texts(100, 500))  # to what is there already
    assert more.tolist() == list(range(500, 600)) and len(index) == 600
    index.search(queries, 1)
    index.add(random(100, 3), texts(100, 600))
    every = np.concatenate([random(500), random(100, 2), random(100, 3)])
    _, expected = nearest(queries, every, 10)
    _, ids = index.search(queries, 10)
    recall = np.mean([len({*a} & {*b}) for a, b in zip(ids, expected, strict=True)])
    least = {"exact": 10, "ivf": 6, "hnsw": 9, "scann": 6, "inverted": 10}
    assert recall >= least[kind]
    numbers = np.array([[3, 650], [599, 0]])
    np.testing.assert_allclose(index.vectors(numbers), every[numbers], rtol=1e-6)


@pytest.mark.parametrize("kind", ["exact", "ivf"])
@pytest.mark.parametrize(
    ("bits", "error", "least"), [(16, 1e-3, 9.5), (8, 0.03, 9), (4, 0.6, 5)]
)
def test_fewer_bits(kind, bits, error, least, tmp_path):
    settings = {} if kind == "exact" else {"nlist": 8, "nprobe": 8}
    index, vectors = Index(DIM, kind, bits=bits, **settings), random(500)
    index.add(vectors, texts(500))
    np.testing.assert_allclose(index.vectors(range(500)), vectors, atol=error)
    stored = index.vectors(range(500))
    scores, ids = index.search(random(200, 1), 10)
    expected = nearest(random(200, 1), stored, 10)
    np.testing.assert_allclose(scores, expected[0], rtol=1e-4, atol=1e-4)
    _, true = nearest(random(200, 1), vectors, 10)
    found = [len({*a} & {*b}) for a, b in zip(ids, true, strict=True)]
    assert np.mean(found) >= least
    index.save(tmp_path / "index")
    size = (tmp_path / "index" / "vectors.faiss").stat().st_size
    ids = 0 if kind == "exact" else 500 * 2 * 8  # in lists, and their places
    assert 0 < size - 500 * (DIM * bits // 8) - ids < 1000
    loaded = Index.load(tmp_path / "index")
    assert loaded.settings == index.settings and loaded.settings["bits"] == bits
    np.testing.assert_array_equal(loaded.vectors(range(500)), stored)
    loaded.add(random(1, 2), ["number 500"])
    np.testing.assert_allclose(loaded.vectors([500]), random(1, 2), atol=4 * error)
    # What the manifest says of the bits is what the file has.
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())
    other = 8 if bits == 16 else 16
    manifest["settings"]["bits"] = other
    (tmp_path / "index" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=f"{other} bits for each of 8 numbers"):
        Index.load(tmp_path / "index")


@pytest.mark.parametrize("kind", ["exact", "ivf"])
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_an_update_of_many_rounds_nothing_twice(kind, bits, monkeypatch):
    monkeypatch.setattr(engines, "_VECTORS_OF_RANGES", 60)
    settings = {"nlist": 1} if kind == "ivf" else {}
    index = Index.build(texts(60), Encoder(), kind, bits=bits, **settings)
    kept = index.vectors(range(10, 60))
    for first in (10, 9, 10):
        index.update(texts(60, first), batch_size=1)  # in two parts
    np.testing.assert_allclose(index.vectors(range(50)), kept, atol=1e-6)


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_few_vectors_are_rounded_anew_as_more_come(kind, tmp_path, monkeypatch):
    """None goes to the end of a range that was learnt of the first ones."""
    monkeypatch.setattr(engines, "_VECTORS_OF_RANGES", 100)
    vectors = random(90) * np.arange(1, 91)[:, None] / 10
    index = Index(DIM, kind, bits=8)
    for first in range(0, 90, 30):
        index.add(vectors[first : first + 30], texts(30, first))
        index.search(vectors[:2], 1)
        index.save(tmp_path / "index")
        if first:  # in memory, and read from a file
            index = Index.load(tmp_path / "index")
    step = np.ptp(vectors, axis=0).max() / 255
    np.testing.assert_allclose(index.vectors(range(90)), vectors, atol=4 * step)
    index.add(random(10, 1), texts(10, 90))
    index.add(1000 * random(1, 2), ["far"])  # what many have learnt stays
    assert np.abs(index.vectors([100])).max() < 100
    # An empty one can be brought up to date.
    empty = Index(DIM, kind, Encoder(), bits=8)
    assert empty.update(texts(3)) == (3, 0)
    assert empty.update(texts(40)) == (37, 0)
    expected = Encoder().encode(texts(40))
    np.testing.assert_allclose(empty.vectors(range(40)), expected, atol=0.02)


def test_what_fewer_bits_cannot_hold():
    with pytest.raises(ValueError, match="`bits` must be one of .*Received: 2"):
        Index(DIM, bits=2)
    with pytest.raises(ValueError, match="`vectors` must have numbers up to 32752"):
        Index(DIM, bits=16).add(random(1) * 1e5, ["a"])


def test_an_encoder_that_was_trained_since():
    encoder = Encoder()
    encoder.sample = [0.0]
    encoder.passage_sample = lambda: encoder.sample
    index = Index.build(texts(5), encoder)
    assert index.find(["number 3"], k=1)[0][0].id == 3
    encoder.sample, encoder.digest = [1.0], "b"
    with pytest.raises(ValueError, match="trained since.*Expected: a. Received: b"):
        index.find(["number 3"], k=1)
    encoder.digest = "a"
    assert index.find(["number 3"], k=1)[0][0].id == 3
    with pytest.raises(ValueError, match="must have text. Received: ' ', in row 1"):
        index.find(["number 3", " "], k=1)
    with pytest.raises(ValueError, match="`encoder` must be a task.*: NoneType"):
        Index.build(texts(5), None)


def test_where_cells_have_too_few():
    index = make("ivf", 100, nlist=50, nprobe=1)
    scores, ids = index.search(random(5, 1), 90)
    assert (ids[:, -1] == -1).all() and np.isneginf(scores[:, -1]).all()
    with pytest.raises(IndexError, match=r"in \[0, 100\).*-1"):
        index.passages[ids[0, -1]]


def test_build_from_iterables_and_streams():
    titled = [("Title", "number 3"), ("", "number 4")]
    streams = (
        iter(texts(100)),
        tf.data.Dataset.from_tensor_slices(texts(100)),
        titled,
        tf.data.Dataset.from_tensor_slices(titled),
    )
    for passages in streams:
        index = Index.build(passages, Encoder(), batch_size=1)
        assert index.passages[len(index) - 1] in ("number 99", "number 4")
    index = Index.build(texts(80), Encoder(), "hnsw", m=8)
    found = index.find(["number 7", "and 30"], k=2)
    assert [row[0].passage for row in found] == ["number 7", "number 30"]
    assert found[0][0].score > found[0][1].score and found[1][0].id == 30
    twice = [*texts(5), *texts(7)]
    assert [*Index.build(twice, Encoder(), duplicates="skip").passages] == texts(7)
    for passages, message in (
        (twice, "Received again: 'number 0', number 5"),
        ([], "`passages` must have a passage. Received: none"),
        (["a 1", " "], "must have text. Received: ' ', number 1"),
        ([("a", "")], "must have text"),
        ([1], "strings .* or tuples of title and text. Received: 1, number 0"),
        (tf.data.Dataset.from_tensor_slices(texts(9)).batch(3), "or tuples"),
    ):
        with pytest.raises(ValueError, match=message):
            Index.build(passages, Encoder())
    with pytest.raises(ValueError, match="`duplicates` must be.*'keep'"):
        Index.build(texts(3), Encoder(), duplicates="keep")


class Tokens(Encoder):
    """Texts of numbers to one to three vectors."""

    text_axes = 2

    def encode(self, texts, kind="query", batch_size=32):
        vectors = super().encode(texts, kind, batch_size)
        return [np.stack([x] * (1 + k % 3)) for k, x in enumerate(vectors)]


class Counted(Encoder):
    """Remembers what it was given."""

    def encode(self, texts, kind="query", batch_size=32):
        self.given = [*getattr(self, "given", []), *texts]
        return super().encode(texts, kind, batch_size)


@pytest.mark.parametrize("kind", EACH_KIND)
def test_update(kind, monkeypatch):
    encoder = Counted()
    index = Index.build(texts(100), encoder, kind, **SETTINGS[kind])
    encoder.given = []
    wanted = texts(60, first=50)[::-1] + texts(3, first=51)
    assert index.update(iter(wanted), batch_size=1) == (10, 50)
    assert encoder.given == texts(10, first=100)[::-1]
    again = Index.build(wanted[:60], Encoder(), kind, **SETTINGS[kind])
    assert [*index.passages] == [*again.passages] == wanted[:60]
    queries = random(5, 7)
    for one, other in zip(
        index.search(queries, 3), again.search(queries, 3), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    # After an error it is as it was.
    for bad in ([*texts(5), " "], [], [*texts(5), "no number"]):
        with pytest.raises(ValueError):
            index.update(bad)
        assert [*index.passages] == wanted[:60]
    if kind == "ivf":  # of more cells than there would be vectors
        with pytest.raises(ValueError, match="`nlist` must be at most"):
            index.update(texts(5))
        assert [*index.passages] == wanted[:60]
    encoder.digest = "b"
    monkeypatch.setattr(Encoder, "passage_sample", lambda self: [1.0], raising=False)
    with pytest.raises(ValueError, match="must be of this encoder"):
        index.update(texts(5))


def test_update_of_vectors_of_tokens():
    index = Index.build(texts(9), Tokens())
    assert index.update([*texts(4, first=5), "other 50"]) == (1, 5)
    sizes = [len(x) for x in index.vectors(range(5))]
    assert sizes == [3, 1, 2, 3, 1]
    with pytest.raises(ValueError, match="`update` needs the encoder"):
        Index(2).update(["a"])


@pytest.mark.parametrize("kind", EACH_KIND)
def test_saved_and_loaded(kind, tmp_path):
    index = make(kind, encoder=Encoder())
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", Encoder())
    for old, new in zip(
        *(i.search(random(9, 1), 5) for i in (index, loaded)), strict=True
    ):
        np.testing.assert_array_equal(old, new)
    assert [*loaded.passages] == texts(500) and loaded.kind == kind
    loaded.find(["number 3"])
    loaded.add(random(1, 9), ["number 500"])
    with pytest.raises(ValueError, match="Received again: 'number 500'"):
        loaded.add(random(1, 9), ["number 500"])
    loaded.save(tmp_path / "index")  # over the old one
    assert len(Index.load(tmp_path / "index")) == 501
    with pytest.raises(
        ValueError, match="of this encoder, as it is now.*a. Received: b"
    ):
        Index.load(tmp_path / "index", Encoder("b"))
    with pytest.raises(ValueError, match="`find` needs the encoder"):
        Index.load(tmp_path / "index").find(["number 1"])


def damaged(folder, name, change):
    path = pathlib.Path(folder) / name
    content = path.read_bytes()
    path.write_bytes(change(content))
    try:
        Index.load(folder)
    finally:
        path.write_bytes(content)


def test_damaged_folders(tmp_path):
    folder = tmp_path / "index"
    make(count=20).save(folder)

    def manifest(**changes):
        return lambda content: json.dumps({**json.loads(content), **changes}).encode()

    for name, change, message in (
        ("vectors.faiss", lambda x: x[:-1], "vectors.faiss must be the file described"),
        ("passages.jsonl", lambda x: x[:-1] + b" ", "passages.jsonl must be the file"),
        ("manifest.json", lambda x: b"{", "must be JSON"),
        ("manifest.json", lambda x: b"[]", "must be of format 1"),
        ("manifest.json", manifest(format=2), "format 1.*Received: 2"),
        ("manifest.json", manifest(count="20"), "must have 'count', of type int"),
        ("manifest.json", manifest(count=21), "as many vectors.*21.*20 and 20"),
        ("manifest.json", manifest(dim=9), "'width': 9.*'width': 8"),
        (
            "manifest.json",
            manifest(kind="hnsw", settings={}),
            "kind='hnsw'. It must have b'IHNf'",
        ),
        (
            "manifest.json",
            manifest(kind="flat"),
            "must be the file of an index.*'flat'",
        ),
        ("manifest.json", manifest(settings={"m": 3}), "must be the file of an index"),
    ):
        with pytest.raises(CheckpointError, match=message):
            damaged(folder, name, change)
    (folder / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="must have a manifest.json"):
        Index.load(folder)
    with pytest.raises(FileNotFoundError, match="an index was saved to"):
        Index.load(tmp_path / "nothing")


@needs_scann
def test_scann_of_few_vectors_and_more(tmp_path):
    index = make("scann", count=3, nprobe=8)
    scores, ids = index.search(random(4, 1), 3)
    np.testing.assert_array_equal(ids, nearest(random(4, 1), random(3), 3)[1])
    index.add(random(400, 2), texts(400, 3))  # of which it learns anew
    found = index.search(random(50, 4), 3)[1]
    assert (found.max(1) > 2).all()
    best = nearest(random(50, 4), index.vectors(range(403)), 1)[1]
    assert (found == best).any(1).mean() > 0.9
    few = make("scann", count=64, nlist=8, nprobe=1, reorder=1)
    scores, ids = few.search(random(9, 3), 40)
    assert (ids[:, -1] == -1).any() and np.isinf(scores[ids == -1]).all()
    assert np.isfinite(scores[:, 0]).all() and (ids[:, 0] >= 0).all()
    for name, message in (
        ("a.pkl", "It must have dataset.npy.*a.pkl"),
        ("", "a tar file"),
    ):
        path = tmp_path / "vectors.scann"
        path.write_bytes(b"nothing")
        if name:
            with tarfile.open(path, "w") as archive:
                archive.add(__file__, name)
        with pytest.raises(ValueError, match=message):
            scann_engine.read_engine(path, {})


def test_without_scann(monkeypatch):
    scann_engine.import_scann.cache_clear()
    for name in ("scann", "scann.scann_ops.py.scann_ops_pybind"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="keras-bertfam.scann."):
        Index(DIM, "scann")
    assert sys.modules["tensorflow"] is tf


def test_a_save_that_fails_leaves_the_old_index(tmp_path, monkeypatch):
    make(count=20).save(tmp_path / "index")
    with monkeypatch.context() as patch:
        patch.setattr(json, "dump", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(count=30).save(tmp_path / "index")
    assert len(Index.load(tmp_path / "index")) == 20
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("kind", ["exact", "inverted"])
def test_equal_scores_are_in_the_order_of_ids(kind):
    index = Index(2, kind)
    index.add(np.ones((300, 2)), [f"number {k}" for k in range(300)])
    for k in (1, 2, 50, 300):
        ids = index.search([[1.0, 0.0]], k)[1][0].tolist()
        assert ids == sorted(ids)
    assert ids == [*range(300)]


def test_a_find_of_more_than_there_are():
    index = Index.build(texts(2), Encoder())
    assert len(index.find(["number 1"], k=5)[0]) == 2
    with pytest.raises(ValueError, match=r"`nlist` must be at most .* 2"):
        Index.build(texts(2), Encoder(), "ivf", nlist=3)
    with pytest.raises(ValueError, match="`nlist` must be a positive integer"):
        Index.build(texts(2), Encoder(), "ivf", nlist=True)
    assert index.update([("", "number 0"), b"number 2"]) == (1, 1)
    with pytest.raises(ValueError, match=r"Unicode .*'\\udc80', number 0"):
        index.update(["\udc80"])


def test_errors(tmp_path, monkeypatch):
    index = Index(DIM)
    for call in (
        lambda: index.search(random(1), 1),
        lambda: index.save(tmp_path / "i"),
    ):
        with pytest.raises(ValueError, match="must have passages.*an empty index"):
            call()
    index.add(random(3), texts(3))
    for k in (0, 4, 1.5):
        with pytest.raises(ValueError, match=rf"`k` must be .*{k}"):
            index.search(random(1), k)
    for call, message in (
        (lambda: index.search(random(1)[:, :5], 1), r"\(count, 8\).*shape \(1, 5\)"),
        (lambda: index.search(random(1)[0], 1), r"\(count, 8\).*shape \(8,\)"),
        (lambda: index.search(random(2) / [[1], [0]], 1), "finite.*row 1"),
        (lambda: index.add(random(2), ["a"]), "equally many. Received: 2 and 1"),
        (lambda: index.add(random(1), ["number 2"]), "again: 'number 2', number 0"),
        (lambda: index.add(random(2), ["a", "a"]), "again: 'a', number 1"),
        (lambda: index.find(["number 1"]), "needs the encoder"),
        (lambda: Index(0), "`dim` must be a positive integer. Received: 0"),
        (lambda: Index(DIM, "flat"), r"`kind` must be one of \('exact'.*'flat'"),
        (
            lambda: Index(DIM, "ivf", m=3),
            r"\('nlist', 'nprobe', 'bits'\). Received: \['m'\]",
        ),
        (lambda: Index(DIM, "hnsw", m=0), "`m` must be a positive integer"),
        (lambda: make("ivf", 5).search(random(1), 1), "`nlist` must be at most.*5"),
    ):
        with pytest.raises(ValueError, match=message), np.errstate(divide="ignore"):
            call()
    assert len(index) == 3  # nothing of what was refused
    with pytest.raises(IndexError, match=r"\[0, 3\).*3"):
        index.vectors([0, 3])
    index = Index.build(texts(3), Encoder())
    with pytest.raises(ValueError, match="`questions` must be several strings"):
        index.find("number 1")
    with pytest.raises(ValueError, match="must fit into rows of 20"):
        index.find(["a question that is too long 1"])
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(ImportError, match=r"keras-bertfam\[retrieval\]"):
        Index(DIM)
