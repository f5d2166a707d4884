"""A run on a prepared corpus goes on without reading what was before."""

import keras
import pytest

from keras_bertfam.corpora.batch_source import BatchSource
from keras_bertfam.layers import read_tokens
from tests import tiny_corpus
from tests.callbacks.test_backup import check_resumes, whole_run

READS_FIRST = keras.backend.backend() == "torch"


@pytest.fixture
def batches_read(monkeypatch):
    """The passes and numbers of the batches that are read, in order."""
    found, read = [], BatchSource.read

    def recorded(source, epoch, batch, part=0):
        found.append((epoch, batch))
        return read(source, epoch, batch, part)

    monkeypatch.setattr(BatchSource, "read", recorded)
    return found


@pytest.mark.slow
def test_a_killed_run_reads_on_where_it_was(tmp_path, batches_read):
    def data(model):
        folder = tmp_path / "prepared"
        if not folder.exists():
            texts = tiny_corpus.texts(12)
            tiny_corpus.prepare(folder, model.preprocessor.tokenizer, texts)
        return model.preprocessor.dataset(read_tokens(folder), 4).repeat()

    at = (1, 3)
    whole, copies = whole_run(tmp_path, [at], data, steps_per_epoch=5)
    # Keras first asks for a batch to learn the shapes.
    begun = batches_read.count((0, 0))
    assert len({*batches_read}) > 12
    batches_read.clear()
    check_resumes(whole, copies[at], at, data, steps_per_epoch=5)
    if not READS_FIRST:  # PyTorch's loop reads before it asks what to do with it
        assert batches_read.count((0, 0)) == begun - 1
