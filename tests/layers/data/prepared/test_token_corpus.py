"""Prepared corpora as documents of the preprocessors of pre-training."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_bertfam import tasks
from keras_bertfam.corpora.row_reader import RowReader
from keras_bertfam.layers import BertTokenizer, SmoothedTokens, read_tokens
from keras_bertfam.layers.data.pairs.sentence_pair_rows import PairedRows
from keras_bertfam.layers.data.pipelines import remembered_count
from keras_bertfam.layers.data.prepared.token_corpus import token_batches
from keras_bertfam.layers.data.rows.rows import BatchOptions, PackedRows
from keras_bertfam.layers.data.streams.document_stream import StreamRows
from keras_bertfam.tasks import (
    CausalLMPreprocessor,
    DenoisingPreprocessor,
    MaskedLMPreprocessor,
    MaskedLMSentencePairPreprocessor,
    PermutationLMPreprocessor,
    ReplacedTokenDetectionPreprocessor,
    SpanBoundaryLMPreprocessor,
)
from tests import tiny_corpus
from tests.tiny_masked_lm import SPECIALS, WORDS

LENGTH = 16
PREPROCESSORS = {
    "words": (MaskedLMPreprocessor, {"strategy": "words", "sequence_ids": True}),
    "rare": (MaskedLMPreprocessor, {"strategy": "smoothed_tokens"}),
    "spans": (SpanBoundaryLMPreprocessor, {}),
    "nsp": (MaskedLMSentencePairPreprocessor, {"sentence_objective": "nsp"}),
    "sop": (MaskedLMSentencePairPreprocessor, {"sentence_objective": "sop"}),
    "electra": (ReplacedTokenDetectionPreprocessor, {}),
    "xlnet": (PermutationLMPreprocessor, {}),
    "clm": (CausalLMPreprocessor, {}),
    "bart": (DenoisingPreprocessor, {"objective": "bart"}),
}


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer([*SPECIALS, ".", "##s", *WORDS], lowercase=True)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    return tiny_corpus.prepare(tmp_path_factory.mktemp("prepared"), tokenizer)


def make(name, tokenizer, **settings):
    cls, own = PREPROCESSORS[name]
    return cls(tokenizer, LENGTH, **{**own, **settings})


def batches_of(dataset):
    return [tf.nest.map_structure(lambda x: x.numpy(), batch) for batch in dataset]


def assert_equal(one, two):
    tf.nest.assert_same_structure(one, two)
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(two), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nsp", "bart"])
def test_batches_have_the_parts_of_those_of_documents(name, folder, tokenizer):
    preprocessor = make(name, tokenizer)
    documents = tf.data.Dataset.from_tensor_slices(tiny_corpus.texts())
    data = preprocessor.dataset(read_tokens(folder), 8)
    assert data.element_spec == preprocessor.dataset(documents, 8).element_spec


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["words", "spans", "nsp", "electra", "xlnet", "clm", "bart"]
)
def test_every_preprocessor_takes_a_prepared_corpus(name, folder, tokenizer):
    preprocessor = make(name, tokenizer)
    data = preprocessor.dataset(read_tokens(folder), 8)
    first = batches_of(data)
    assert len(first) == remembered_count(data) == preprocessor.position.batches > 2
    assert preprocessor.position.epoch == 1
    second = batches_of(data)
    pairs = zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True)
    assert not all(np.array_equal(x, y) for x, y in pairs)
    preprocessor.position.set(0, 2)
    assert_equal(batches_of(data), first[2:])


@pytest.mark.slow
def test_workers_share_each_batch(folder, tokenizer):
    def batches(*arguments, **kwargs):
        corpus = read_tokens(folder, *arguments, **kwargs)
        return batches_of(make("rare", tokenizer).dataset(corpus, 8).take(2))

    parts = [batches(2, index) for index in range(2)]
    joined = tf.nest.map_structure(lambda *x: np.concatenate(x), *parts)
    assert_equal(joined, batches(num_slices=2))


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["full", "doc", "stream"])
def test_rows_are_those_of_documents(packing, tokenizer, tmp_path):
    kind = StreamRows if packing == "stream" else PackedRows
    start, end = tokenizer.start_token_id, tokenizer.end_token_id
    rows = kind(tokenizer, LENGTH, start, end, sequence_ids=True)
    options = BatchOptions(8, packing=packing, break_lines=packing == "stream")
    documents = tiny_corpus.texts(30, seed=1)
    folder = tiny_corpus.prepare(tmp_path, tokenizer, documents, shards=1)
    documents = tf.data.Dataset.from_tensor_slices(documents)
    expected = batches_of(rows.prepare(documents, options))
    made = rows.token_rows(options)
    reader = RowReader(folder, made.kind, tokenizer.pad_token_id)
    assert reader.index.count == len(expected)
    found = made.lay_out(reader.read(np.arange(len(expected))), None)
    for name in found:
        each = np.stack([row[name] for row in expected])
        np.testing.assert_array_equal(found[name].numpy(), each, err_msg=name)


def sequences_of(rows):
    """The sequences of rows: their ids, and those of segments if there are any."""
    found = []
    for row in range(len(rows["token_ids"])):
        owner = rows["sequence_ids"][row]
        assert ((owner > 0) == rows["padding_mask"][row]).all()
        assert set(owner) - {0} == set(range(1, owner.max() + 1))
        for number in range(1, owner.max() + 1):
            names = ("token_ids", "segment_ids")
            parts = [rows[n][row][owner == number] for n in names if n in rows]
            found.append(tuple(tuple(part.tolist()) for part in parts))
    return found


def shared_rows(rows, options, folder, **settings):
    """The batches of a pass, rows as they are before they are masked."""
    batches, count = token_batches(
        read_tokens(folder, **settings), rows, options, 0, None, lambda x, seed: x
    )
    batches = batches_of(batches)
    assert len(batches) == count
    return batches


def joined(batches):
    return {name: np.concatenate([x[name] for x in batches]) for name in batches[0]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PackedRows, StreamRows])
def test_texts_that_share_rows_are_those_of_documents(kind, folder, tokenizer):
    start, end = tokenizer.start_token_id, tokenizer.end_token_id
    rows = kind(tokenizer, LENGTH, start, end)
    options = BatchOptions(4, packing="best_fit", training=False)
    documents = tf.data.Dataset.from_tensor_slices(tiny_corpus.texts())
    documents = rows.prepare(documents, options)
    found = shared_rows(rows, options, folder)
    expected = {n: x.shape for n, x in documents.element_spec.items()}
    assert {name: x.shape[1:] for name, x in found[0].items()} == expected
    found, of_documents = (
        joined(found),
        joined([joined([x]) for x in batches_of(documents.batch(1))]),
    )
    assert sorted(sequences_of(found)) == sorted(sequences_of(of_documents))
    assert found["sequence_ids"].max() > 1
    filled = [np.mean(x["padding_mask"]) for x in (found, of_documents)]
    assert filled[0] > filled[1] - 0.02
    training = BatchOptions(4, packing="best_fit")
    whole = shared_rows(rows, training, folder)
    assert whole[0]["token_ids"].tolist() != found["token_ids"][:4].tolist()
    assert len({*sequences_of(joined(whole))} - {*sequences_of(found)}) == 0
    parts = [
        shared_rows(rows, training, folder, num_workers=2, worker_index=k)
        for k in range(2)
    ]
    for k, batch in enumerate(whole):
        for name, x in batch.items():
            halves = [part[k][name] for part in parts]
            np.testing.assert_array_equal(np.concatenate(halves), x, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["nsp", "sop"])
@pytest.mark.parametrize("packing", ["best_fit", "best_fit_sentences"])
def test_pairs_that_share_rows_are_whole(objective, packing, folder, tokenizer):
    rows = PairedRows(tokenizer, 32, objective=objective, max_pairs=3)
    options = BatchOptions(4, packing=packing)
    found = joined(shared_rows(rows, options, folder))
    there, starts = found["sequence_mask"], found["sequence_starts"]
    labels, weights = found["sentence_label"], found["sentence_weight"]
    assert there.shape == labels.shape == (len(found["token_ids"]), 3)
    assert (there.sum(1) == found["sequence_ids"].max(1)).all() and there.sum(
        1
    ).max() > 1
    documents, counts = runs_in(folder, tokenizer), [0, 0]
    for row, slot in np.argwhere(there):
        inside = found["sequence_ids"][row] == slot + 1
        assert inside.argmax() == starts[row, slot]
        ids, segments = (found[n][row][inside] for n in ("token_ids", "segment_ids"))
        assert ids[0] == 2 and ids[-1] == 3 and (ids == 3).sum() == 1 + segments.max()
        a, b = (tuple(x for x in ids[segments == n] if x not in (2, 3)) for n in (0, 1))
        assert a and (b or not weights[row, slot])
        assert any(within(a, text) for text in documents)
        if weights[row, slot]:
            counts[labels[row, slot]] += 1
            both = any(within(a, text) and within(b, text) for text in documents)
            assert both or (objective == "nsp" and labels[row, slot])
    assert min(counts) > 5
    assert not weights[~there].any() and not starts[~there].any()


def text_of(batch, part):
    ids, segments, inside = (
        batch[0][n] for n in ("token_ids", "segment_ids", "padding_mask")
    )
    special = [2, 3]
    return [
        tuple(x for x in row[kept] if x not in special)
        for row, kept in zip(ids, inside & (segments == part), strict=True)
    ]


def runs_in(folder, tokenizer):
    """The documents' ids, a tuple each."""
    ragged = tokenizer(tf.constant(tiny_corpus.texts()))
    return [tuple(row) for row in ragged.to_list()]


def within(run, text):
    size = len(run)
    return any(text[i : i + size] == run for i in range(len(text) - size + 1))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_labels_of_pairs_say_how_the_segments_were(objective, folder, tokenizer):
    preprocessor = make(
        objective, tokenizer, mask_token_rate=0.0, random_token_rate=0.0
    )
    documents = runs_in(folder, tokenizer)
    counts = [0, 0]
    for batch in batches_of(preprocessor.dataset(read_tokens(folder), 8)):
        pairs = zip(text_of(batch, 0), text_of(batch, 1), strict=True)
        labels, weights = batch[1]["sentence"], batch[2]["sentence"]
        for (a, b), label, weight in zip(pairs, labels, weights, strict=True):
            assert a and (b or not weight)
            if not weight:
                continue
            counts[label] += 1
            both = [text for text in documents if within(a, text) and within(b, text)]
            if label == 0 or objective == "sop":
                assert both
    assert min(counts) > 10


def test_another_tokenizer_is_refused(folder):
    other = BertTokenizer([*SPECIALS, ".", "##s", *WORDS[::-1]], lowercase=True)
    with pytest.raises(ValueError, match="`tokenizer` must be the one that the corpus"):
        make("words", other).dataset(read_tokens(folder), 8)


def test_counts_of_tokens(folder, tokenizer):
    preprocessor = make("rare", tokenizer)
    preprocessor.dataset(read_tokens(folder), 8)
    strategy = preprocessor.strategy
    assert isinstance(strategy, SmoothedTokens)
    ids = np.concatenate(runs_in(folder, tokenizer))
    assert strategy.token_counts == np.bincount(ids, minlength=23).tolist()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("words", {"shuffle_documents": 5}, "`shuffle_documents` must be 0"),
        ("words", {"break_lines": False}, "`break_lines` must be True"),
        (
            "words",
            {"batch_size": None, "tokens_per_batch": 64},
            "`tokens_per_batch` must be None",
        ),
        ("xlnet", {"drop_remainder": False}, "`drop_remainder` must be `None` for"),
        ("words", {"batch_size": 5000}, "must have rows for a batch at least"),
        ("xlnet", {"batch_size": 2000}, "must have rows for a batch at least"),
        ("words", {"batch_size": 0}, "`batch_size` must be an int of at least 1"),
        ("xlnet", {"batch_size": 2}, "`batch_size` must give at least 2 streams"),
    ],
)
def test_what_makes_no_sense_is_refused(name, settings, message, folder, tokenizer):
    arguments = {"batch_size": 8, **settings}
    with pytest.raises(ValueError, match=re.escape(message)):
        make(name, tokenizer).dataset(read_tokens(folder), **arguments)


def test_slices_are_of_one_size(folder, tokenizer):
    corpus = read_tokens(folder, num_slices=2)
    with pytest.raises(ValueError, match="`drop_remainder` must be `None` with.*=2"):
        make("words", tokenizer).dataset(corpus, 8, drop_remainder=False)


@pytest.mark.slow
def test_each_slice_has_another_stream_for_segment_b(folder, tokenizer):
    both = {"both_directions": True}
    preprocessor = tasks.PermutationLMPreprocessor(tokenizer, 32, next_rate=0.0, **both)
    corpus = read_tokens(folder, num_slices=2)
    with pytest.raises(ValueError, match="must be at least 8.*Received: 4"):
        preprocessor.dataset(corpus, 4)
    preprocessor.dataset(corpus, 8)
    always = tasks.PermutationLMPreprocessor(tokenizer, 32, next_rate=1.0, **both)
    always.dataset(corpus, 4)


def test_corpora_that_are_none(tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match="prepared corpus"):
        read_tokens(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="without it a corpus isn't whole"):
        read_tokens(tmp_path)
    empty = read_tokens(tiny_corpus.prepare(tmp_path, tokenizer, []))
    with pytest.raises(ValueError, match="must have text for a batch"):
        make("words", tokenizer).dataset(empty, 8)
    with pytest.raises(ValueError, match="must divide `num_slices`"):
        read_tokens(tmp_path, 2, 0, num_slices=3)
    with pytest.raises(ValueError, match="`worker_index` must be less"):
        read_tokens(tmp_path, 2, 2)
    sliced = read_tokens(tmp_path, num_slices=3)
    with pytest.raises(ValueError, match="`batch_size` must be a multiple of 3"):
        make("words", tokenizer).dataset(sliced, 8)


@pytest.mark.slow
def test_a_damaged_shard_ends_the_pass_by_its_name(tokenizer, tmp_path):
    folder = tiny_corpus.prepare(tmp_path / "corpus", tokenizer)
    data = make("words", tokenizer).dataset(read_tokens(folder), 8)
    name = next(name for name in os.listdir(folder) if name.startswith("tokens"))
    path = f"{folder}/{name}"
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        content[200:400] = bytes(200)  # of the first records
        file.seek(0)
        file.write(content)
    with pytest.raises(tf.errors.OpError, match=re.escape(f"{path} is damaged")):
        batches_of(data)


def test_held_out_text_is_in_order_and_whole(folder, tokenizer):
    preprocessor = make("words", tokenizer)
    data = preprocessor.dataset(read_tokens(folder), 8, training=False)
    first, second = batches_of(data), batches_of(data)
    assert_equal(first, second)
    sizes = [len(batch[1]) for batch in first]
    count = remembered_count(data)
    assert len(sizes) == count and sizes[:-1] == [8] * (count - 1)
    assert 0 < sizes[-1] <= 8


def sizes_of(name, tokenizer, data, **options):
    batches = make(name, tokenizer).dataset(data, 7, packing="full", **options)
    return [len(tf.nest.flatten(batch)[0]) for batch in batches]


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [False, True])
def test_a_pass_with_its_last_batch(prepared, folder, tokenizer):
    documents = tf.data.Dataset.from_tensor_slices(tiny_corpus.texts())
    data = read_tokens(folder) if prepared else documents
    held_out = sizes_of("words", tokenizer, data, training=False)
    assert held_out[-1] < 7
    assert sizes_of("words", tokenizer, data, drop_remainder=False) == held_out
    assert sizes_of("words", tokenizer, data) == held_out[:-1]
    dropped = {"training": False, "drop_remainder": True}
    assert sizes_of("words", tokenizer, data, **dropped) == held_out[:-1]


@pytest.mark.slow
def test_duplicates_and_passes_by_their_numbers(folder, tokenizer):
    preprocessor = make("words", tokenizer)
    data = preprocessor.dataset(read_tokens(folder), 8, duplicates=2)
    passes = [batches_of(data) for _ in range(3)]
    assert_equal(passes[2], passes[0])
    second = preprocessor.dataset(read_tokens(folder, epoch=1), 8)
    assert_equal(batches_of(second), passes[1])
