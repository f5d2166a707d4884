"""Texts and pairs that share rows, from strings to masked batches."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam.layers import BertTokenizer
from keras_bertfam.layers.data.rows.rows import BatchOptions
from keras_bertfam.tasks import (
    DistillerPreprocessor,
    MaskedLMPreprocessor,
    MaskedLMSentencePairPreprocessor,
    PermutationLMPreprocessor,
    ReplacedTokenDetectionPreprocessor,
    SpanBoundaryLMPreprocessor,
)

WORDS = [f"w{i}" for i in range(40)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS, "##s"]
PAD, CLS, SEP = 0, 2, 3


def make(cls, length=24, **kwargs):
    return cls(BertTokenizer(VOCABULARY), sequence_length=length, seed=3, **kwargs)


def random_texts(count, most, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, most))) for _ in range(count)]


def as_dataset(texts):
    return tf.data.Dataset.from_tensor_slices(texts)


def taken_apart(row):
    """The sequences of a row, each a tuple of ids."""
    ids, numbers = row["token_ids"].numpy(), row["sequence_ids"].numpy()
    assert (ids[numbers == 0] == PAD).all()
    assert ((numbers > 0) == row["padding_mask"].numpy()).all()
    return [tuple(ids[numbers == n].tolist()) for n in range(1, numbers.max() + 1)]


def stream(dataset):
    return [
        [np.asarray(x).tolist() for x in tf.nest.flatten(batch)] for batch in dataset
    ]


@pytest.mark.slow
def test_each_text_is_a_sequence():
    """Sentences stay together, long texts are cut, and empty ones are none."""
    preprocessor = make(MaskedLMPreprocessor, 8)
    texts = ["w0 w1 . W2 w3", "", "w4\n\nw5", " \n ", " ".join(WORDS[6:20]), "w20", "w"]
    rows = preprocessor.pack(as_dataset(texts), "best_fit")
    spec = {k: v.shape.as_list() for k, v in rows.element_spec.items()}
    assert spec == dict.fromkeys(("token_ids", "padding_mask", "sequence_ids"), [8])
    found = sorted(sum(map(taken_apart, rows), []))
    w = [6 + i for i in range(40)]
    expected = [w[:2] + [5, 1, w[3]], w[4:6], w[6:12], w[12:18], w[18:20], [w[20]], [1]]
    assert found == sorted((CLS, *text, SEP) for text in expected)
    assert not list(preprocessor.pack(as_dataset(["", "\n"]), "best_fit"))
    with pytest.raises(ValueError, match="`break_lines` must be `True`"):
        preprocessor.dataset(as_dataset(texts), packing="best_fit", break_lines=False)


@pytest.mark.slow
def test_batches_and_resumption_in_the_middle_of_a_pass():
    preprocessor = make(MaskedLMPreprocessor)
    texts = as_dataset(random_texts(150, 12))
    packed = preprocessor.pack(texts, "best_fit").cache()
    dataset = preprocessor.dataset(packed, 4)
    x, y, _ = dataset.element_spec
    assert x["sequence_ids"].shape == (4, 24) and y.shape == (4, 4)
    first, second = stream(dataset), stream(dataset)
    assert first != second and len(first) == len(second) > 8
    preprocessor.position.set(1, 3)
    assert stream(dataset) == second[3:]


@pytest.mark.slow
def test_spans_and_their_borders_are_of_one_sequence():
    """Also where spans have the special tokens at the ends of sequences."""
    preprocessor = make(
        SpanBoundaryLMPreprocessor, mask_special_tokens=True, mask_selection_rate=0.4
    )
    texts = as_dataset(random_texts(150, 9))
    dataset = preprocessor.dataset(texts, 40, packing="best_fit", training=False)
    x, _, weights = (
        tf.nest.map_structure(np.asarray, part) for part in next(iter(dataset))
    )
    owners, bounds = x["sequence_ids"], x["span_bounds"]
    there = weights["masked_lm"] > 0
    row, slot = np.nonzero(there)
    own = owners[row, x["mask_positions"][row, slot]]
    first, last = bounds[row, slot, 0], bounds[row, slot, 1]
    assert (own > 0).all()
    for side in (first, last):
        assert (owners[row, side] == own).all()
    wide = np.pad(owners, [[0, 0], [1, 1]])
    inside = (wide[row, first] == own) & (wide[row, last + 2] == own)
    assert not inside.all()
    counted = weights["span_boundary"][row, slot] > 0
    assert (counted <= inside).all() and counted.any()


@pytest.mark.slow
def test_other_objectives_tell_sequences_apart():
    texts = as_dataset(random_texts(60, 9))
    for preprocessor in (
        make(MaskedLMPreprocessor, strategy="ngrams"),
        make(DistillerPreprocessor),
        make(ReplacedTokenDetectionPreprocessor),
    ):
        dataset = preprocessor.dataset(texts, 4, packing="best_fit", training=True)
        batch = next(iter(dataset))
        x = batch if isinstance(batch, dict) else batch[0]
        assert int(tf.reduce_max(x["sequence_ids"])) > 1
        assert "segment_ids" not in x


def pairs_of(preprocessor, documents, packing):
    rows, _ = preprocessor.parts()
    options = BatchOptions(4, packing=packing)
    prepared = rows.prepare(documents, options)
    return [*rows.of_pass(prepared, options, tf.constant([5, 6], tf.int64))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective, packing, alone",
    [
        ("nsp", "best_fit", "segments"),
        pytest.param(
            *("sop", "best_fit_sentences", "sentences"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_pairs_share_rows(objective, packing, alone):
    """The same pairs and labels as one to a row, in slots."""
    preprocessor = make(
        MaskedLMSentencePairPreprocessor,
        length=32,
        sentence_objective=objective,
        max_pairs=3,
        documents_at_once=8,
    )
    texts = random_texts(60, 6)
    documents = as_dataset(["\n".join(texts[i : i + 3]) for i in range(0, 60, 3)])
    expected = []
    for row in pairs_of(preprocessor, documents, alone):
        inside = row["padding_mask"].numpy()
        parts = (row[name].numpy()[inside] for name in ("token_ids", "segment_ids"))
        labels = int(row["sentence_label"]), float(row["sentence_weight"])
        expected.append((*map(tuple, parts), *labels))
    found, rows = [], pairs_of(preprocessor, documents, packing)
    for row in rows:
        row = {name: value.numpy() for name, value in row.items()}
        there = row["sequence_mask"]
        assert there.sum() == row["sequence_ids"].max() and len(there) == 3
        assert not row["sentence_weight"][~there].any()
        for number in np.flatnonzero(there):
            inside = row["sequence_ids"] == number + 1
            assert inside.argmax() == row["sequence_starts"][number]
            parts = (row[name][inside] for name in ("token_ids", "segment_ids"))
            labels = row["sentence_label"][number], row["sentence_weight"][number]
            found.append((*map(tuple, parts), *labels))
    assert sorted(found) == sorted(expected) and len(rows) < len(found)


@pytest.mark.slow
def test_batches_of_pairs():
    preprocessor = make(MaskedLMSentencePairPreprocessor, length=32)
    texts = random_texts(90, 6)
    documents = as_dataset(["\n".join(texts[i : i + 3]) for i in range(0, 90, 3)])
    dataset = preprocessor.dataset(documents, 2, packing="best_fit_sentences")
    x, y, weights = dataset.element_spec
    assert set(x) == {
        *("token_ids", "segment_ids", "sequence_ids", "padding_mask"),
        *("mask_positions", "sequence_starts"),
    }
    assert y["sentence"].shape == weights["sentence"].shape == (2, 2)
    first, second = stream(dataset), stream(dataset)
    assert first != second
    preprocessor.position.set(1, 2)
    assert stream(dataset) == second[2:] != []


def test_what_is_refused():
    texts = as_dataset(["w1"])
    with pytest.raises(ValueError, match="`packing` must be one of .*'best_fit'.*half"):
        make(MaskedLMPreprocessor).dataset(texts, 2, packing="half")
    with pytest.raises(ValueError, match="`max_pairs` must be at least 1.*: 0."):
        make(MaskedLMSentencePairPreprocessor, max_pairs=0)
    with pytest.raises(ValueError, match="`packing` must be `None`"):
        make(PermutationLMPreprocessor, reuse_length=4).dataset(
            texts, 4, packing="best_fit"
        )
