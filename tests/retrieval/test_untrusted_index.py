"""Folders of an index by strangers: nothing outside is read, and none crashes."""

import hashlib
import io
import json
import random
import struct
import tarfile

import numpy as np
import pytest

from keras_bertfam.presets import CheckpointError
from keras_bertfam.retrieval import Index, scann_engine
from keras_bertfam.retrieval.engines import KINDS, import_faiss
from tests.retrieval.test_index import EACH_KIND, needs_scann

pytestmark = pytest.mark.any_backend
DIM = 4
SETTINGS = {"ivf": {"nlist": 4}, "hnsw": {"m": 2}, "scann": {"nlist": 4}}
WORDS = [b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\xff" * 7 + b"\x7f", b"IxF2"]


def numbers(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, DIM)).astype("float32")


@pytest.fixture
def saved(request, tmp_path):
    """Save an index; give its folder, the path of its vectors, and what is in that.

    The parameter is a kind, or one and its bits.
    """
    kind, _, bits = request.param.partition(" ")
    settings = {**SETTINGS.get(kind, {}), **({"bits": int(bits)} if bits else {})}
    index = Index(DIM, kind, **settings)
    index.add(numbers(40), list(map(str, range(40))))
    index.save(tmp_path / "index")
    path = tmp_path / "index" / KINDS[kind].file
    return tmp_path / "index", path, path.read_bytes()


def each(*kinds):
    return pytest.mark.parametrize("saved", kinds, indirect=True)


def load(folder, path, content):
    """The index with other vectors, of which its manifest tells."""
    path.write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = hashlib.sha256(content).hexdigest()
    manifest["files"][path.name] = {"bytes": len(content), "sha256": digest}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Index.load(folder)


def use(index):
    for _ in range(2):  # before and after it grows
        ids = index.search(numbers(9, 1), 5)[1]
        assert -1 <= ids.min() and ids.max() < len(index)
        index.vectors(np.arange(len(index)))
        index.add(numbers(2), [f"{len(index)} {k}" for k in range(2)])


@each(*EACH_KIND, *(f"{kind} {n}" for kind in ("exact", "ivf") for n in (16, 8, 4)))
def test_vectors_damaged_anywhere(saved):
    folder, path, content = saved
    use(load(folder, path, content))
    draw, refused = random.Random(0), 0
    for _ in range(80):
        changed, word = bytearray(content), draw.choice(WORDS)
        at = draw.randrange(len(content))
        changed[at : at + len(word)] = word
        try:
            use(load(folder, path, bytes(changed)))
        except CheckpointError as error:
            assert str(path) in str(error)
            refused += 1
    assert 10 < refused < 80


@each("ivf")
def test_lists_of_another_file(saved, tmp_path):
    folder, path, content = saved
    faiss, other = import_faiss(), tmp_path / "other"
    engine = faiss.read_index(str(path))
    lists = faiss.OnDiskInvertedLists(engine.nlist, engine.code_size, str(other))
    lists.merge_from(engine.invlists, 0)
    engine.replace_invlists(lists)
    faiss.write_index(engine, str(path))
    before = other.read_bytes()
    with pytest.raises(CheckpointError, match="nothing of another file.*ilod"):
        load(folder, path, path.read_bytes())
    assert other.read_bytes() == before


def put(form, at, value):
    """Vectors with a number changed, `at` bytes from the beginning or the end."""

    def change(content):
        content, size = bytearray(content), struct.calcsize(form)
        place = at if at >= 0 else len(content) + at
        content[place : place + size] = struct.pack(form, value)
        return bytes(content)

    return change


@pytest.mark.parametrize(
    ("saved", "change", "message"),
    [
        ("exact", put("<q", 8, 10**12), "1000000000000 vectors|declares|as many"),
        ("exact", put("<Q", 37, 10**11), "declares 400000000000 bytes"),
        ("exact", put("<f", -4, np.nan), "finite vectors"),
        ("exact", lambda content: content + b"\0", "bytes, not"),
        ("ivf", put("<q", -8, 40), "each id below 40 once"),
        ("ivf", put("<q", -8, -1), "each id below 40 once"),
        ("ivf", put("<Q", 37, 10**9), "1000000000 vectors"),
        ("exact 8", put("<i", 37, 1), "8 bits for each of 4 numbers"),
        ("exact 8", put("<f", 73, np.inf), "finite ranges"),
        ("exact 8", put("<f", 73 + 4 * DIM, 3e38), "finite ranges"),
        ("exact 8", put("<Q", 65, 4), "a range of each number"),
        ("exact 16", put("<H", -2, 0x7C00), "finite vectors"),
        ("exact 4", put("<Q", 8, 41), "the bytes of 41 vectors"),
        ("exact 4", put("<?", 32, False), "learnt all"),
        ("hnsw", put("<q", 8, 41), "levels of each vector"),
        ("hnsw", put("<i", -37 - 8 - 20 - 4 - 40 * DIM * 4, 40), "links to ids|first"),
    ],
    indirect=["saved"],
)
def test_numbers_out_of_range(saved, change, message):
    folder, path, content = saved
    with pytest.raises(CheckpointError, match=message):
        load(folder, path, change(content))


@each("exact")
def test_links_to_other_folders(saved, tmp_path):
    folder, path, content = saved
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="link to another folder"):
        Index.load(folder)


@each(pytest.param("scann", marks=needs_scann))
def test_references_of_scann(saved, tmp_path):
    folder, path, content = saved
    assert scann_engine.read_engine(path, KINDS["scann"].settings).ntotal == 40

    def with_file(name, change):
        with tarfile.open(fileobj=io.BytesIO(content)) as old:
            members = {m.name: old.extractfile(m).read() for m in old.getmembers()}
        members[name] = change(members[name])
        with tarfile.open(path, "w") as new:
            for member, data in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(data)
                new.addfile(info, io.BytesIO(data))
        return path.read_bytes()

    field = b"\x2a\x06\x0a\x04/etc"  # partitioning, whose text is another's field
    for name, change, message in (
        (
            "scann_assets.pbtxt",
            lambda text: text.replace(b"dataset.npy", b"/etc/passwd"),
            "as ScaNN writes it",
        ),
        (
            "scann_assets.pbtxt",
            lambda text: text.replace(b"dataset.npy", b"passwd"),
            "its own files.*passwd",
        ),
        ("scann_config.pb", lambda data: data + field, "its own files|be a config"),
        ("dataset.npy", lambda data: data[:-4], "dataset.npy must have an array"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load(folder, path, with_file(name, change))
