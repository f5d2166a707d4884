import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from keras_bertfam import corpora
from keras_bertfam.corpora.preparing import processes
from keras_bertfam.corpora.preparing.word_counts import count_words
from keras_bertfam.corpus import python_documentation
from keras_bertfam.tokenizers import train_word_piece
from tests.checkout import ROOT
from tests.written_files import write

pytest.importorskip("apache_beam")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of a megabyte each, a block of its own."""
    folder = tmp_path_factory.mktemp("processes")
    texts = python_documentation()
    for number in range(8):
        lines = [f"{number}: {line}" for text in texts for line in text.split("\n")]
        text = "\n".join(lines * 3)
        write(folder, {f"corpus/{number}.txt": text})
    counts = count_words(folder / "corpus/0.txt")
    train_word_piece(counts, 800).save_to_preset(folder / "tokenizer")
    return folder


def start(folder, name, workers):
    command = [sys.executable, "-m", "keras_bertfam", "prepare"]
    command += [folder / "corpus/*.txt", "--output", folder / name]
    command += ["--tokenizer", folder / "tokenizer", "--shards", "4"]
    return subprocess.Popen(
        [*map(str, command), "--workers", str(workers)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def children(process):
    """The numbers of the processes that a process has started."""
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process.pid:
            yield int(path.parent.name)


def waits_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs Linux's /proc")
def test_killed_with_two_workers_and_gone_on_with_one(folder):
    working = folder / "killed-working/documents"
    process = start(folder, "killed", 2)
    waits_for(lambda: working.is_dir() and any(working.glob("[!.]*")))
    workers = [*children(process)]
    assert workers
    process.kill()
    process.wait()
    # None of the processes stays, nor is anything at the place of the corpus.
    waits_for(lambda: not any(os.path.isdir(f"/proc/{each}") for each in workers))
    assert not (folder / "killed").exists()
    done = {path: path.stat().st_ino for path in working.glob("[!.]*")}
    assert 0 < len(done) < 8
    settings = {"shards": 4, "report": str}
    sources, tokenizer = folder / "corpus/*.txt", folder / "tokenizer"
    corpora.prepare(sources, folder / "killed", tokenizer, **settings)
    corpora.prepare(sources, folder / "whole", tokenizer, **settings)
    assert contents(folder / "killed") == contents(folder / "whole")


@pytest.mark.slow
def test_errors_come_back_from_processes():
    busy = threading.Event()
    with processes.process_pool(2):
        assert processes.call(os.getpid) == os.getpid()
        thread = threading.Thread(target=processes.call, args=[busy.wait])
        thread.start()
        waits_for(processes._this_process.locked)
        with pytest.raises(ValueError, match="invalid literal"):
            processes.call(int, "a")
        assert processes.call(os.getpid) != os.getpid()
        with pytest.raises(OSError, match="A worker was killed"):
            processes.call(os.abort)
        busy.set()
        thread.join()
        assert not processes._this_process.locked()
    assert processes.call(os.getpid) == os.getpid()
