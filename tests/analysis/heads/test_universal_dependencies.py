"""Roles of heads and probes on annotated English, by counts of its own."""

import collections

import numpy as np
import pytest

from keras_bertfam import datasets
from keras_bertfam.analysis import head_roles, probe
from keras_bertfam.layers import BertTokenizer
from keras_bertfam.models import BertBackbone

pytestmark = [pytest.mark.data, pytest.mark.any_backend]
COUNT = 120


@pytest.fixture(scope="module")
def columns(data_dir):
    path = str(data_dir / "ud_ewt" / "en_ewt-ud-dev.conllu")
    examples = [
        datasets.load_examples(path, limit=COUNT, text="tokens", label=label)
        for label in ("upos", "head", "deprel")
    ]
    return [examples[0].x, *(each.y for each in examples)]


@pytest.fixture(scope="module")
def model(data_dir):
    tokenizer = BertTokenizer(
        str(data_dir / "tokenizers" / "bert_uncased" / "vocab.txt"), lowercase=True
    )
    size = tokenizer.vocabulary_size()
    return BertBackbone(size, 2, 2, 32, 32, max_sequence_length=160), tokenizer


@pytest.mark.slow
def test_relations_and_their_baselines(columns, model):
    sentences, _, heads, relations = columns
    arcs = [
        [*zip(map(int, row), names, strict=True)]
        for row, names in zip(heads, relations, strict=True)
    ]
    backbone, tokenizer = model
    roles = head_roles(backbone, sentences, arcs, tokenizer=tokenizer)
    offsets = collections.Counter(
        int(head) - word
        for row, names in zip(heads, relations, strict=True)
        for word, (head, name) in enumerate(zip(row, names, strict=True), 1)
        if name == "det"
    )
    [score] = [
        s for s in roles.relations if (s.relation, s.direction) == ("det", "to head")
    ]
    assert score.count == offsets.total() > 100
    [(offset, most)] = offsets.most_common(1)
    assert score.offset == offset and score.baseline == most / offsets.total()
    assert score.accuracy.max() < score.baseline  # of random heads
    assert "det" in repr(roles) and len(roles.relations) > 30


def test_parts_of_speech_are_read_off_the_embeddings(columns, model):
    """Random vectors of words tell what they mostly are; layers lose some of it."""
    sentences, tags, _, _ = columns
    backbone, tokenizer = model
    settings = {"learning_rate": 0.02, "epochs": 6}
    report = probe(backbone, sentences, tags, tokenizer=tokenizer, **settings)
    assert report.label_names[:2] == ["ADJ", "ADP"]
    assert sum(report.counts) == sum(map(len, sentences))
    assert report.majority < 0.2 and report.scores[0, 0] > 0.3
    assert np.isfinite(report.scores).all()
