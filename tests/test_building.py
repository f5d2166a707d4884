"""What a pre-training run is made of."""

import pytest

from keras_bertfam.cli import building
from keras_bertfam.cli.runs import PretrainingRun
from keras_bertfam.tokenizers.t5 import sentinel_ids
from tests.tasks.generation import text_to_text_tokenizers as tokenizers
from tests.tiny_text_to_text import make


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_tokenizer_of_any_preset(tmp_path):
    for name, tokenizer in (("T5", tokenizers.t5()), ("Bart", tokenizers.word_piece())):
        path = str(tmp_path / name)
        make(name, vocabulary_size=tokenizer.vocabulary_size()).save_to_preset(path)
        tokenizer.save_to_preset(path)
        run = PretrainingRun(files=("a",), output="b", family="t5", tokenizer=path)
        found = building.make_tokenizer(run, None)
        assert found.get_vocabulary() == tokenizer.get_vocabulary()


@pytest.mark.any_backend
def test_sentinels_for_any_family():
    """T5's spans on BART."""
    run = PretrainingRun(
        files=("a",),
        output="b",
        family="bart",
        objective="random_spans",
        tokenizer="sentence_piece",
        vocabulary_size=180,
    )
    documents = tokenizers.as_dataset(tokenizers.random_texts(100))
    found = building.make_tokenizer(run, documents)
    assert len(sentinel_ids(found)) == 100
    with pytest.raises(ValueError, match="`cased` must be left out .*'random_spans'"):
        run.changed(cased=False)
