import contextlib
import os
import resource

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import corpora
from keras_bertfam.corpora import QualityRules
from keras_bertfam.corpora.manifest import Manifest
from keras_bertfam.corpora.preparing import prepare as preparing
from keras_bertfam.corpora.preparing import sources, steps
from keras_bertfam.corpora.shards import ShardReader, check_shard, read_lengths
from keras_bertfam.corpus import python_documentation
from keras_bertfam.layers.data.documents.reading import tokenize_sentences
from keras_bertfam.tokenizers import BertTokenizer, train_word_piece
from keras_bertfam.tokenizers.pipeline_ops import as_graph_layer
from keras_bertfam.tokenizers.texts import to_utf8
from tests.written_files import write

pytest.importorskip("apache_beam")
TEXTS = dict.fromkeys(python_documentation())
DOCUMENTS = [text for text in TEXTS if len(text.split()) > 30][:60]
NEAR = DOCUMENTS[3] + "\nA line that the other copy lacks."
SHORT, SYMBOLS = "Two words", "…"


@pytest.fixture(scope="module")
def tokenizer():
    return train_word_piece(tf.data.Dataset.from_tensor_slices(DOCUMENTS), 800)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(sources, "_LEAST", 1 << 14)
    monkeypatch.setattr(steps, "_BATCH_BYTES", 1 << 13)


@pytest.fixture
def folder(tmp_path):
    """Files with copies, of which some are in other files."""
    half = len(DOCUMENTS) // 2
    texts = {
        "corpus/a.txt": [*DOCUMENTS[:half], SHORT, NEAR],
        "corpus/b.txt": [*DOCUMENTS[half:], DOCUMENTS[1], DOCUMENTS[-1], SYMBOLS],
    }
    return write(tmp_path, {name: "\n\n".join(x) for name, x in texts.items()})


def prepare(folder, tokenizer, name="prepared", **kwargs):
    settings = {"quality": QualityRules(min_words=3), "shards": 3, "report": str}
    return corpora.prepare(
        folder / "corpus/*.txt", folder / name, tokenizer, **{**settings, **kwargs}
    )


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def read(folder):
    """The lists of sentences of all documents, and in which shard each is."""
    manifest = Manifest.read(folder)
    for number, shard in enumerate(manifest.shards):
        check_shard(folder, shard)
        reader = ShardReader(folder / shard.file, manifest.dtype)
        sentences = []
        for ids, lengths in reader.records(range(len(reader))):
            sentences += np.split(ids, np.cumsum(lengths)[:-1])
        start = 0
        for count in read_lengths(folder, shard)["documents"]:
            yield number, [x.tolist() for x in sentences[start : start + count]]
            start += count


def expected(tokenizer, text):
    texts = to_utf8(tf.constant([text]))
    return tokenize_sentences(as_graph_layer(tokenizer), texts)[0].to_list()


@pytest.mark.slow
def test_prepared_documents(folder, tokenizer):
    lines = []
    manifest = prepare(folder, tokenizer, report=lines.append)
    assert Manifest.read(folder / "prepared") == manifest
    assert lines[-1] == (
        "Left out 5 documents: 2 by the rule min_words, 2 equal to another, 1 nearly "
        "equal to another."
    )
    dropped = {each["name"]: each["dropped"] for each in manifest.filters}
    assert dropped == {
        "min_words": 2,
        "exact_duplicates": 2,
        "near_duplicates": 1,
        "empty": 0,
    }
    found = [x for _, x in read(folder / "prepared")]
    # Of the two that are almost the same, the longer one has stayed.
    kept = [NEAR if k == 3 else text for k, text in enumerate(DOCUMENTS)]
    assert sorted(found) == sorted(expected(tokenizer, text) for text in kept)
    assert manifest.counts["documents"] == len(DOCUMENTS)
    assert manifest.counts["tokens"] == sum(len(x) for doc in found for x in doc)
    assert {*os.listdir(folder)} == {"corpus", "prepared"}
    assert [source["bytes"] for source in manifest.sources] == [
        path.stat().st_size for path in sorted((folder / "corpus").iterdir())
    ]
    saved = BertTokenizer.from_preset(folder / "prepared/tokenizer")
    manifest.check_tokenizer(saved)
    with pytest.raises(ValueError, match="isn't written over"):
        prepare(folder, tokenizer)


@pytest.mark.slow
def test_the_same_bytes_from_other_blocks(folder, tokenizer, monkeypatch):
    prepare(folder, tokenizer, "one")
    first = contents(folder / "one")
    # Documents in another order, in more files and other blocks.
    texts = (folder / "corpus/b.txt").read_text().split("\n\n")
    write(folder, {"corpus/b.txt": "\n\n".join(texts[9:])})
    write(folder, {"corpus/0.txt": "\n\n".join(texts[:9])})
    monkeypatch.setattr(sources, "_LEAST", 1 << 12)
    monkeypatch.setattr(steps, "_BATCH_BYTES", 1 << 14)
    prepare(folder, folder / "one/tokenizer", "two")
    second = contents(folder / "two")
    assert first.pop("manifest.json") != second.pop("manifest.json")
    assert first == second
    assert len(first) == 6


@pytest.mark.slow
def test_all_stays_if_it_is_asked_for(folder, tokenizer):
    line = "The zebra that only a test has heard of sleeps in the old town."
    tests = write(folder / "tests", {"a.txt": line})
    write(folder, {"corpus/c.txt": f"Before. {line.upper()}\n\n\u200b"})
    manifest = prepare(
        folder,
        tokenizer,
        quality=None,
        exact_duplicates=False,
        test_sets=[tests / "a.txt"],
    )
    dropped = {each["name"]: each["dropped"] for each in manifest.filters}
    assert dropped == {"contamination": 1, "empty": 1}
    assert manifest.counts["documents"] == len(DOCUMENTS) + 5


def test_copies_are_near_copies(folder, tokenizer):
    with pytest.raises(ValueError, match="`near_duplicates` must be None with exact_"):
        prepare(folder, tokenizer, exact_duplicates=False, near_duplicates=0.9)


@contextlib.contextmanager
def failing_after(monkeypatch, name, calls):
    """A step that is killed in the middle; what it has made since."""
    step, made = getattr(steps, name), []

    def killed(job, element):
        if len(made) == calls:
            raise KeyboardInterrupt
        made.append(element)
        return step(job, element)

    with monkeypatch.context() as patch:
        patch.setattr(steps, name, killed)
        yield made


@pytest.mark.slow
def test_a_killed_run_goes_on(folder, tokenizer, monkeypatch):
    prepare(folder, tokenizer, "whole")
    for name, calls in (("write_documents", 2), ("write_tokens", 2)):
        with failing_after(monkeypatch, name, calls):
            with pytest.raises(BaseException, match="KeyboardInterrupt|^$"):
                prepare(folder, tokenizer)
        assert not (folder / "prepared").exists()
    with failing_after(monkeypatch, "write_shard_of", 1):
        with pytest.raises(BaseException, match="KeyboardInterrupt|^$"):
            prepare(folder, tokenizer)
    working = folder / "prepared-working"
    [finished] = working.glob("shards-*/*.array_record")
    number = finished.stat().st_ino
    written = []
    monkeypatch.setattr(
        preparing.steps,
        "write_shard",
        lambda *args, write_shard=steps.write_shard: (
            written.append(args[1]) or write_shard(*args)
        ),
    )
    prepare(folder, tokenizer)
    assert len(written) == 2
    assert (folder / "prepared" / finished.name).stat().st_ino == number
    assert contents(folder / "whole") == contents(folder / "prepared")
    assert not working.exists()


@pytest.mark.slow
def test_errors_say_what_and_where(folder, tokenizer):
    write(folder, {"corpus/c.txt": b"Good.\n\nNot \xe9 good.\n"})
    with pytest.raises(ValueError, match=r"c.txt must be text in UTF-8, .* at byte 11"):
        prepare(folder, tokenizer)
    assert not (folder / "prepared").exists()
    os.remove(folder / "corpus/c.txt")
    prepare(folder, tokenizer)
    for name in ("shards", "test_ngram", "workers"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1"):
            prepare(folder, tokenizer, "new", **{name: 0})
    with pytest.raises(ValueError, match="`workers` must be left out"):
        prepare(folder, tokenizer, workers=2, beam_arguments=["--runner=FlinkRunner"])
    with pytest.raises(FileNotFoundError, match="`sources` must name existing files"):
        corpora.prepare(folder / "none", folder / "new", tokenizer)
    assert {*os.listdir(folder)} == {"corpus", "prepared"}


@pytest.mark.parametrize("change", ["appended", "rewritten", "removed"])
def test_a_source_that_changes_while_it_is_read(change, folder, tokenizer, monkeypatch):
    path, read = folder / "corpus/b.txt", steps.read_documents
    content = path.read_bytes()

    def read_and_change(part, reading):
        documents = read(part, reading)
        yield next(documents)
        if part.source.name == str(path):
            if change == "removed":
                path.unlink()
            else:
                path.write_bytes(
                    content[::-1] if change == "rewritten" else content * 2
                )
        yield from documents

    monkeypatch.setattr(steps, "read_documents", read_and_change)
    with pytest.raises((ValueError, OSError), match=r"b\.txt"):
        prepare(folder, tokenizer)
    assert not (folder / "prepared").exists()


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_half_written(folder, tokenizer):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            prepare(folder, tokenizer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (folder / "prepared").exists()
    prepare(folder, tokenizer)


def test_nothing_is_left(folder, tokenizer):
    manifest = prepare(folder, tokenizer, quality=QualityRules(min_words=10**6))
    assert manifest.counts == {"documents": 0, "sentences": 0, "tokens": 0}
    assert [*read(folder / "prepared")] == []


@pytest.mark.slow
def test_a_run_killed_at_its_end_makes_a_whole_corpus_again(
    folder, tokenizer, monkeypatch
):
    def killed(folder):
        raise KeyboardInterrupt

    test_set = folder / "corpus/a.txt"
    given = {"test_sets": test_set, "near_duplicates": None}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(preparing.working_folders, "discard", killed)
        prepare(folder, tokenizer, **given)
    first = contents(folder / "prepared")
    (folder / "prepared").rename(folder / "moved")
    prepare(folder, tokenizer, **given)
    assert contents(folder / "prepared") == first
    (rule,) = (
        each
        for each in Manifest.read(folder / "prepared").filters
        if each["name"] == "contamination"
    )
    assert rule["arguments"]["test_sets"] == [str(test_set)]
